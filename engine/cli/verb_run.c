/* run: plan in the child, check, write, rename. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "execute.h"
#include "journal.h"
#include "memory.h"
#include "output.h"
#include "print.h"
#include "progress.h"
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

/* held: bytes on disk of the partial output of a run before. */
static bool enough_space(const char *out, const cf_price *price, uint64_t n_tensors, uint64_t held,
                         cf_err *err)
{
    uint64_t free_bytes;
    if (!cf_free_space(out, &free_bytes, err)) return false;
    /* and the manifest, some 400 bytes a tensor */
    uint64_t more = price->written + price->scratch + 400 * n_tensors;
    more -= held < price->written ? held : price->written;
    if (more <= free_bytes) return true;
    cf_text need = {0}, have = {0};
    cf_text_size(&need, more);
    cf_text_size(&have, free_bytes);
    cf_fail(err, CF_E_SPACE, "%s are needed, %s are free", need.at, have.at);
    cf_text_free(&need);
    cf_text_free(&have);
    return false;
}

static void show_result(const cf_options *o, const char *out, const cf_block *b,
                        const cf_outcome *done, double seconds, cf_text *text)
{
    if (o->json) {
        cf_text_str(text, "{\"schema\":\"ckptflow.run/1\",\"out\":");
        cf_text_json(text, out, strlen(out));
        cf_text_printf(text,
                       ",\"read\":%llu,\"requests\":%llu,\"written\":%llu,\"read_back\":%llu,"
                       "\"memory\":%llu,\"windows\":%llu,\"resumed\":%llu,\"seconds\":%.3f,"
                       "\"files\":[",
                       (unsigned long long)done->read, (unsigned long long)done->requests,
                       (unsigned long long)done->written, (unsigned long long)done->read_back,
                       (unsigned long long)cf_memory_largest(cf_memory_peak()),
                       (unsigned long long)done->windows, (unsigned long long)done->found, seconds);
        for (uint64_t i = 0; i < b->n_files; i++) {
            cf_text_str(text, i ? ",{\"path\":" : "{\"path\":");
            cf_text_json(text, cf_block_text(b, b->files[i].path), b->files[i].path.size);
            cf_text_printf(text, ",\"size\":%llu}", (unsigned long long)b->files[i].size);
        }
        cf_text_str(text, "],");
        cf_add_notes(text, cf_block_text(b, b->head->text[CF_B_NOTES]));
        cf_text_printf(text,
                       ",\"tensors\":{\"crc-verified\":%llu,\"replica-compared\":%llu,"
                       "\"unverified\":%llu}}\n",
                       (unsigned long long)done->n_checked[CF_CRC_VERIFIED],
                       (unsigned long long)done->n_checked[CF_REPLICA_COMPARED],
                       (unsigned long long)done->n_checked[CF_UNVERIFIED]);
        return;
    }
    cf_text_shown(text, out, strlen(out));
    cf_text_str(text, "\n");
    for (uint64_t i = 0; i < b->n_files; i++) {
        cf_text size = {0};
        cf_text_size(&size, b->files[i].size);
        cf_text_printf(text, "%12s  ", size.at ? size.at : "");
        cf_text_shown(text, cf_block_text(b, b->files[i].path), b->files[i].path.size);
        cf_text_str(text, "\n");
        cf_text_free(&size);
    }
    cf_text_printf(text, "%llu tensors:", (unsigned long long)b->n_tensors);
    static const char *const HOW[] = {"unverified", "CRC verified", "replicas compared"};
    static const cf_checked ORDER[] = {CF_CRC_VERIFIED, CF_REPLICA_COMPARED, CF_UNVERIFIED};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        if (!done->n_checked[ORDER[i]]) continue;
        cf_text_printf(text, "%s %llu %s", any ? "," : "",
                       (unsigned long long)done->n_checked[ORDER[i]], HOW[ORDER[i]]);
        any = true;
    }
    cf_text_str(text, any ? "; " : " none; ");
    cf_text_size(text, done->written);
    cf_text_printf(text, " in %.2f s\n", seconds);
    if (done->found)
        cf_text_printf(text, "%llu of %llu windows were done before\n",
                       (unsigned long long)done->found, (unsigned long long)done->windows);
    if (done->read_back) {
        cf_text_size(text, done->read_back);
        cf_text_str(text, " read back as written\n");
    }
}

static bool fill_sink(const cf_execution *x, cf_sink *sink, const char *out, const cf_price *price,
                      cf_outcome *outcome, cf_err *err)
{
    if (!enough_space(out, price, x->block->n_tensors, x->journal->held, err) ||
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

/* -v: what the run worked with, for whoever wonders why it is slow. */
static void print_means(const cf_means *m, const cf_outcome *done)
{
    static const char *const WAYS[] = {"auto", "pread", "mmap", "direct"};
    cf_text text = {0};
    cf_text_printf(&text, "%d thread%s, %s, tiles of ", m->threads, m->threads > 1 ? "s" : "",
                   WAYS[m->io]);
    cf_text_size(&text, m->tile);
    if (m->tall > m->tile) {
        cf_text_str(&text, " (transposed: up to ");
        cf_text_size(&text, m->tall);
        cf_text_str(&text, ")");
    }
    cf_text_str(&text, ", buffers of ");
    cf_text_size(&text, m->memory);
    cf_text_printf(&text, "; %llu requests", (unsigned long long)done->requests);
    if (done->plain)
        cf_text_printf(
            &text, "\n%llu file%s on a file system that cannot do --io %s: read by pread",
            (unsigned long long)done->plain, done->plain > 1 ? "s lie" : " lies", WAYS[m->io]);
    if (text.at) cf_print_notes(text.at);
    cf_text_free(&text);
}

static bool write_out(const cf_options *o, const char *out, const cf_block *block, cf_err *err)
{
    cf_price price;
    cf_means means;
    if (!cf_means_fit(&means, block, o->threads, o->io, o->max_mem, err)) return false;
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
    if (ok && o->verbose) print_means(&means, &outcome);
    if (ok) {
        cf_text text = {0};
        show_result(o, out, block, &outcome, seconds, &text);
        cf_err lost; /* the output is there: that nobody reads of it is no failure of the run */
        if (!cf_print_out(&text, &lost))
            cf_print_notes("the output is complete, but stdout takes no result");
        cf_text_free(&text);
    }
    cf_outcome_free(&outcome);
    cf_journal_close(&journal);
    return ok;
}

bool cf_verb_run(const cf_options *o, cf_err *err)
{
    char out[PATH_MAX];
    cf_reply reply;
    cf_block block;
    if (!cf_output_path(o, out, err) || !cf_sink_check(out, o->overwrite, err) ||
        !cf_unpack_inputs(o, out, err))
        return false;
    bool ok = cf_block_job(cf_job_plan, o, o, &reply, &block, err);
    if (ok && !block.n_files) ok = cf_fail(err, CF_E_USAGE, "the plan writes nothing");
    ok = ok && enough_descriptors(&block, err) && write_out(o, out, &block, err);
    cf_reply_free(&reply);
    return ok;
}
