/* A file that is missing or cut takes pieces of many tensors with it: they are told together, by
 * tensor and box, not the first alone. Lists are bounded, counts are not. */
#include "losses.h"

#include <string.h>

#include "faults.h"
#include "num.h"
#include "save.h"

enum { MOST_SHOWN = 20, MOST_LISTED = 1000 };

/* "rows 4 to 5 of 8" where only dimension 0 is cut, else "[4:6, 0:3] of [8, 6]". */
static void add_box(cf_text *out, const cf_lost *lost, const cf_row *row)
{
    bool rows = lost->ndim > 0;
    for (int d = 1; rows && d < lost->ndim; d++) rows = lost->size[d] == row->shape[d];
    if (rows) {
        cf_text_printf(out, lost->size[0] > 1 ? " rows %lld to %lld" : " row %lld",
                       (long long)lost->at[0], (long long)(lost->at[0] + lost->size[0] - 1));
        cf_text_printf(out, " of %lld", (long long)row->shape[0]);
        return;
    }
    for (int d = 0; d < lost->ndim; d++)
        cf_text_printf(out, "%s%lld:%lld", d ? ", " : " [", (long long)lost->at[d],
                       (long long)(lost->at[d] + lost->size[d]));
    if (lost->ndim) cf_text_str(out, "]");
}

/* Marks the rows with a loss; how many there are. A lost value has no values any more. */
static size_t mark(cf_catalogue *cat)
{
    size_t n = 0;
    for (size_t i = 0; i < cat->n_lost; i++) {
        cf_row *row = cf_catalogue_find(cat, cat->lost[i].key);
        if (!row) continue;
        n += !row->broken;
        row->broken = true;
    }
    return n;
}

static bool there(const cf_row *row)
{
    return !row->broken && (row->dtype != CF_NO_DTYPE || row->n_values);
}

static void add_lists(cf_catalogue *cat)
{
    cf_text *out = &cat->notes;
    size_t n = 0, whole = 0;
    for (size_t i = 0; i < cat->n_lost && i < MOST_SHOWN; i++) {
        const cf_lost *lost = &cat->lost[i];
        const cf_row *row = cf_catalogue_find(cat, lost->key);
        cf_text_str(out, "lost: ");
        cf_text_shown(out, lost->key, strlen(lost->key));
        if (row && lost->size) add_box(out, lost, row);
        cf_text_str(out, " (");
        cf_text_shown(out, lost->why->path, strlen(lost->why->path));
        cf_text_str(out, ")\n");
    }
    if (cat->n_lost > MOST_SHOWN)
        cf_text_printf(out, "lost: ... and %zu more\n", cat->n_lost - MOST_SHOWN);
    for (size_t i = 0; i < cat->count; i++) whole += there(cat->rows[i]);
    if (!whole) return;
    cf_text_str(out, "whole: ");
    for (size_t i = 0; i < cat->count && n < MOST_SHOWN; i++) {
        if (!there(cat->rows[i])) continue;
        if (n++) cf_text_str(out, ", ");
        cf_text_shown(out, cat->rows[i]->key, strlen(cat->rows[i]->key));
    }
    if (whole > n) cf_text_printf(out, " and %zu more", whole - n);
    cf_text_str(out, "\n");
}

/* {"key":...,"file":...,"at":[...],"shape":[...]}; a value has no box. */
static void add_json_loss(cf_text *out, const cf_lost *lost)
{
    cf_text_str(out, "{\"key\":");
    cf_text_json(out, lost->key, strlen(lost->key));
    cf_text_str(out, ",\"file\":");
    cf_text_json(out, lost->why->path, strlen(lost->why->path));
    for (int k = 0; lost->size && k < 2; k++) {
        cf_text_str(out, k ? "],\"shape\":[" : ",\"at\":[");
        for (int d = 0; d < lost->ndim; d++)
            cf_text_printf(out, d ? ",%lld" : "%lld", (long long)(k ? lost->size : lost->at)[d]);
    }
    cf_text_str(out, lost->size ? "]}" : "}");
}

/* The lists for programs: longer, and counted as well. */
static void add_json_lists(cf_catalogue *cat, size_t whole)
{
    cf_text *out = &cat->losses;
    size_t n = 0;
    cf_text_str(out, "{\"lost\":[");
    for (size_t i = 0; i < cat->n_lost && i < MOST_LISTED; i++) {
        cf_text_str(out, i ? "," : "");
        add_json_loss(out, &cat->lost[i]);
    }
    cf_text_printf(out, "],\"lost_total\":%zu,\"whole\":[", cat->n_lost);
    for (size_t i = 0; i < cat->count && n < MOST_LISTED; i++) {
        if (!there(cat->rows[i])) continue;
        cf_text_str(out, n++ ? "," : "");
        cf_text_json(out, cat->rows[i]->key, strlen(cat->rows[i]->key));
    }
    cf_text_printf(out, "],\"whole_total\":%zu}", whole);
}

/* "; no file of ranks 8-15", where several are not there. One stretch of ranks that the world could
 * be made of, aligned, is what one node of a cluster would have written. */
static void add_absent(cf_catalogue *cat, cf_text *text, bool *node)
{
    int32_t *ranks = CF_NEWS(&cat->arena, int32_t, cat->n_lost);
    size_t n = 0;
    int64_t world = cat->writers;
    for (size_t i = 0; ranks && i < cat->n_lost; i++) {
        const cf_lost *lost = &cat->lost[i];
        world = cf_max(world, (int64_t)lost->rank + 1);
        if (lost->rank >= 0 && lost->why->err->code == CF_E_MISSING_FILE) ranks[n++] = lost->rank;
    }
    if (!n) return;
    cf_text all = {0};
    cf_ranks_text(&all, ranks, n); /* each once, in order */
    int64_t count = 1;
    while (count < (int64_t)n && ranks[count] > ranks[count - 1]) count++;
    if (count > 1 && all.at) cf_text_printf(text, "; no file of ranks %s", all.at);
    *node = count > 1 && ranks[count - 1] - ranks[0] + 1 == count && ranks[0] % count == 0 &&
            world % count == 0 && count < world;
    cf_text_free(&all);
}

bool cf_losses_check(cf_catalogue *cat, cf_err *err)
{
    size_t n = 0; /* with --only-rank, what others lost is nothing to it */
    for (size_t i = 0; i < cat->n_lost; i++)
        if (cat->only_rank < 0 || cat->lost[i].rank < 0 || cat->lost[i].rank == cat->only_rank)
            cat->lost[n++] = cat->lost[i];
    cat->n_lost = n;
    if (!cat->n_lost) return true;
    const size_t broken = mark(cat);
    if (cat->source->faults) {
        const cf_cause *last = NULL;
        for (size_t i = 0; i < cat->n_lost; last = cat->lost[i++].why)
            if (cat->lost[i].why != last &&
                !cf_faults_take(cat->source->faults, cat->lost[i].why->err))
                return cf_fail(err, CF_E_INTERNAL, "a loss that is no fault of the input");
        return true;
    }
    size_t whole = 0;
    const cf_cause *first = cat->lost[0].why;
    for (size_t i = 0; i < cat->count; i++) whole += there(cat->rows[i]);
    add_lists(cat);
    add_json_lists(cat, whole);
    cf_text absent = {0};
    bool node = false;
    add_absent(cat, &absent, &node);
    cf_err_set(err, first->err->code, "%s%s; %zu key%s not whole, %zu whole", first->err->message,
               absent.at ? absent.at : "", broken, broken == 1 ? " is" : "s are", whole);
    cf_text_free(&absent);
    err->offset = first->err->offset;
    cf_err_add_file(err, first->path);
    return cf_err_hint(err, "%s--salvage writes what is whole",
                       node ? "a node's share? then give the folders of all nodes; " : "");
}

/* Values are read when they are written: those that cannot be are broken. */
static void try_values(cf_catalogue *cat)
{
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        const cf_node *node = row->n_values ? row->values[0].node : NULL, *value;
        if (!node || !cf_node_is_item(node)) continue;
        cf_arena scratch;
        cf_err err = {0};
        cf_arena_init(&scratch, 0);
        if (!cf_source_value(cat->source, node, &scratch, &value, &err)) {
            cf_err_add_member(&err, row->key);
            row->broken = cf_faults_take(cat->source->faults, &err);
        }
        cf_arena_free(&scratch);
    }
}

bool cf_losses_drop(cf_catalogue *cat, cf_text *missing, cf_err *err)
{
    size_t kept = 0, dropped = 0;
    const cf_faults *faults = cat->source->faults;
    for (size_t i = 0; i < faults->count; i++) {
        /* what is unsafe stays refused, and so does what is of several saves */
        const cf_fault *f = &faults->list[i];
        if (cf_code_exit(f->code) != 5 && (f->code != CF_E_META_CONFLICT || *f->member)) continue;
        cf_fault_error(f, err);
        return false;
    }
    try_values(cat);
    if (!faults->total && !cat->n_lost) return true;
    if (cat->n_lost) add_lists(cat);
    cf_text_str(missing, "{\"keys\":[");
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (!row->broken) {
            cat->rows[kept++] = row;
            continue;
        }
        cf_text_str(missing, dropped++ ? "," : "");
        cf_text_json(missing, row->key, strlen(row->key));
    }
    for (size_t i = 0; i < cat->n_lost; i++) { /* values: their rows have gone */
        if (cat->lost[i].size) continue;
        cf_text_str(missing, dropped++ ? "," : "");
        cf_text_json(missing, cat->lost[i].key, strlen(cat->lost[i].key));
    }
    cf_text_str(missing, "],\n \"boxes\":[");
    bool first = true;
    for (size_t i = 0; i < cat->n_lost; i++) {
        const cf_lost *lost = &cat->lost[i];
        if (!lost->size) continue;
        cf_text_str(missing, first ? "" : ",\n  ");
        first = false;
        add_json_loss(missing, lost);
    }
    cf_text_str(missing, "],\n \"faults\":[");
    size_t shown = 0;
    for (size_t i = 0; i < faults->count; i++) {
        cf_err fault = {0};
        char line[sizeof fault];
        cf_fault_error(&faults->list[i], &fault);
        cf_err_line(&fault, line, sizeof line);
        const bool told = cat->n_lost && fault.code == CF_E_COVERAGE; /* box by box, above */
        if (!told && shown++ < MOST_SHOWN)
            cf_text_printf(&cat->notes, "%s: %s\n", cf_code_name(fault.code), line);
        cf_text_printf(missing, "%s{\"code\":\"%s\",\"message\":", i ? ",\n  " : "",
                       cf_code_name(fault.code));
        cf_text_json(missing, line, strlen(line));
        cf_text_str(missing, "}");
    }
    cf_text_str(missing, "]}");
    if (shown > MOST_SHOWN)
        cf_text_printf(&cat->notes, "... and %zu more faults\n", shown - MOST_SHOWN);
    cat->count = kept;
    if (!kept) return cf_fail(err, CF_E_COVERAGE, "nothing of it is whole");
    if (dropped)
        cf_text_printf(&cat->notes, "%zu key%s not whole and left out; %zu are whole\n", dropped,
                       dropped == 1 ? " is" : "s are", kept);
    else
        cf_text_str(&cat->notes, "what is damaged is there a second time; nothing is left out\n");
    return cf_text_ok(missing, err);
}
