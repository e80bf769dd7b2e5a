/* verify: is it whole and sound? The faults that there are, all of them, and exit 1; a checkpoint
 * that cannot be read at all is the error that says why, with its own exit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"
#include "verify.h"

int cf_verb_status;

enum { MOST_SHOWN = 50 }; /* faults for people; with -v and in JSON all that were kept */

static const char *const HOW[CF_VERDICTS] = {"unverified", "crc-verified", "replica-compared",
                                             "damaged"};
static const char *const SAID[CF_VERDICTS] = {"unverified", "CRC verified", "replicas compared",
                                              "damaged"};
static const int ORDER[CF_VERDICTS] = {CF_CRC_VERIFIED, CF_REPLICA_COMPARED, CF_UNVERIFIED,
                                       CF_DAMAGED};

/* ---- the planner's part ---- */

typedef struct verifying {
    cf_scripts scripts;
    cf_source source;
    cf_catalogue cat;
    cf_faults faults;
} verifying;

/* *whole tells whether there is a catalogue; without, the faults say why. */
static bool read_all(const cf_options *o, verifying *v, bool *whole, cf_err *err)
{
    cf_faults_init(&v->faults);
    if (!cf_scripts_find(&v->scripts, o->plugins.list, o->plugins.count, err) ||
        !cf_open_inputs(o, &v->source, err))
        return false;
    v->source.faults = &v->faults;
    if (!cf_manifest_check(&v->source, err)) return false;
    const bool told = v->faults.count > 0; /* why there will be no catalogue */
    *whole = true;
    if (cf_read_opened(o, &v->scripts, &v->source, &v->cat, err)) return true;
    *whole = false;
    return told && cf_code_exit(err->code) == 4;
}

bool cf_job_verify(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    static verifying v; /* notes of what was not reached are empty */
    const cf_options *o = ctx;
    cf_blocker b = {0};
    bool whole = false;
    const bool ok = read_all(o, &v, &whole, err) && cf_verify_plan(&v.source, whole ? &v.cat : NULL,
                                                                   o->replicas, o->quick, &b, err);
    const cf_text *all[] = {&v.scripts.notes, &v.source.notes, &v.cat.notes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cf_text_add(notes, all[i]->at, all[i]->size);
    if (!ok) return false;
    cf_block_texts(&b, notes, "verify", v.cat.format, v.cat.why);
    return cf_blocker_finish(&b, out, err);
}

/* ---- what is printed ---- */

static void add_counts(cf_text *out, const cf_block *b, const cf_verdict *v)
{
    cf_text_printf(out, "%llu tensor%s:", (unsigned long long)b->n_subjects,
                   b->n_subjects == 1 ? "" : "s");
    bool any = false;
    for (int i = 0; i < CF_VERDICTS; i++) {
        if (!v->n_subjects[ORDER[i]]) continue;
        cf_text_printf(out, "%s %llu %s", any ? "," : "",
                       (unsigned long long)v->n_subjects[ORDER[i]], SAID[ORDER[i]]);
        any = true;
    }
    cf_text_str(out, any ? "\n" : " none\n");
}

static void show_text(const cf_options *o, const cf_block *b, const cf_verdict *v, double seconds,
                      cf_text *out)
{
    cf_text_printf(out, "%s: ", cf_block_text(b, b->head->text[CF_B_FORMAT]));
    cf_text_size(out, v->bytes);
    cf_text_printf(out, " in %llu file%s", (unsigned long long)b->n_sources,
                   b->n_sources == 1 ? "" : "s");
    if (o->quick) {
        cf_text_str(out, "; metadata only, no tensor was read\n");
    } else {
        cf_text_str(out, "; ");
        cf_text_size(out, v->read);
        cf_text_printf(out, " read in %.2f s, ", seconds);
        cf_text_size(out, v->bytes - v->all_covered);
        cf_text_printf(out, " (%llu bytes) %s\n", (unsigned long long)(v->bytes - v->all_covered),
                       o->sample ? "without a checksum or not in the sample"
                                 : "without a checksum");
    }
    for (uint64_t i = 0; o->verbose && i < b->n_subjects; i++) {
        cf_text_printf(out, "  %-16s ", HOW[v->subject[i]]);
        cf_text_shown(out, cf_block_text(b, b->subjects[i].key), b->subjects[i].key.size);
        cf_text_str(out, "\n");
    }
    add_counts(out, b, v);
    const size_t shown = o->verbose || v->faults.count < MOST_SHOWN ? v->faults.count : MOST_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        cf_err err = {0};
        cf_fault_error(&v->faults.list[i], &err);
        cf_add_error(out, &err);
    }
    if (v->faults.total > shown)
        cf_text_printf(out, "... and %llu more\n", (unsigned long long)(v->faults.total - shown));
    if (v->faults.total)
        cf_text_printf(out, "%llu fault%s\n", (unsigned long long)v->faults.total,
                       v->faults.total == 1 ? "" : "s");
    else
        cf_text_str(out, "no fault found\n");
}

static void add_field(cf_text *out, const char *name, const char *text)
{
    if (!*text) return;
    cf_text_printf(out, ",\"%s\":", name);
    cf_text_json(out, text, strlen(text));
}

static void show_json(const cf_options *o, const cf_block *b, const cf_verdict *v, double seconds,
                      cf_text *out)
{
    const cf_ref format = b->head->text[CF_B_FORMAT];
    cf_text_str(out, "{\"schema\":\"ckptflow.verify/1\",\"format\":");
    cf_text_json(out, cf_block_text(b, format), format.size);
    cf_text_printf(out, ",\"mode\":\"%s\",\"sound\":%s,\"seconds\":%.3f",
                   o->quick    ? "quick"
                   : o->sample ? "sample"
                               : "full",
                   v->faults.total ? "false" : "true", seconds);
    cf_text_printf(out, ",\"tensors\":{\"total\":%llu", (unsigned long long)b->n_subjects);
    for (int i = 0; i < CF_VERDICTS; i++)
        cf_text_printf(out, ",\"%s\":%llu", HOW[ORDER[i]],
                       (unsigned long long)v->n_subjects[ORDER[i]]);
    cf_text_printf(
        out, "},\"bytes\":{\"total\":%llu,\"read\":%llu,\"covered\":%llu,\"uncovered\":%llu}",
        (unsigned long long)v->bytes, (unsigned long long)v->read,
        (unsigned long long)v->all_covered, (unsigned long long)(v->bytes - v->all_covered));
    cf_text_str(out, ",\"files\":[");
    for (uint64_t i = 0; i < b->n_sources; i++) {
        cf_text_str(out, i ? ",\n{\"path\":" : "\n{\"path\":");
        cf_text_json(out, cf_block_text(b, b->sources[i].path), b->sources[i].path.size);
        cf_text_printf(out, ",\"size\":%llu,\"covered\":%llu,\"uncovered\":%llu}",
                       (unsigned long long)b->sources[i].size, (unsigned long long)v->covered[i],
                       (unsigned long long)(b->sources[i].size - v->covered[i]));
    }
    cf_text_str(out, "],\"checked\":[");
    for (uint64_t i = 0; i < b->n_subjects; i++) {
        cf_text_str(out, i ? ",\n{\"key\":" : "\n{\"key\":");
        cf_text_json(out, cf_block_text(b, b->subjects[i].key), b->subjects[i].key.size);
        cf_text_printf(out, ",\"checked\":\"%s\"}", HOW[v->subject[i]]);
    }
    cf_text_printf(out, "],\"fault_count\":%llu,\"faults\":[", (unsigned long long)v->faults.total);
    for (size_t i = 0; i < v->faults.count; i++) {
        const cf_fault *f = &v->faults.list[i];
        cf_text_printf(out, "%s\n{\"code\":\"%s\"", i ? "," : "", cf_code_name(f->code));
        add_field(out, "message", f->message);
        add_field(out, "hint", f->hint);
        add_field(out, "file", f->file);
        add_field(out, "member", f->member);
        if (f->offset >= 0) cf_text_printf(out, ",\"offset\":%lld", (long long)f->offset);
        cf_text_str(out, "}");
    }
    cf_text_str(out, "],");
    cf_add_notes(out, cf_block_text(b, b->head->text[CF_B_NOTES]));
    cf_text_str(out, "}\n");
}

/* ---- all ---- */

/* "5%": a twentieth, always the same; "2/20": the second of twenty that together are everything. */
static bool parse_sample(const char *text, cf_sample *sample, cf_err *err)
{
    char *end;
    const double a = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0 && a > 0 && a <= 100) {
        *sample = (cf_sample){0, a / 100};
        return true;
    }
    if (end != text && *end == '/') {
        const char *rest = end + 1;
        const double n = strtod(rest, &end);
        if (end != rest && !*end && n >= 1 && n <= 1e6 && n == (long)n && a == (long)a && a >= 1 &&
            a <= n) {
            *sample = (cf_sample){(a - 1) / n, a / n};
            return true;
        }
    }
    return cf_fail(err, CF_E_USAGE, "--sample takes 5%% or 2/20, not '%s'", text);
}

static bool look(const cf_options *o, const cf_block *b, const cf_sample *sample, cf_err *err)
{
    cf_meter meter;
    cf_means means;
    cf_verdict verdict;
    if (!cf_means_fit(&means, b, o->threads, o->io, o->max_mem, err)) return false;
    const cf_execution x = {.block = b,
                            .means = &means,
                            .roots = o->inputs,
                            .n_roots = o->n_roots,
                            .threads = means.threads,
                            .progress = &meter.progress,
                            .stop = &cf_stop_signal};
    uint64_t total = 0;
    for (uint64_t i = 0; i < b->n_units; i++) total += b->units[i].size;
    if (o->sample) total = (uint64_t)((double)total * (sample->to - sample->from));
    cf_meter_start(&meter, o, total);
    bool ok = cf_verify(&x,
                        o->quick    ? CF_LOOK_QUICK
                        : o->sample ? CF_LOOK_SAMPLE
                                    : CF_LOOK_FULL,
                        sample, &verdict, err);
    const double seconds = cf_meter_seconds(&meter);
    cf_meter_stop(&meter);
    if (ok) {
        cf_text text = {0};
        (o->json ? show_json : show_text)(o, b, &verdict, seconds, &text);
        ok = cf_print_out(&text, err);
        cf_text_free(&text);
        if (ok && verdict.faults.total) cf_verb_status = 1;
    }
    cf_verdict_free(&verdict);
    return ok;
}

bool cf_verb_verify(const cf_options *o, cf_err *err)
{
    cf_reply reply;
    cf_block block;
    cf_sample sample = {0, 1};
    if (!o->n_inputs) return cf_fail(err, CF_E_USAGE, "no checkpoint was named");
    if (o->quick && o->sample)
        return cf_fail(err, CF_E_USAGE, "--quick reads no tensor: there is nothing to sample");
    if (o->sample && !parse_sample(o->sample, &sample, err)) return false;
    bool ok = cf_block_job(cf_job_verify, o, o, &reply, &block, err);
    cf_raise_descriptors(); /* comparisons have many files open at a time */
    ok = ok && look(o, &block, &sample, err);
    cf_reply_free(&reply);
    return ok;
}
