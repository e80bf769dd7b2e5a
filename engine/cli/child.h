/* The other process: what reads checkpoints and runs scripts works in a child, and what it found
 * comes back as one sealed run of bytes or an error. Fork before any thread is made. The child is
 * confined (confine.h) to reading what the options name: inputs, plugins, recipe, values given to a
 * recipe; and the scripts of the search path. */
#ifndef CF_CHILD_H
#define CF_CHILD_H

#include "options.h"
#include "text.h"

/* A job that fails may leave lines for people in `notes`, and in `out` an object of JSON whose
 * fields become those of the error with --json. */
typedef bool cf_child_job(const void *ctx, cf_text *out, cf_text *notes, cf_err *err);

typedef struct cf_reply {
    void *map;
    size_t mapped;
    const void *bytes; /* what the job put into out; borrowed from the map */
    size_t size;
} cf_reply;

/* Runs job in a child and waits. False with the job's error, E_INTERNAL for a child that died, or
 * E_INTERRUPTED when cf_stop_signal was set meanwhile. Notes of a job that failed are printed,
 * unless the options say quiet or json; with verbose, why the child is not confined. */
bool cf_child_run(cf_child_job *job, const void *ctx, const cf_options *o, cf_reply *reply,
                  cf_err *err);
void cf_reply_free(cf_reply *reply);

#endif
