/* The verbs of the command line, a file each: argv in, exit code out. */
#ifndef CF_VERBS_H
#define CF_VERBS_H

#include "block.h"
#include "child.h"
#include "filter.h"
#include "options.h"

typedef bool cf_verb(const cf_options *o, cf_err *err);

/* The exit status of a verb that did what it should: 0, or 1 where verify found a fault and diff a
 * difference. */
extern int cf_verb_status;

cf_verb cf_verb_run, cf_verb_plan, cf_verb_inspect, cf_verb_plugins, cf_verb_version, cf_verb_reads,
    cf_verb_place, cf_verb_verify, cf_verb_diff;

/* Options that a verb has for itself; a list ends with one without a name. */
extern const cf_option cf_reads_options[], cf_place_options[];

/* ---- planning.c: jobs of the child ---- */

/* A recipe's options as lines of text, for the parent's parser. ctx: cf_ask. */
typedef struct cf_ask {
    const char *recipe;
    const char *const *plugins;
    int n_plugins;
} cf_ask;
bool cf_job_options(const void *ask, cf_text *out, cf_text *notes, cf_err *err);
/* Reads what cf_job_options wrote. */
bool cf_options_decode(const cf_reply *reply, cf_arena *arena, cf_option **options, size_t *count,
                       const char **about, cf_err *err);

/* A block. What inspect, plugins, reads and place print: notes, a NUL, the result. ctx: cf_options.
 */
bool cf_job_plan(const void *options, cf_text *out, cf_text *notes, cf_err *err);
bool cf_job_verify(const void *options, cf_text *out, cf_text *notes, cf_err *err);
/* ctx: of verb_diff.c. */
bool cf_job_diff(const void *asking, cf_text *out, cf_text *notes, cf_err *err);
bool cf_job_inspect(const void *options, cf_text *out, cf_text *notes, cf_err *err);
bool cf_job_plugins(const void *options, cf_text *out, cf_text *notes, cf_err *err);
bool cf_job_reads(const void *options, cf_text *out, cf_text *notes, cf_err *err);
bool cf_job_place(const void *options, cf_text *out, cf_text *notes, cf_err *err);

/* Runs a job that makes a block, opens it and prints its notes. reply holds it: cf_reply_free, also
 * after an error. */
bool cf_block_job(cf_child_job *job, const void *ctx, const cf_options *o, cf_reply *reply,
                  cf_block *block, cf_err *err);
/* Runs such a job and prints: notes on stderr, the result on stdout. */
bool cf_show_job(cf_child_job *job, const cf_options *o, cf_err *err);

/* ---- unpacking.c ---- */

/* What is compressed as a whole among the inputs is unpacked, before any child: beside `out`, or
 * (NULL) in the folder for temporary files. Also lets the process open as many files as it may. */
bool cf_unpack_inputs(const cf_options *o, const char *out, cf_err *err);

/* What --include, --exclude and --rename say. */
cf_filter cf_options_filter(const cf_options *o);
/* A checkpoint read and filtered: source and catalogue, made by the jobs. */
bool cf_read_inputs(const cf_options *o, cf_scripts *scripts, cf_source *source, cf_catalogue *cat,
                    cf_err *err);
/* The same in two steps. */
bool cf_open_inputs(const cf_options *o, cf_source *source, cf_err *err);
bool cf_read_opened(const cf_options *o, cf_scripts *scripts, cf_source *source, cf_catalogue *cat,
                    cf_err *err);
/* The texts of a block; NULL is empty. */
void cf_block_texts(cf_blocker *b, const cf_text *notes, const char *recipe, const char *format,
                    const char *why);

/* As many files open at a time as the system lets us: one for each rank file and each output. */
void cf_raise_descriptors(void);

#endif
