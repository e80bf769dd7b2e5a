/* What a run says of itself when it is through, and what it asks before it begins. */
#ifndef CF_RUN_RESULT_H
#define CF_RUN_RESULT_H

#include "execute.h"
#include "options.h"

/* How far a divided run is, as one of its processes sees it. */
typedef struct cf_shares {
    const bool *missing; /* by number of the share; NULL: none is */
    bool complete;       /* the output is there */
    bool before;         /* this share was done by an earlier process */
} cf_shares;

/* Of the files of an output so many are listed for people: all with -v. */
uint64_t cf_files_shown(const cf_options *o, const cf_block *b);
/* shares: NULL for a run that is not divided. */
void cf_show_run(cf_text *text, const cf_options *o, const char *out, const cf_block *block,
                 const cf_outcome *done, double seconds, const cf_shares *shares);
/* -v: what the run worked with, for whoever wonders why it is slow. */
void cf_print_means(const cf_means *means, const cf_outcome *done);
/* E_SPACE. held: bytes on disk of the partial output of a run before. */
bool cf_enough_space(const char *out, const cf_price *price, uint64_t n_tensors, uint64_t held,
                     cf_err *err);

/* ---- run_share.c ---- */

/* run --rank: one share written, and the output finished if it was the last. */
bool cf_run_share(const cf_options *o, const char *out, const cf_block *block,
                  const cf_means *means, cf_err *err);

#endif
