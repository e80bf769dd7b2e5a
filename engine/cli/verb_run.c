/* run: plan in the child, check, write, rename. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "damage.h"
#include "execute.h"
#include "journal.h"
#include "output.h"
#include "print.h"
#include "progress.h"
#include "run_result.h"
#include "signals.h"
#include "verbs.h"

void cf_raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static bool enough_descriptors(const cf_block *b, cf_err *err)
{
    enum { OTHERS = 24 };
    struct rlimit limit;
    const uint64_t need = b->n_sources + b->n_files + OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || need <= limit.rlim_cur) return true;
    cf_fail(err, CF_E_IO, "%llu files are open at a time, %llu are allowed",
            (unsigned long long)need, (unsigned long long)limit.rlim_cur);
    return cf_err_hint(err, "ulimit -n sets how many");
}

static bool fill_sink(const cf_execution *x, cf_sink *sink, const char *out, const cf_price *price,
                      cf_outcome *outcome, cf_err *err)
{
    if (!cf_enough_space(out, price, x->block->n_tensors, x->journal->held, err) ||
        !cf_execute(x, sink, outcome, err) || !cf_manifest_write(x, outcome, sink, err))
        return false;
    if (cf_stop_signal)
        return cf_fail(err, CF_E_INTERRUPTED, "stopped by signal %d", (int)cf_stop_signal);
    return cf_sink_commit(sink, x->fsync, err);
}

/* Is what a failed run wrote worth keeping? Then the same command goes on with it. */
static bool worth_keeping(const cf_journal *journal, const cf_err *err)
{
    switch (err->code) {
    case CF_E_INTERRUPTED: return true;
    case CF_E_SPACE:
    case CF_E_IO:
    case CF_E_MEMORY: return journal->finished > 0;
    default: return false;
    }
}

static void tell_of_journal(const cf_journal *journal)
{
    const char *afresh = cf_journal_afresh(journal);
    cf_text note = {0};
    if (journal->state == CF_JOURNAL_RESUMED)
        cf_text_printf(&note, "goes on with the run that was stopped after %llu windows\n",
                       (unsigned long long)journal->finished);
    else if (afresh)
        cf_text_printf(&note, "begins afresh: %s\n", afresh);
    if (note.at) cf_print_notes(note.at);
    cf_text_free(&note);
}

/* damage: NULL, or takes what is damaged. */
static bool write_out(const cf_options *o, const char *out, const cf_block *block,
                      cf_damage *damage, cf_err *err)
{
    cf_price price;
    cf_means means;
    if (!cf_means_fit(&means, block, o->threads, o->io, o->max_mem, err)) return false;
    if (o->share.of) return cf_run_share(o, out, block, &means, err);
    cf_block_space(block, &price);
    cf_sink sink;
    cf_journal journal;
    if (!cf_sink_begin(&sink, out, o->overwrite, err)) return false;
    if (!cf_journal_open(&journal, &sink, block, err)) {
        cf_sink_discard(&sink);
        return false;
    }
    if (!o->quiet && !o->json) tell_of_journal(&journal);
    cf_meter meter;
    cf_outcome outcome = {0};
    const cf_execution x = {.block = block,
                            .roots = o->inputs,
                            .n_roots = o->n_roots,
                            .threads = means.threads,
                            .means = &means,
                            .fsync = o->fsync,
                            .verify = o->verify,
                            .journal = &journal,
                            .damage = damage,
                            .progress = &meter.progress,
                            .stop = &cf_stop_signal};
    cf_meter_start(&meter, o, o->verify ? 2 * price.written : price.written);
    const bool ok = fill_sink(&x, &sink, out, &price, &outcome, err);
    const double seconds = cf_meter_seconds(&meter);
    cf_meter_stop(&meter);
    if (!ok && worth_keeping(&journal, err)) {
        err->resumable = true;
        if (!err->hint[0]) cf_err_hint(err, "the same command goes on");
        cf_sink_leave(&sink);
    } else {
        cf_sink_discard(&sink);
    }
    if (ok && o->verbose) cf_print_means(&means, &outcome);
    if (ok) {
        cf_text text = {0};
        cf_show_run(&text, o, out, block, &outcome, seconds, NULL);
        cf_err lost; /* the output is there: that nobody reads of it is no failure of the run */
        if (!cf_print_out(&text, &lost))
            cf_print_notes("the output is complete, but stdout takes no result");
        cf_text_free(&text);
    }
    cf_outcome_free(&outcome);
    cf_journal_close(&journal);
    return ok;
}

static bool try(const cf_options *o, const char *out, cf_damage *damage, cf_err *err)
{
    cf_reply reply;
    cf_block block;
    bool ok = cf_block_job(cf_job_plan, o, o, &reply, &block, err);
    if (ok && !block.n_files) ok = cf_fail(err, CF_E_USAGE, "the plan writes nothing");
    ok = ok && enough_descriptors(&block, err) && write_out(o, out, &block, damage, err);
    cf_reply_free(&reply);
    return ok;
}

/* Once more without what is damaged, as long as more of it is found: only reading tells. A share
 * cannot, as all of them need one plan. */
static bool salvage(const cf_options *o, const char *out, cf_err *err)
{
    cf_options without = *o;
    cf_damage damage;
    cf_damage_init(&damage);
    bool ok, again;
    do {
        const size_t known = damage.count;
        without.damage = known ? &damage : NULL;
        cf_damage_begin(&damage);
        ok = try(&without, out, &damage, err);
        again = !ok && damage.found && damage.count > known && cf_code_exit(err->code) == 4;
        if (again && !o->quiet && !o->json)
            cf_print_notes("damaged data was met: planned again without it\n");
        if (again) *err = (cf_err){.offset = -1};
    } while (again);
    cf_damage_free(&damage);
    return ok;
}

bool cf_verb_run(const cf_options *o, cf_err *err)
{
    char out[PATH_MAX];
    if (!cf_output_path(o, out, err) || !cf_sink_check(out, o->overwrite, err) ||
        !cf_unpack_inputs(o, out, err))
        return false;
    return o->salvage && !o->share.of ? salvage(o, out, err) : try(o, out, NULL, err);
}
