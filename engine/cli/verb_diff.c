/* diff: names, shapes, dtypes and values of two checkpoints; exit 1 where they differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "print.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

enum { MOST_SHOWN = 50 }; /* lines for people; with -v and in JSON all */

/* ---- the planner's part ---- */

typedef struct asking {
    const cf_options *o;
    const cf_tolerance *tolerance;
} asking;

typedef struct checkpoint {
    cf_source source;
    cf_catalogue cat;
} checkpoint;

/* "A,B": a format for each. */
static const char *format_of(const cf_options *o, int side, char *room, size_t size)
{
    const char *comma = o->format ? strchr(o->format, ',') : NULL;
    if (!comma) return o->format;
    const int n = side ? (int)strlen(comma + 1) : (int)(comma - o->format);
    snprintf(room, size, "%.*s", n, side ? comma + 1 : o->format);
    return room;
}

static bool read_both(const cf_options *o, cf_scripts *scripts, checkpoint *both, cf_err *err)
{
    static char formats[2][128];
    if (!cf_scripts_find(scripts, o->plugins.list, o->plugins.count, err)) return false;
    cf_options one = *o;
    one.include.fits = calloc((size_t)o->include.count + 1, sizeof(bool)); /* the process ends */
    one.exclude.fits = calloc((size_t)o->exclude.count + 1, sizeof(bool));
    if (!one.include.fits || !one.exclude.fits) return cf_fail(err, CF_E_MEMORY, "out of memory");
    for (int i = 0; i < 2; i++) {
        one.inputs = o->inputs + i;
        one.n_inputs = 1;
        one.format = format_of(o, i, formats[i], sizeof formats[i]);
        if (i) one.rename.count = 0; /* A's keys become B's */
        if (!cf_read_inputs(&one, scripts, &both[i].source, &both[i].cat, err)) {
            cf_text file = {0}; /* which of the two */
            cf_text_printf(&file, "%s%s%s", o->inputs[i], err->file[0] ? "/" : "", err->file);
            if (file.at) snprintf(err->file, sizeof err->file, "%.255s", file.at);
            cf_text_free(&file);
            return false;
        }
    }
    const cf_filter filter = cf_options_filter(&one);
    return cf_filter_fit(&filter, err);
}

bool cf_job_diff(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    static cf_scripts scripts; /* notes of what was not reached are empty */
    static checkpoint both[2];
    const asking *ask = ctx;
    cf_catalogue *const cats[] = {&both[0].cat, &both[1].cat};
    const double tolerance = ask->tolerance->kind == CF_TOL_ABS ? ask->tolerance->most : 0;
    cf_blocker b = {0};
    const bool ok =
        read_both(ask->o, &scripts, both, err) && cf_diff_plan(cats, tolerance, &b, err);
    cf_text_add(notes, scripts.notes.at, scripts.notes.size);
    for (int i = 0; i < 2; i++) {
        const cf_text *all[] = {&both[i].source.notes, &both[i].cat.notes};
        for (size_t k = 0; k < 2; k++) cf_text_add(notes, all[k]->at, all[k]->size);
    }
    for (int i = 0; !ok && !out->size && i < 2; i++)
        cf_text_add(out, both[i].cat.losses.at, both[i].cat.losses.size);
    if (!ok) return false;
    cf_block_texts(&b, notes, "diff", cats[0]->format, cats[1]->format);
    return cf_blocker_finish(&b, out, err);
}

/* ---- what it came to ---- */

typedef enum verdict {
    IDENTICAL, /* to the bit */
    EQUAL,     /* by value: another dtype, zeros of two signs ... */
    WITHIN,    /* the tolerance */
    DIFFERS,
    SHAPES,
    KINDS,
    VALUE_EQUAL,
    VALUE_DIFFERS,
    ONLY_A,
    ONLY_B,
    RENAMED,       /* of A; B's pair is not told again */
    RENAMED_OTHER, /* B's */
    COPY,
    VERDICTS
} verdict;

static const char *const WORDS[VERDICTS] = {
    "identical", "equal",  "within-tolerance", "differs", "shape",   "kind", "value-equal",
    "value",     "only-a", "only-b",           "renamed", "renamed", "copy"};

static bool is_difference(verdict v)
{
    return v == DIFFERS || v == SHAPES || v == KINDS || v == VALUE_DIFFERS || v == ONLY_A ||
           v == ONLY_B || v == RENAMED;
}

static verdict judge(const cf_block *b, const cf_differences *d, uint64_t i)
{
    const cf_b_pair *p = &b->pairs[i];
    const cf_difference *f = &d->pairs[i];
    switch ((cf_pair_kind)p->kind) {
    case CF_PAIR_TENSORS:
        if (f->beyond) return DIFFERS;
        if (f->unequal) return WITHIN;
        return f->bits || p->dtype[0] != p->dtype[1] ? EQUAL : IDENTICAL;
    case CF_PAIR_SHAPES: return SHAPES;
    case CF_PAIR_KINDS: return KINDS;
    case CF_PAIR_EQUAL: return VALUE_EQUAL;
    case CF_PAIR_VALUES: return VALUE_DIFFERS;
    case CF_PAIR_COPY: return COPY;
    case CF_PAIR_ALONE: break;
    }
    if (d->renamed[i] != CF_B_NONE) return p->in_b ? RENAMED_OTHER : RENAMED;
    return p->in_b ? ONLY_B : ONLY_A;
}

typedef struct summary {
    uint64_t counts[VERDICTS];
    verdict *of; /* by number of the pair */
    bool differs;
} summary;

/* ---- for people ---- */

static void add_key(cf_text *out, const cf_block *b, cf_ref key)
{
    cf_text_shown(out, cf_block_text(b, key), key.size);
}

static void add_form(cf_text *out, const cf_block *b, const cf_b_pair *p, int side)
{
    if (!p->dtype[side]) {
        cf_text_str(out, "a value");
        return;
    }
    cf_text_printf(out, "%s [", cf_dtype_of((cf_dtype)p->dtype[side])->name);
    for (int d = 0; d < p->ndim[side]; d++)
        cf_text_printf(out, d ? ", %lld" : "%lld",
                       (long long)b->numbers[p->dims[side] + (uint64_t)d]);
    cf_text_str(out, "]");
}

/* The place of element `at` of a row-major tensor. */
static void add_place(cf_text *out, const cf_block *b, const cf_b_pair *p, uint64_t at)
{
    int64_t place[CF_MOST_DIMS];
    for (int d = p->ndim[0] - 1; d >= 0; d--) {
        const uint64_t n = (uint64_t)b->numbers[p->dims[0] + (uint64_t)d];
        place[d] = n ? (int64_t)(at % n) : 0;
        if (n) at /= n;
    }
    cf_text_str(out, "[");
    for (int d = 0; d < p->ndim[0]; d++)
        cf_text_printf(out, d ? ",%lld" : "%lld", (long long)place[d]);
    cf_text_str(out, "]");
}

static void add_numbers(cf_text *out, const cf_block *b, const cf_b_pair *p, const cf_difference *f)
{
    if (f->unequal) {
        cf_text_printf(out, "  %llu of %llu elements, the first at ",
                       (unsigned long long)f->unequal, (unsigned long long)f->elements);
        add_place(out, b, p, f->first);
    }
    if (f->unequal > f->nan_a + f->nan_b) {
        cf_text_printf(out, "; max abs %.6g at ", f->max_abs);
        add_place(out, b, p, f->max_at);
        cf_text_printf(out, " (%.9g / %.9g), max rel %.6g, max ulp %.0f", f->a, f->b, f->max_rel,
                       f->max_ulp);
    }
    if (f->nan_a || f->nan_b)
        cf_text_printf(out, "; NaN in A alone %llu, in B alone %llu, in both %llu",
                       (unsigned long long)f->nan_a, (unsigned long long)f->nan_b,
                       (unsigned long long)f->nan_both);
    if (f->bits)
        cf_text_printf(out, "  %llu of %llu elements equal, but not to the bit",
                       (unsigned long long)f->bits, (unsigned long long)f->elements);
}

static void show_pair(cf_text *out, const cf_block *b, const cf_differences *d, const summary *s,
                      uint64_t i)
{
    const cf_b_pair *p = &b->pairs[i];
    const verdict v = s->of[i];
    cf_text_printf(out, "%-16s ", WORDS[v]);
    add_key(out, b, p->in_b && v != RENAMED ? p->key[1] : p->key[0]);
    switch (v) {
    case IDENTICAL:
    case EQUAL:
    case WITHIN:
    case DIFFERS:
        cf_text_str(out, "  ");
        add_form(out, b, p, 0);
        if (p->dtype[0] != p->dtype[1])
            cf_text_printf(out, " / %s", cf_dtype_of((cf_dtype)p->dtype[1])->name);
        add_numbers(out, b, p, &d->pairs[i]);
        break;
    case SHAPES:
    case KINDS:
        cf_text_str(out, "  ");
        add_form(out, b, p, 0);
        cf_text_str(out, " / ");
        add_form(out, b, p, 1);
        break;
    case VALUE_DIFFERS:
        cf_text_str(out, "  ");
        add_key(out, b, p->what);
        break;
    case RENAMED:
        cf_text_str(out, " is ");
        add_key(out, b, b->pairs[d->renamed[i]].key[1]);
        cf_text_str(out, " in B, the same bytes");
        break;
    default: break;
    }
    cf_text_str(out, "\n");
}

static bool worth_telling(const cf_options *o, verdict v)
{
    if (v == RENAMED_OTHER) return false;
    return o->verbose || (v != IDENTICAL && v != VALUE_EQUAL && v != COPY);
}

static void show_text(const cf_options *o, const cf_block *b, const cf_differences *d,
                      const summary *s, double seconds, cf_text *out)
{
    for (int side = 0; side < 2; side++) {
        cf_text_printf(out, "%c: ", "AB"[side]);
        cf_text_shown(out, o->inputs[side], strlen(o->inputs[side]));
        cf_text_printf(out, " (%s)\n",
                       cf_block_text(b, b->head->text[side ? CF_B_WHY : CF_B_FORMAT]));
    }
    uint64_t shown = 0, more = 0;
    for (uint64_t i = 0; i < b->n_pairs; i++) {
        if (!worth_telling(o, s->of[i])) continue;
        if (shown < MOST_SHOWN || o->verbose) {
            show_pair(out, b, d, s, i);
            shown++;
        } else {
            more++;
        }
    }
    if (more) cf_text_printf(out, "... and %llu more; -v shows all\n", (unsigned long long)more);
    static const struct {
        verdict v;
        const char *one, *many;
    } LINES[] = {
        {IDENTICAL, "tensor identical to the bit", "tensors identical to the bit"},
        {EQUAL, "equal by value", "equal by value"},
        {WITHIN, "within the tolerance", "within the tolerance"},
        {DIFFERS, "differs", "differ"},
        {SHAPES, "of another shape", "of another shape"},
        {KINDS, "a tensor in one, a value in the other", "tensors in one, values in the other"},
        {RENAMED, "renamed", "renamed"},
        {VALUE_EQUAL, "value equal", "values equal"},
        {VALUE_DIFFERS, "value differs", "values differ"},
        {ONLY_A, "only in A", "only in A"},
        {ONLY_B, "only in B", "only in B"},
        {COPY, "low-precision copy in one of them, not compared",
         "low-precision copies in one of them, not compared"}};
    bool any = false;
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        const uint64_t n = s->counts[LINES[i].v];
        if (!n) continue;
        cf_text_printf(out, "%s%llu %s", any ? ", " : "", (unsigned long long)n,
                       n == 1 ? LINES[i].one : LINES[i].many);
        any = true;
    }
    cf_text_str(out, any ? "; " : "nothing in them; ");
    cf_text_size(out, d->read);
    cf_text_printf(out, " read in %.2f s\n", seconds);
    cf_text_str(out, s->differs ? "they differ\n" : "no difference\n");
}

/* ---- for programs ---- */

static void add_real(cf_text *out, const char *name, double value)
{
    cf_text_printf(out, ",\"%s\":", name);
    if (isnan(value))
        cf_text_str(out, "{\"$float\":\"nan\"}");
    else if (isinf(value))
        cf_text_printf(out, "{\"$float\":\"%sinf\"}", value < 0 ? "-" : "");
    else
        cf_text_printf(out, "%.17g", value);
}

static void add_json_key(cf_text *out, const cf_block *b, const char *name, cf_ref key)
{
    cf_text_printf(out, ",\"%s\":", name);
    cf_text_json(out, cf_block_text(b, key), key.size);
}

static void add_json_pair(cf_text *out, const cf_block *b, const cf_differences *d,
                          const summary *s, uint64_t i)
{
    const cf_b_pair *p = &b->pairs[i];
    const cf_difference *f = &d->pairs[i];
    const verdict v = s->of[i];
    cf_text_printf(out, "{\"kind\":\"%s\"", WORDS[v]);
    if (!p->in_b || v == RENAMED)
        add_json_key(out, b, "key", p->key[0]);
    else
        add_json_key(out, b, "key", p->key[1]);
    const bool two = p->kind != CF_PAIR_ALONE && p->kind != CF_PAIR_COPY;
    if (two && strcmp(cf_block_text(b, p->key[0]), cf_block_text(b, p->key[1])) != 0)
        add_json_key(out, b, "other", p->key[1]);
    if (v == RENAMED) add_json_key(out, b, "other", b->pairs[d->renamed[i]].key[1]);
    static const char *const DTYPES[] = {"dtype", "other_dtype"};
    static const char *const SHAPES_OF[] = {"shape", "other_shape"};
    for (int side = 0; side < 2; side++) {
        const int from = p->in_b && !two ? 1 : side;
        if (!p->dtype[from] || (side && !two)) continue;
        cf_text_printf(out, ",\"%s\":\"%s\",\"%s\":[", DTYPES[side],
                       cf_dtype_of((cf_dtype)p->dtype[from])->name, SHAPES_OF[side]);
        for (int k = 0; k < p->ndim[from]; k++)
            cf_text_printf(out, k ? ",%lld" : "%lld",
                           (long long)b->numbers[p->dims[from] + (uint64_t)k]);
        cf_text_str(out, "]");
    }
    if (v == VALUE_DIFFERS) add_json_key(out, b, "what", p->what);
    if (p->kind == CF_PAIR_TENSORS) {
        cf_text_printf(out,
                       ",\"elements\":%llu,\"unequal\":%llu,\"beyond\":%llu,\"bits\":%llu,"
                       "\"nan_a\":%llu,\"nan_b\":%llu,\"nan_both\":%llu",
                       (unsigned long long)f->elements, (unsigned long long)f->unequal,
                       (unsigned long long)f->beyond, (unsigned long long)f->bits,
                       (unsigned long long)f->nan_a, (unsigned long long)f->nan_b,
                       (unsigned long long)f->nan_both);
        add_real(out, "max_abs", f->max_abs);
        add_real(out, "max_rel", f->max_rel);
        add_real(out, "max_ulp", f->max_ulp);
        if (f->unequal)
            cf_text_printf(out, ",\"first\":%llu,\"max_at\":%llu", (unsigned long long)f->first,
                           (unsigned long long)f->max_at);
    }
    cf_text_str(out, "}");
}

static void show_json(const cf_options *o, const cf_block *b, const cf_differences *d,
                      const summary *s, double seconds, cf_text *out)
{
    cf_difference all = {0};
    for (uint64_t i = 0; i < b->n_pairs; i++)
        if (b->pairs[i].kind == CF_PAIR_TENSORS) cf_difference_join(&all, &d->pairs[i]);
    cf_text_str(out, "{\"schema\":\"ckptflow.diff/1\"");
    add_json_key(out, b, "a_format", b->head->text[CF_B_FORMAT]);
    add_json_key(out, b, "b_format", b->head->text[CF_B_WHY]);
    cf_text_printf(out, ",\"equal\":%s,\"seconds\":%.3f,\"read\":%llu",
                   s->differs ? "false" : "true", seconds, (unsigned long long)d->read);
    const uint64_t *n = s->counts;
    cf_text_printf(out,
                   ",\"tensors\":{\"compared\":%llu,\"identical\":%llu,\"equal\":%llu,"
                   "\"within\":%llu,\"differ\":%llu,\"shape\":%llu,\"kind\":%llu},"
                   "\"values\":{\"equal\":%llu,\"differ\":%llu},"
                   "\"only_a\":%llu,\"only_b\":%llu,\"renamed\":%llu,\"copies\":%llu",
                   (unsigned long long)(n[IDENTICAL] + n[EQUAL] + n[WITHIN] + n[DIFFERS]),
                   (unsigned long long)n[IDENTICAL], (unsigned long long)n[EQUAL],
                   (unsigned long long)n[WITHIN], (unsigned long long)n[DIFFERS],
                   (unsigned long long)n[SHAPES], (unsigned long long)n[KINDS],
                   (unsigned long long)n[VALUE_EQUAL], (unsigned long long)n[VALUE_DIFFERS],
                   (unsigned long long)n[ONLY_A], (unsigned long long)n[ONLY_B],
                   (unsigned long long)n[RENAMED], (unsigned long long)n[COPY]);
    add_real(out, "max_abs", all.max_abs);
    add_real(out, "max_rel", all.max_rel);
    add_real(out, "max_ulp", all.max_ulp);
    cf_text_str(out, ",\"differences\":[");
    bool first = true;
    for (uint64_t i = 0; i < b->n_pairs; i++) {
        if (!worth_telling(o, s->of[i])) continue;
        cf_text_str(out, first ? "\n" : ",\n");
        add_json_pair(out, b, d, s, i);
        first = false;
    }
    cf_text_str(out, "],");
    cf_add_notes(out, cf_block_text(b, b->head->text[CF_B_NOTES]));
    cf_text_str(out, "}\n");
}

/* ---- all ---- */

/* "1e-3", "0.1%" or "2ulp". */
static bool parse_tolerance(const char *text, cf_tolerance *t, cf_err *err)
{
    char *end;
    const double most = strtod(text, &end);
    const bool number = end != text && most >= 0 && !isinf(most);
    *t = (cf_tolerance){.kind = CF_TOL_ABS, .most = most};
    if (number && !*end) return true;
    if (number && strcmp(end, "%") == 0) {
        *t = (cf_tolerance){.kind = CF_TOL_REL, .most = most / 100};
        return true;
    }
    t->kind = CF_TOL_ULP;
    if (number && strcmp(end, "ulp") == 0) return true;
    return cf_fail(err, CF_E_USAGE, "--tol takes 1e-3, 0.1%% or 2ulp, not '%s'", text);
}

static bool sum_up(const cf_block *b, const cf_differences *d, cf_arena *arena, summary *s,
                   cf_err *err)
{
    s->of = CF_NEWS(arena, verdict, b->n_pairs + 1);
    for (uint64_t i = 0; s->of && i < b->n_pairs; i++) {
        s->of[i] = judge(b, d, i);
        s->counts[s->of[i]]++;
        s->differs |= is_difference(s->of[i]);
    }
    return cf_arena_ok(arena, err);
}

static bool compare(const cf_options *o, const cf_block *b, const cf_tolerance *tolerance,
                    cf_err *err)
{
    cf_means means;
    cf_meter meter;
    cf_differences d;
    summary s = {0};
    if (!cf_means_fit(&means, b, o->threads, o->io, o->max_mem, err)) return false;
    const cf_execution x = {.block = b,
                            .means = &means,
                            .roots = o->inputs,
                            .n_roots = o->n_roots,
                            .threads = means.threads,
                            .progress = &meter.progress,
                            .stop = &cf_stop_signal};
    uint64_t total = 0;
    for (uint64_t i = 0; i < b->n_chunks; i++) total += b->chunks[i].end - b->chunks[i].begin;
    cf_meter_start(&meter, o, total);
    bool ok = cf_diff(&x, tolerance, &d, err);
    const double seconds = cf_meter_seconds(&meter);
    cf_meter_stop(&meter);
    if (ok && sum_up(b, &d, &d.arena, &s, err)) {
        cf_text text = {0};
        (o->json ? show_json : show_text)(o, b, &d, &s, seconds, &text);
        ok = cf_print_out(&text, err);
        cf_text_free(&text);
        if (ok && s.differs) cf_verb_status = 1;
    }
    cf_differences_free(&d);
    return ok;
}

bool cf_verb_diff(const cf_options *o, cf_err *err)
{
    cf_reply reply;
    cf_block block;
    cf_tolerance tolerance = {CF_TOL_ABS, 0};
    if (o->n_inputs != 2) return cf_fail(err, CF_E_USAGE, "diff takes two checkpoints");
    if (o->tol && !parse_tolerance(o->tol, &tolerance, err)) return false;
    const asking ask = {.o = o, .tolerance = &tolerance};
    bool ok = cf_block_job(cf_job_diff, &ask, o, &reply, &block, err);
    cf_raise_descriptors();
    ok = ok && compare(o, &block, &tolerance, err);
    cf_reply_free(&reply);
    return ok;
}
