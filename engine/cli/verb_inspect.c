/* inspect: what is in a checkpoint, from its metadata alone. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pattern.h"
#include "print.h"
#include "verbs.h"

static const char *const ROLES[] = {"model", "optim", "copy", "rest"};

static bool is_tensor(const cf_row *row)
{
    return row->dtype != CF_NO_DTYPE;
}

static uint64_t bytes_of(const cf_row *row)
{
    return is_tensor(row) ? (uint64_t)(row->numel * cf_dtype_size(row->dtype)) : 0;
}

/* How many of the words are folders or files of the checkpoint; those behind them are patterns. */
static int checkpoints(const cf_options *o)
{
    struct stat st;
    int n = 1;
    while (n < o->n_inputs && stat(o->inputs[n], &st) == 0) n++;
    return n;
}

static bool wanted(const cf_options *o, int first, const cf_row *row)
{
    if (o->n_inputs == first) return true;
    for (int i = first; i < o->n_inputs; i++)
        if (cf_glob_match(o->inputs[i], row->key)) return true;
    return false;
}

static void add_shape(cf_text *out, const cf_row *row, const char *comma)
{
    for (int d = 0; d < row->ndim; d++)
        cf_text_printf(out, "%s%lld", d ? comma : "", (long long)row->shape[d]);
}

/* ---- for people ---- */

static bool in_file(const cf_piece *p)
{
    return p->view->storage->place != CF_IN_MEMORY && p->view->storage->place != CF_NOWHERE;
}

/* Where a piece's bytes begin: of an item, which is not opened here, the item. */
static uint64_t begin_of(const cf_piece *p)
{
    const cf_storage *s = p->view->storage;
    return s->offset + (s->place == CF_IN_ITEM ? 0 : p->view->offset);
}

/* The file that a piece lies in, which need not be the one that told of it. */
static const char *file_of(const cf_catalogue *cat, const cf_piece *p)
{
    return cf_source_path(cat->source, in_file(p) ? p->view->storage->file : p->file);
}

static void add_place(cf_text *out, const cf_catalogue *cat, const cf_piece *p)
{
    const cf_storage *s = p->view->storage;
    const char *path = file_of(cat, p);
    cf_text_shown(out, path, strlen(path));
    if (!in_file(p)) return;
    cf_text_printf(out, " byte %llu", (unsigned long long)begin_of(p));
    if (s->place == CF_IN_ITEM)
        cf_text_printf(out, ", an item of %llu bytes", (unsigned long long)s->packed);
}

static void add_pieces(cf_text *out, const cf_catalogue *cat, const cf_row *row, int indent)
{
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        cf_text_printf(out, "%*srank %d  at [", indent, "", p->rank);
        for (int d = 0; d < row->ndim; d++)
            cf_text_printf(out, d ? ", %lld" : "%lld", (long long)p->at[d]);
        cf_text_str(out, "] of [");
        for (int d = 0; d < row->ndim; d++)
            cf_text_printf(out, d ? ", %lld" : "%lld", (long long)p->view->shape[d]);
        cf_text_str(out, "]  ");
        add_place(out, cat, p);
        if (p->replica_of != i)
            cf_text_printf(out, "  (the same box as rank %d's)", row->pieces[p->replica_of].rank);
        cf_text_str(out, "\n");
    }
}

static void add_row(cf_text *out, const cf_options *o, const cf_catalogue *cat, const cf_row *row,
                    const char *rest, int indent)
{
    const size_t start = out->size;
    cf_text_printf(out, "%*s", indent, "");
    cf_text_shown(out, rest, strlen(rest));
    const int width = (int)(out->size - start);
    cf_text_printf(out, "%*s  ", width < 48 ? 48 - width : 0, "");
    if (is_tensor(row)) {
        cf_text_printf(out, "%s [", cf_dtype_of(row->dtype)->name);
        add_shape(out, row, ", ");
        cf_text_str(out, "]  ");
        cf_text_size(out, bytes_of(row));
        if (row->n_pieces > 1) cf_text_printf(out, "  %zu pieces", row->n_pieces);
        if (row->alias) cf_text_printf(out, "  (is %s)", row->alias->key);
    } else {
        cf_node_show(out, row->values[0].node, 60);
        if (row->differs) cf_text_str(out, "  (differs between ranks)");
    }
    cf_text_str(out, "\n");
    if (o->pieces && is_tensor(row)) add_pieces(out, cat, row, indent + 4);
}

/* Length of the part of the keys from `skip` on that all rows share, up to and with its last dot.
 */
static size_t shared(cf_row *const *rows, size_t count, size_t skip)
{
    const char *first = rows[0]->key + skip;
    size_t n = strlen(first);
    for (size_t i = 1; i < count; i++) {
        size_t k = 0;
        while (k < n && rows[i]->key[skip + k] == first[k]) k++;
        n = k;
    }
    while (n && first[n - 1] != '.') n--;
    return n;
}

/* Rows whose keys agree up to `skip`: those that go on with the same component stand together. */
static void add_tree(cf_text *out, const cf_options *o, const cf_catalogue *cat,
                     cf_row *const *rows, size_t count, size_t skip, int indent)
{
    for (size_t i = 0; i < count;) {
        const char *key = rows[i]->key + skip;
        const size_t n = strcspn(key, ".");
        size_t k = i + 1;
        while (k < count && strncmp(rows[k]->key + skip, key, n) == 0 &&
               rows[k]->key[skip + n] == '.' && key[n])
            k++;
        if (k - i == 1) {
            add_row(out, o, cat, rows[i], key, indent);
        } else {
            const size_t more = shared(rows + i, k - i, skip);
            cf_text_printf(out, "%*s", indent, "");
            cf_text_shown(out, key, more);
            cf_text_str(out, "\n");
            add_tree(out, o, cat, rows + i, k - i, skip + more, indent < 40 ? indent + 2 : indent);
        }
        i = k;
    }
}

static void show_text(const cf_options *o, cf_catalogue *cat, cf_row *const *rows, size_t count,
                      cf_text *out)
{
    uint64_t files = 0;
    for (uint32_t i = 0; i < cat->source->dir.count; i++)
        files += cat->was_read && cat->was_read[i];
    cf_text_printf(out, "%s (", cat->format);
    cf_text_shown(out, cat->why, strlen(cat->why));
    cf_text_str(out, "): ");
    cf_text_printf(out, "%lld rank%s, %llu file%s\n", (long long)cat->world,
                   cat->world == 1 ? "" : "s", (unsigned long long)files, files == 1 ? "" : "s");
    for (size_t r = 0; r < sizeof ROLES / sizeof *ROLES; r++) {
        uint64_t tensors = 0, values = 0, bytes = 0;
        for (size_t i = 0; i < cat->count; i++) {
            if (strcmp(cat->rows[i]->role, ROLES[r]) != 0) continue;
            tensors += is_tensor(cat->rows[i]);
            values += !is_tensor(cat->rows[i]);
            bytes += bytes_of(cat->rows[i]);
        }
        if (!tensors && !values) continue;
        cf_text_printf(out, "  %-6s %llu tensor%s", ROLES[r], (unsigned long long)tensors,
                       tensors == 1 ? "" : "s");
        if (values)
            cf_text_printf(out, ", %llu value%s", (unsigned long long)values,
                           values == 1 ? "" : "s");
        cf_text_str(out, ", ");
        cf_text_size(out, bytes);
        cf_text_str(out, "\n");
    }
    cf_text_str(out, "\n");
    add_tree(out, o, cat, rows, count, 0, 0);
}

/* ---- for programs ---- */

static void add_json_row(cf_text *out, const cf_options *o, const cf_catalogue *cat,
                         const cf_row *row)
{
    cf_text_str(out, "{\"key\":");
    cf_text_json(out, row->key, strlen(row->key));
    cf_text_printf(out, ",\"role\":\"%s\",\"name\":", row->role);
    cf_text_json(out, row->name, strlen(row->name));
    if (!is_tensor(row)) {
        cf_text_printf(out, ",\"kind\":\"%s\",\"ranks\":%zu,\"differs\":%s}",
                       cf_node_class(row->values[0].node), row->n_values,
                       row->differs ? "true" : "false");
        return;
    }
    cf_text_printf(out, ",\"dtype\":\"%s\",\"shape\":[", cf_dtype_of(row->dtype)->name);
    add_shape(out, row, ",");
    cf_text_printf(out, "],\"bytes\":%llu", (unsigned long long)bytes_of(row));
    if (!o->pieces) {
        cf_text_printf(out, ",\"pieces\":%zu}", row->n_pieces);
        return;
    }
    cf_text_str(out, ",\"pieces\":[");
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        cf_text_printf(out, "%s{\"rank\":%d,\"file\":", i ? "," : "", p->rank);
        const char *path = file_of(cat, p);
        cf_text_json(out, path, strlen(path));
        if (in_file(p)) cf_text_printf(out, ",\"offset\":%llu", (unsigned long long)begin_of(p));
        if (p->view->storage->place == CF_IN_ITEM)
            cf_text_printf(out, ",\"item\":%llu", (unsigned long long)p->view->storage->packed);
        cf_text_str(out, ",\"at\":[");
        for (int d = 0; d < row->ndim; d++)
            cf_text_printf(out, d ? ",%lld" : "%lld", (long long)p->at[d]);
        cf_text_str(out, "],\"shape\":[");
        for (int d = 0; d < row->ndim; d++)
            cf_text_printf(out, d ? ",%lld" : "%lld", (long long)p->view->shape[d]);
        cf_text_printf(out, "],\"replica\":%s}", p->replica_of == i ? "false" : "true");
    }
    cf_text_str(out, "]}");
}

static void show_json(const cf_options *o, const cf_catalogue *cat, cf_row *const *rows,
                      size_t count, cf_text *out)
{
    cf_text_str(out, "{\"schema\":\"ckptflow.inspect/1\",\"format\":");
    cf_text_json(out, cat->format, strlen(cat->format));
    cf_text_str(out, ",\"why\":");
    cf_text_json(out, cat->why, strlen(cat->why));
    cf_text_printf(out, ",\"world\":%lld,\"files\":[", (long long)cat->world);
    bool first = true;
    for (uint32_t i = 0; i < cat->source->dir.count; i++) {
        if (!cat->was_read || !cat->was_read[i]) continue;
        const cf_dir_file *f = &cat->source->dir.files[i];
        cf_text_str(out, first ? "{\"path\":" : ",{\"path\":");
        cf_text_json(out, f->path, strlen(f->path));
        cf_text_printf(out, ",\"size\":%llu}", (unsigned long long)f->size);
        first = false;
    }
    for (int tensors = 1; tensors >= 0; tensors--) {
        cf_text_printf(out, "],\"%s\":[", tensors ? "tensors" : "values");
        first = true;
        for (size_t i = 0; i < count; i++) {
            if (is_tensor(rows[i]) != (bool)tensors) continue;
            if (!first) cf_text_str(out, ",");
            add_json_row(out, o, cat, rows[i]);
            first = false;
        }
    }
    cf_text_str(out, "]}\n");
}

bool cf_job_inspect(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    const cf_options *o = ctx;
    cf_options one = *o;
    one.n_inputs = checkpoints(o); /* the rest are patterns */
    static cf_scripts scripts;     /* notes of what was not reached are empty */
    static cf_source source;
    static cf_catalogue cat;
    const bool ok = cf_scripts_find(&scripts, o->plugins.list, o->plugins.count, err) &&
                    cf_read_inputs(&one, &scripts, &source, &cat, err);
    const cf_text *all[] = {&scripts.notes, &source.notes, &cat.notes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cf_text_add(notes, all[i]->at, all[i]->size);
    if (!ok) cf_text_add(out, cat.losses.at, cat.losses.size);
    if (!ok) return false;
    cf_row **rows = CF_NEWS(&cat.arena, cf_row *, cat.count + 1);
    size_t n = 0;
    for (size_t i = 0; rows && i < cat.count; i++)
        if (wanted(o, one.n_inputs, cat.rows[i])) rows[n++] = cat.rows[i];
    if (!cf_arena_ok(&cat.arena, err)) return false;
    if (!n && o->n_inputs > one.n_inputs) {
        const char *first = o->inputs[one.n_inputs];
        cf_fail(err, CF_E_USAGE, "no key fits %s", first);
        return cf_err_hint(err, "patterns match whole keys: try '%s.*'", first);
    }
    cf_text_add(out, notes->at, notes->size);
    cf_text_add(out, "", 1);
    if (o->json)
        show_json(o, &cat, rows, n, out);
    else
        show_text(o, &cat, rows, n, out);
    return cf_text_ok(out, err);
}

bool cf_verb_inspect(const cf_options *o, cf_err *err)
{
    if (!o->n_inputs) return cf_fail(err, CF_E_USAGE, "no checkpoint was named");
    return cf_show_job(cf_job_inspect, o, err);
}
