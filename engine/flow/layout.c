#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "moves.h"
#include "num.h"
#include "pattern.h"
#include "safetensors.h"

/* A tensor of a safetensors file that is being laid out: a row's, or one that a value held. */
typedef struct item {
    const char *name, *key, *role;
    const cf_row *row; /* its pieces; NULL: view */
    const cf_view *view;
    cf_dtype dtype; /* as stored */
    int ndim;
    const int64_t *shape;
    bool compared;
} item;

typedef struct layout {
    cf_plan *plan;
    cf_blocker *b;
    cf_mover mover;
    bool *written;  /* by number of the write */
    cf_text differ; /* keys of tensors that may differ and do */
    size_t n_differ;
} layout;

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* A dtype that safetensors lacks is stored as real pairs, with a last axis of 2. */
static bool as_pairs(layout *l, item *it, cf_err *err)
{
    if (it->dtype != CF_C128 && it->dtype != CF_C32) return true;
    int64_t *shape = CF_NEWS(&l->plan->arena, int64_t, it->ndim + 1u);
    if (!shape) return cf_arena_ok(&l->plan->arena, err);
    if (it->ndim) memcpy(shape, it->shape, (size_t)it->ndim * sizeof *shape);
    shape[it->ndim++] = 2;
    it->shape = shape;
    it->dtype = it->dtype == CF_C128 ? CF_F64 : CF_F16;
    return true;
}

/* Do two pieces of one box have the same bytes, as far as stored checksums tell? */
typedef enum alike { ALIKE, DIFFERENT, NOT_KNOWN } alike;

static alike compare_stored(const cf_view *a, const cf_view *b)
{
    const uint64_t size = (uint64_t)(a->numel * cf_dtype_size(a->dtype));
    const cf_storage *x = a->storage, *y = b->storage;
    if (!size) return ALIKE;
    const bool whole = cf_view_dense(a) && cf_view_dense(b) && x->has_crc && y->has_crc &&
                       x->size == size && y->size == size && x->big_endian == y->big_endian &&
                       a->conj == b->conj && a->neg == b->neg;
    return !whole ? NOT_KNOWN : x->crc == y->crc ? ALIKE : DIFFERENT;
}

/* What is neither model nor optimizer is like a value: random states and the like may differ. */
static bool may_differ(const layout *l, const cf_row *row)
{
    return strcmp(row->role, "rest") == 0 && l->plan->cat->values != CF_VALUES_STRICT;
}

/* Replicas of a piece that is kept: equal by their stored checksums, or compared before the first
 * byte is written. */
static bool add_replica(layout *l, const cf_row *row, const cf_piece *kept, const cf_piece *copy,
                        bool *compared, cf_err *err)
{
    enum { WHOLE = 1 << 20 };
    const cf_view *a = kept->view, *c = copy->view;
    if (l->plan->replicas == CF_REPLICAS_TRUST || a->numel == 0) return true;
    const int64_t size = a->numel * cf_dtype_size(a->dtype);
    const alike stored = l->plan->replicas == CF_REPLICAS_AUTO ? compare_stored(a, c) : NOT_KNOWN;
    *compared = true;
    if (stored == ALIKE) return true;
    if (stored == DIFFERENT) {
        cf_fail(err, CF_E_META_CONFLICT, "rank %d (%s) and rank %d (%s) hold different bytes",
                kept->rank, cf_source_path(l->plan->cat->source, kept->file), copy->rank,
                cf_source_path(l->plan->cat->source, copy->file));
        cf_err_hint(err, "--replicas trust takes rank %d's", kept->rank);
        return cf_err_in_member(err, row->key);
    }
    static const int64_t zero[CF_MOST_DIMS];
    cf_b_compare compare = {.size = (uint64_t)size,
                            .key = cf_blocker_text(l->b, row->key, strlen(row->key)),
                            .left_rank = kept->rank,
                            .right_rank = copy->rank,
                            .all = l->plan->replicas == CF_REPLICAS_COMPARE || size <= WHOLE};
    if (!cf_mover_add(&l->mover, a, a->shape, zero, &compare.left, err) ||
        !cf_mover_add(&l->mover, c, c->shape, zero, &compare.right, err))
        return cf_err_in_member(err, row->key);
    cf_blocker_add(l->b, CF_B_COMPARES, &compare, sizeof compare);
    return true;
}

static int by_target(const void *a, const void *b)
{
    const cf_b_move *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* The moves of one tensor, by their place in it; number of the first, and how many. */
static bool add_moves(layout *l, item *it, uint64_t *first, uint64_t *count, cf_err *err)
{
    static const int64_t zero[CF_MOST_DIMS];
    const cf_row *row = it->row;
    cf_text *moves = &l->b->sections[CF_B_MOVES];
    *first = moves->size / sizeof(cf_b_move);
    uint64_t number;
    if (!row) {
        if (it->view->numel &&
            !cf_mover_add(&l->mover, it->view, it->view->shape, zero, &number, err))
            return cf_err_in_member(err, it->key);
    } else {
        for (size_t i = 0; i < row->n_pieces; i++) {
            const cf_piece *p = &row->pieces[i];
            if (p->replica_of != i || p->view->numel == 0) continue;
            if (!cf_mover_add(&l->mover, p->view, row->shape, p->at, &number, err)) {
                cf_err_in_file(err, cf_source_path(l->plan->cat->source, p->file));
                return cf_err_in_member(err, row->key);
            }
        }
    }
    *count = moves->size / sizeof(cf_b_move) - *first;
    if (*count > 1)
        qsort(moves->at + *first * sizeof(cf_b_move), *count, sizeof(cf_b_move), by_target);
    for (size_t i = 0; row && !may_differ(l, row) && i < row->n_pieces; i++)
        if (row->pieces[i].replica_of != i &&
            !add_replica(l, row, &row->pieces[row->pieces[i].replica_of], &row->pieces[i],
                         &it->compared, err))
            return false;
    return true;
}

static uint64_t add_chunk(layout *l, uint64_t begin, uint64_t size, cf_ref bytes)
{
    const cf_b_chunk chunk = {
        .begin = begin, .end = begin + size, .bytes = bytes, .tensor = CF_B_NONE};
    return cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
}

static bool add_tensor(layout *l, item *it, uint64_t begin, uint64_t size, cf_err *err)
{
    cf_b_chunk chunk = {.begin = begin, .end = begin + size};
    if (!add_moves(l, it, &chunk.move, &chunk.moves, err)) return false;
    const cf_b_tensor tensor = {.key = cf_blocker_text(l->b, it->key, strlen(it->key)),
                                .name = cf_blocker_text(l->b, it->name, strlen(it->name)),
                                .role = cf_blocker_text(l->b, it->role, strlen(it->role)),
                                .chunk = l->b->sections[CF_B_CHUNKS].size / sizeof chunk,
                                .dims = l->b->sections[CF_B_NUMBERS].size / sizeof(int64_t),
                                .dtype = (uint8_t)it->dtype,
                                .ndim = (uint8_t)it->ndim,
                                .compared = it->compared};
    for (int d = 0; d < it->ndim; d++)
        cf_blocker_add(l->b, CF_B_NUMBERS, &it->shape[d], sizeof it->shape[d]);
    chunk.tensor = (uint32_t)cf_blocker_add(l->b, CF_B_TENSORS, &tensor, sizeof tensor);
    cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
    return true;
}

static void add_file(layout *l, const char *path, uint64_t size, uint64_t first)
{
    const cf_b_file file = {.path = cf_blocker_text(l->b, path, strlen(path)),
                            .size = size,
                            .chunk = first,
                            .chunks =
                                l->b->sections[CF_B_CHUNKS].size / sizeof(cf_b_chunk) - first};
    cf_blocker_add(l->b, CF_B_FILES, &file, sizeof file);
}

static void add_bytes_file(layout *l, const char *path, const cf_text *text)
{
    const uint64_t first = l->b->sections[CF_B_CHUNKS].size / sizeof(cf_b_chunk);
    add_chunk(l, 0, text->size, cf_blocker_text(l->b, text->at ? text->at : "", text->size));
    add_file(l, path, text->size, first);
}

/* ---- safetensors -------------------------------------------------------------------------------
 */

static bool add_safetensors(layout *l, const char *path, item *items, size_t count,
                            const cf_write_options *options, cf_err *err)
{
    cf_arena *arena = &l->plan->arena;
    cf_st_tensor *tensors = CF_NEWS(arena, cf_st_tensor, count + 1);
    const size_t n_given = options ? options->n_meta : 0;
    const char **meta = CF_NEWS(arena, const char *, 2 * (n_given + 2));
    if (!tensors || !meta) return cf_arena_ok(arena, err);
    size_t n_meta = 0;
    meta[n_meta++] = "format";
    meta[n_meta++] = "pt";
    for (size_t i = 0; i < 2 * n_given; i++) meta[n_meta++] = options->meta[i];
    cf_text odd = {0}, header = {0};
    uint64_t at = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        const cf_dtype dtype = items[i].dtype;
        if (!(ok = as_pairs(l, &items[i], err))) break;
        if (dtype != items[i].dtype) {
            cf_text_str(&odd, odd.size ? "," : "{");
            cf_text_json(&odd, items[i].name, strlen(items[i].name));
            cf_text_printf(&odd, ":\"%s\"", cf_dtype_of(dtype)->name);
            cf_text_printf(&l->plan->notes, "%s: safetensors has no %s; it is stored as pairs\n",
                           items[i].name, cf_dtype_of(dtype)->name);
        }
        int64_t numel = 0, size = 0, end = 0;
        if (!cf_numel(items[i].shape, items[i].ndim, &numel) ||
            !cf_mul(numel, cf_dtype_size(items[i].dtype), &size) ||
            !cf_add((int64_t)at, size, &end)) {
            ok = cf_fail(err, CF_E_OVERFLOW, "%s: more than 63 bits of bytes", path);
            break;
        }
        tensors[i] = (cf_st_tensor){.name = items[i].name,
                                    .length = strlen(items[i].name),
                                    .dtype = items[i].dtype,
                                    .ndim = items[i].ndim,
                                    .shape = items[i].shape,
                                    .begin = at,
                                    .end = (uint64_t)end};
        at = (uint64_t)end;
    }
    if (odd.size) {
        cf_text_str(&odd, "}");
        meta[n_meta++] = "ckptflow.dtype";
        meta[n_meta++] = odd.at;
    }
    ok = ok && cf_safetensors_header(&header, tensors, count, meta, n_meta / 2, err);
    if (!ok) cf_err_in_file(err, path);
    const uint64_t start = header.size;
    const uint64_t first = l->b->sections[CF_B_CHUNKS].size / sizeof(cf_b_chunk);
    if (ok) add_chunk(l, 0, start, cf_blocker_text(l->b, header.at, header.size));
    for (size_t i = 0; ok && i < count; i++)
        ok = add_tensor(l, &items[i], start + tensors[i].begin, tensors[i].end - tensors[i].begin,
                        err);
    if (ok) add_file(l, path, start + at, first);
    cf_text_free(&odd);
    cf_text_free(&header);
    return ok;
}

static bool same_stem(const char *a, const char *b)
{
    const char *x = strrchr(a, '.'), *y = strrchr(b, '.');
    return x && y && x - a == y - b && strncmp(a, b, (size_t)(x - a)) == 0;
}

static item item_of_view(const char *name, const char *key, const char *role, const cf_view *view)
{
    return (item){.name = name,
                  .key = key,
                  .role = role,
                  .view = view,
                  .dtype = view->dtype,
                  .ndim = view->ndim,
                  .shape = view->shape};
}

/* Ranks hold the whole of this tensor, which may differ, and not all are known to be alike. */
static bool differs(const layout *l, const cf_row *row)
{
    bool all = true;
    if (!may_differ(l, row)) return false;
    for (size_t i = 1; i < row->n_pieces; i++) {
        if (row->pieces[i].replica_of != 0) return false;
        all &= compare_stored(row->pieces[0].view, row->pieces[i].view) == ALIKE;
    }
    return !all;
}

/* The items of a safetensors file: an entry each; with --values per-rank one for each rank's copy
 * of a tensor that differs, under rank<N>.<name>. */
static bool items_of(layout *l, const cf_entry *entries, size_t count, item **items, size_t *n,
                     cf_err *err)
{
    cf_arena *arena = &l->plan->arena;
    size_t cap = 0;
    for (size_t i = 0; i < count; i++) {
        const cf_row *row = entries[i].row;
        const bool all = row && differs(l, row),
                   each = all && l->plan->cat->values == CF_VALUES_PER_RANK;
        if (all && l->n_differ++ < 8)
            cf_text_printf(&l->differ, "%s%s", l->n_differ > 1 ? ", " : "", row->key);
        for (size_t k = 0; k < (each ? row->n_pieces : 1); k++) {
            item *it = CF_PUSH(arena, *items, *n, cap);
            char name[32];
            if (!it) return cf_arena_ok(arena, err);
            if (!row) {
                *it = item_of_view(entries[i].name, entries[i].name, "rest", entries[i].view);
            } else if (each) {
                const int m = snprintf(name, sizeof name, "rank%d.", row->pieces[k].rank);
                char *full = cf_alloc(arena, (size_t)m + strlen(entries[i].name) + 1);
                if (!full) return cf_arena_ok(arena, err);
                memcpy(full, name, (size_t)m);
                memcpy(full + m, entries[i].name, strlen(entries[i].name) + 1);
                *it = item_of_view(full, row->key, row->role, row->pieces[k].view);
            } else {
                *it = (item){.name = entries[i].name,
                             .key = row->key,
                             .role = row->role,
                             .row = row,
                             .dtype = row->dtype,
                             .ndim = row->ndim,
                             .shape = row->shape};
            }
        }
    }
    return true;
}

/* ---- values ------------------------------------------------------------------------------------
 */

typedef struct values {
    cf_text text;
    struct cf_json_tensor *tensors; /* met inside values */
    size_t count, cap;
    bool any;
} values;

static bool add_value(cf_plan *plan, values *v, const char *key, const cf_node *node, cf_err *err)
{
    cf_text_str(&v->text, v->any ? ",\n " : "\n ");
    cf_text_json(&v->text, key, strlen(key));
    cf_text_str(&v->text, ": ");
    v->any = true;
    cf_json_tensors met = {.arena = &plan->arena,
                           .key = cf_strndup(&plan->arena, key, strlen(key))};
    if (!met.key || !cf_json_value(&v->text, node, 1, &met, err)) return cf_err_in_member(err, key);
    for (size_t i = 0; i < met.count; i++) {
        struct cf_json_tensor *t = CF_PUSH(&plan->arena, v->tensors, v->count, v->cap);
        if (t) *t = met.items[i];
    }
    return cf_arena_ok(&plan->arena, err);
}

/* rank0's value; with --values per-rank, each rank's under rank<N>.<key> where they differ. */
static bool add_row_values(cf_plan *plan, values *v, const char *name, const cf_row *row,
                           cf_err *err)
{
    if (!row->differs || plan->cat->values != CF_VALUES_PER_RANK)
        return add_value(plan, v, name, row->values[0].node, err);
    for (size_t i = 0; i < row->n_values; i++) {
        const cf_node *node = row->values[i].node ? row->values[i].node : row->values[0].node;
        cf_text key = {0};
        cf_text_printf(&key, "rank%d.%s", row->values[i].rank, name);
        const bool ok = cf_text_ok(&key, err) && add_value(plan, v, key.at, node, err);
        cf_text_free(&key);
        if (!ok) return false;
    }
    return true;
}

/* The tensors inside values go to the safetensors file of the same name, with those that have a key
 * of their own. */
static bool add_json(layout *l, size_t number, cf_err *err)
{
    cf_plan *plan = l->plan;
    const cf_write *w = &plan->writes[number];
    values v = {0};
    cf_text_str(&v.text, "{");
    bool ok = true;
    for (size_t i = 0; ok && i < w->count; i++) {
        const cf_row *row = w->entries[i].row;
        ok = row ? add_row_values(plan, &v, w->entries[i].name, row, err)
                 : cf_fail(err, CF_L_PLAN, "%s: JSON cannot hold the tensor %s", w->path,
                           w->entries[i].name);
    }
    cf_text_str(&v.text, v.any ? "\n}\n" : "}\n");
    ok = ok && cf_text_ok(&v.text, err) && cf_arena_ok(&plan->arena, err);
    if (ok) add_bytes_file(l, w->path, &v.text);
    cf_text_free(&v.text);
    if (!ok) return false;

    const cf_write *beside = NULL;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_SAFETENSORS &&
            same_stem(plan->writes[i].path, w->path)) {
            beside = &plan->writes[i];
            l->written[i] = true;
        }
    item *items = NULL;
    size_t count = 0;
    if (beside && !items_of(l, beside->entries, beside->count, &items, &count, err)) return false;
    size_t cap = count;
    for (size_t i = 0; i < v.count; i++) {
        item *it = CF_PUSH(&plan->arena, items, count, cap);
        if (it) *it = item_of_view(v.tensors[i].name, v.tensors[i].name, "rest", v.tensors[i].view);
    }
    if (!cf_arena_ok(&plan->arena, err)) return false;
    if (!count) return true;
    cf_text path = {0};
    cf_text_add(&path, w->path, strlen(w->path) - strlen("json"));
    cf_text_str(&path, "safetensors");
    ok = cf_text_ok(&path, err) &&
         add_safetensors(l, path.at, items, count, beside ? &beside->options : NULL, err);
    cf_text_free(&path);
    return ok;
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static bool add_entries(layout *l, const cf_write *w, cf_err *err)
{
    item *items = NULL;
    size_t count = 0;
    return items_of(l, w->entries, w->count, &items, &count, err) &&
           add_safetensors(l, w->path, items, count, &w->options, err);
}

static bool ends(const char *path, const char *suffix)
{
    const size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

/* Never a file that the format read, an index, a manifest, or a path the plan writes. */
static bool may_copy(const layout *l, uint32_t file)
{
    const char *path = cf_source_path(l->plan->cat->source, file);
    if (l->plan->cat->was_read && l->plan->cat->was_read[file]) return false;
    if (ends(path, ".index.json") || strcmp(path, "ckptflow-manifest.json") == 0) return false;
    const cf_text *files = &l->b->sections[CF_B_FILES];
    const cf_b_file *f = (const cf_b_file *)(const void *)files->at;
    for (size_t i = 0; i < files->size / sizeof *f; i++)
        if (strcmp(l->b->sections[CF_B_BYTES].at + f[i].path.at, path) == 0) return false;
    return true;
}

static bool add_copies(layout *l, cf_err *err)
{
    const cf_dir *dir = &l->plan->cat->source->dir;
    for (uint32_t i = 0; i < dir->count; i++) {
        bool wanted = false;
        for (size_t k = 0; k < l->plan->n_copies && !wanted; k++)
            wanted = cf_pattern_match(l->plan->copies[k].glob, dir->files[i].path, NULL);
        if (!wanted || !may_copy(l, i)) continue;
        const uint64_t size = dir->files[i].size;
        cf_b_chunk chunk = {.end = size, .tensor = CF_B_NONE};
        if (size) {
            const cf_b_move move = {
                .run = size, .record = cf_mover_file(&l->mover, i), .dtype = CF_U8};
            chunk.move = cf_blocker_add(l->b, CF_B_MOVES, &move, sizeof move);
            chunk.moves = 1;
        }
        const uint64_t first = cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
        add_file(l, dir->files[i].path, size, first);
    }
    return cf_text_ok(&l->b->sections[CF_B_CHUNKS], err);
}

static bool lay_out(layout *l, cf_err *err)
{
    const cf_plan *plan = l->plan;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_JSON && !add_json(l, i, err)) return false;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_SAFETENSORS && !l->written[i] &&
            !add_entries(l, &plan->writes[i], err))
            return false;
    return add_copies(l, err) && cf_mover_checks(&l->mover, err);
}

bool cf_plan_layout(cf_plan *plan, cf_blocker *b, cf_err *err)
{
    layout l = {.plan = plan, .b = b};
    l.written = CF_NEWS(&plan->arena, bool, plan->n_writes + 1);
    bool ok = l.written && cf_mover_init(&l.mover, plan->cat->source, b, err) && lay_out(&l, err);
    cf_mover_free(&l.mover);
    if (l.n_differ)
        cf_text_printf(&plan->notes,
                       "%zu tensor%s outside model and optimizer between ranks: %s%s\n", l.n_differ,
                       l.n_differ > 1 ? "s differ" : " differs", l.differ.at,
                       l.n_differ > 8 ? ", ..." : "");
    cf_text_free(&l.differ);
    return ok && cf_arena_ok(&plan->arena, err);
}
