/* run --rank R/N: one share of a run that several processes carry out, each with the same command
 * but for R, in any order, at one time or one after another, on one machine or on many.
 *
 * Nobody waits and nobody leads. A share is written, synced and said to be done; then whoever sees
 * that all are done, and is alone with the folder, finishes the output. Of two that are through at
 * the same moment at least one sees both, as each says so before it looks.
 */
#include <stdio.h>
#include <string.h>

#include "journal.h"
#include "memory.h"
#include "print.h"
#include "progress.h"
#include "run_result.h"
#include "signals.h"

typedef struct sharing {
    const cf_options *o;
    const char *out;
    cf_execution x;
    cf_sink sink;
    cf_journal own;
    cf_outcome outcome;
    cf_shares result;
    double seconds;
} sharing;

/* Stopped, or out of something: what is there is worth going on with. */
static bool may_go_on(const cf_err *err)
{
    return err->code == CF_E_INTERRUPTED || err->code == CF_E_SPACE || err->code == CF_E_IO ||
           err->code == CF_E_MEMORY;
}

/* After a failure: the folder goes if nothing is in it but what this process cannot go on with. */
static void leave(sharing *s, bool last, cf_err *err)
{
    const bool only = last || (cf_journal_only(&s->own, &s->sink) && cf_sink_alone(&s->sink));
    const bool resume =
        may_go_on(err) && (err->code == CF_E_INTERRUPTED || s->own.finished || !only);
    if (only && !resume) {
        cf_sink_discard(&s->sink);
        return;
    }
    err->resumable = resume;
    if (!err->hint[0])
        cf_err_hint(err,
                    resume ? "the same command goes on"
                           : "what other shares wrote is left in %s.ckptflow-partial",
                    s->out);
    cf_sink_leave(&s->sink);
}

static bool stopped(cf_err *err)
{
    if (!cf_stop_signal) return false;
    cf_fail(err, CF_E_INTERRUPTED, "stopped by signal %d", (int)cf_stop_signal);
    return true;
}

static bool write_share(sharing *s, cf_err *err)
{
    cf_price price;
    cf_meter meter;
    const uint64_t bytes = cf_share_bytes(s->x.block, s->o->share);
    cf_block_space(s->x.block, &price);
    s->x.share = s->o->share;
    s->x.journal = &s->own;
    s->x.progress = &meter.progress;
    cf_meter_start(&meter, s->o, s->o->verify ? 2 * bytes : bytes);
    const bool ok = cf_enough_space(s->out, &price, s->x.block->n_tensors, s->own.held, err) &&
                    cf_execute(&s->x, &s->sink, &s->outcome, err) && !stopped(err) &&
                    cf_journal_finish(&s->own, &s->sink, err);
    s->seconds = cf_meter_seconds(&meter);
    cf_meter_stop(&meter);
    s->x.progress = NULL;
    return ok;
}

/* Only for who is alone and saw all shares done. */
static bool finish(sharing *s, cf_journal *all, cf_err *err)
{
    cf_outcome whole;
    s->x.share = (cf_share){0, 0};
    s->x.journal = all;
    bool ok = cf_execute_last(&s->x, &s->sink, &whole, err) &&
              cf_manifest_write(&s->x, &whole, &s->sink, err) && !stopped(err) &&
              cf_journal_clear(all, &s->sink, s->x.block, err) &&
              cf_sink_commit(&s->sink, s->x.fsync, err);
    if (ok) {
        s->outcome.written = whole.written;
        memcpy(s->outcome.n_checked, whole.n_checked, sizeof whole.n_checked);
    }
    cf_outcome_free(&whole);
    s->result.complete = ok;
    return ok;
}

/* missing: by share. Nothing is left to do where another is at it. */
static bool look_round(sharing *s, bool *missing, bool *last, cf_err *err)
{
    cf_journal all;
    cf_sink_rest(&s->sink);
    CF_TRY(cf_journal_collect(&all, &s->sink, s->x.block, s->o->share, missing, err));
    bool any = false, ok = true;
    for (uint32_t i = 0; i < s->o->share.of; i++) any |= missing[i];
    /* without this one's own the folder is being emptied by who finishes */
    if (any && !missing[s->o->share.rank] && !cf_sink_gone(&s->sink))
        s->result.missing = missing;
    else if (!any && (*last = cf_sink_alone(&s->sink)))
        ok = finish(s, &all, err);
    cf_journal_close(&all);
    return ok;
}

bool cf_run_share(const cf_options *o, const char *out, const cf_block *block,
                  const cf_means *means, cf_err *err)
{
    sharing s = {.o = o,
                 .out = out,
                 .x = {.block = block,
                       .roots = o->inputs,
                       .n_roots = o->n_roots,
                       .threads = means->threads,
                       .means = means,
                       .fsync = o->fsync,
                       .verify = o->verify,
                       .stop = &cf_stop_signal}};
    bool missing[CF_MOST_SHARES], last = false;
    CF_TRY(cf_sink_join(&s.sink, out, o->overwrite, err));
    if (!cf_journal_join(&s.own, &s.sink, block, o->share, err)) {
        cf_sink_leave(&s.sink);
        return false;
    }
    s.result.before = s.own.done;
    bool ok = (s.own.done || write_share(&s, err)) && look_round(&s, missing, &last, err);
    if (!ok)
        leave(&s, last, err);
    else if (s.result.complete)
        cf_sink_discard(&s.sink);
    else
        cf_sink_leave(&s.sink);
    if (ok && o->verbose) cf_print_means(means, &s.outcome);
    if (ok) {
        cf_text text = {0};
        cf_err lost; /* what was done is done: that nobody reads of it is no failure */
        cf_show_run(&text, o, out, block, &s.outcome, s.seconds, &s.result);
        if (!cf_print_out(&text, &lost))
            cf_print_notes("the share is complete, but stdout takes no result");
        cf_text_free(&text);
    }
    cf_outcome_free(&s.outcome);
    cf_journal_close(&s.own);
    return ok;
}
