/* Pieces and views turned into moves, replicas into comparisons, and both into safetensors files.
 */
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "laying.h"
#include "num.h"
#include "pattern.h"
#include "replicas.h"
#include "safetensors.h"
#include "save.h"

/* A dtype that safetensors lacks is stored as real pairs, with a last axis of 2. */
static bool as_pairs(cf_layout *l, cf_item *it, cf_err *err)
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
    const uint64_t size = (uint64_t)(a->numel * cf_dtype_size(a->stored));
    const cf_storage *x = a->storage, *y = b->storage;
    if (!size) return ALIKE;
    const size_t dims = a->ndim * sizeof *a->stride;
    const bool same_places =
        a->offset == b->offset && (!dims || memcmp(a->stride, b->stride, dims) == 0);
    if (!x->has_crc || !y->has_crc || x->size != y->size || x->big_endian != y->big_endian ||
        a->stored != b->stored || a->conj != b->conj || a->neg != b->neg || !same_places)
        return NOT_KNOWN;
    if (x->crc == y->crc) return ALIKE;
    return cf_view_dense(a) && x->size == size ? DIFFERENT
                                               : NOT_KNOWN; /* what differs may be unused */
}

/* What is neither model nor optimizer is like a value: random states and the like may differ. */
static bool may_differ(const cf_layout *l, const cf_row *row)
{
    return strcmp(row->role, "rest") == 0 && l->plan->cat->values != CF_VALUES_STRICT;
}

/* Replicas of a piece that is kept: equal by their stored checksums, or compared before the first
 * byte is written. */
static bool add_replica(cf_layout *l, const cf_row *row, const cf_piece *kept, const cf_piece *copy,
                        bool *compared, cf_err *err)
{
    enum { WHOLE = 1 << 20 };
    const cf_view *a = kept->view, *c = copy->view;
    /* without ranks nobody knows that these are copies: they must be equal */
    const bool ranked = kept->rank >= 0 && copy->rank >= 0;
    if ((l->plan->replicas == CF_REPLICAS_TRUST && ranked) || a->numel == 0) return true;
    const int64_t size = a->numel * cf_dtype_size(a->stored);
    const alike stored = l->plan->replicas == CF_REPLICAS_AUTO ? compare_stored(a, c) : NOT_KNOWN;
    *compared = true;
    if (stored == ALIKE) return true;
    if (stored == DIFFERENT) {
        cf_replica_conflict(err, kept->rank, cf_source_path(l->plan->cat->source, kept->file),
                            copy->rank, cf_source_path(l->plan->cat->source, copy->file));
        return cf_err_in_member(err, row->key);
    }
    static const int64_t zero[CF_MOST_DIMS];
    cf_b_compare compare = {.size = (uint64_t)size,
                            .key = cf_blocker_text(l->b, row->key, strlen(row->key)),
                            .left_rank = kept->rank,
                            .right_rank = copy->rank,
                            .all = l->plan->replicas == CF_REPLICAS_COMPARE || size <= WHOLE};
    if (!cf_mover_add(&l->mover, a, a->shape, zero, a->stored, &compare.left, err) ||
        !cf_mover_add(&l->mover, c, c->shape, zero, c->stored, &compare.right, err))
        return cf_err_in_member(err, row->key);
    cf_blocker_add(l->b, CF_B_COMPARES, &compare, sizeof compare);
    return true;
}

bool cf_lay_replicas(cf_layout *l, cf_row *row, bool *compared, cf_err *err)
{
    for (size_t i = 0; !row->compared && !may_differ(l, row) && i < row->n_pieces; i++)
        if (row->pieces[i].replica_of != i &&
            !add_replica(l, row, &row->pieces[row->pieces[i].replica_of], &row->pieces[i], compared,
                         err))
            return false;
    row->compared = true;
    return true;
}

/* Whose piece it is that has no data. */
static bool whose(const cf_layout *l, const cf_tile *tile, cf_err *err)
{
    for (size_t i = 0; tile->row && i < tile->row->n_pieces; i++) {
        const cf_piece *p = &tile->row->pieces[i];
        if (p->view->storage != tile->view->storage) continue;
        if (p->rank >= 0) cf_err_hint(err, "it is the part of rank %d", p->rank);
        return cf_err_in_file(err, cf_source_path(l->mover.source, p->file));
    }
    return false;
}

/* The moves of a term, by their place in the tensor; number of the first, and how many. */
static bool add_term(cf_layout *l, const cf_item *it, const cf_term *term, cf_dtype dtype,
                     uint64_t *first, uint64_t *count, cf_err *err)
{
    cf_text *moves = &l->b->sections[CF_B_MOVES];
    uint64_t number;
    *first = moves->size / sizeof(cf_b_move);
    for (size_t i = 0; i < term->count; i++)
        if (!cf_mover_add(&l->mover, term->tiles[i].view, it->shape, term->tiles[i].at, dtype,
                          &number, err)) {
            if (err->code == CF_E_STORAGE_MISSING) whose(l, &term->tiles[i], err);
            return cf_err_in_member(err, it->key);
        }
    *count = moves->size / sizeof(cf_b_move) - *first;
    if (*count > 1)
        qsort(moves->at + *first * sizeof(cf_b_move), *count, sizeof(cf_b_move), cf_move_order);
    return true;
}

bool cf_lay_compares(cf_layout *l, cf_item *it, cf_err *err)
{
    const cf_tensor *t = it->tensor;
    for (size_t i = 0; i < t->n_terms; i++)
        for (size_t k = 0; k < t->terms[i].count; k++)
            if (t->terms[i].tiles[k].row &&
                !cf_lay_replicas(l, t->terms[i].tiles[k].row, &it->compared, err))
                return false;
    return true;
}

/* What a term's elements are rounded to before they are used, by a cast of views. */
static cf_dtype rounding(const cf_term *term)
{
    for (size_t k = 0; k < term->count; k++)
        if (!cf_cast_exact(term->tiles[k].view->stored, term->tiles[k].view->dtype))
            return term->tiles[k].view->dtype;
    return CF_NO_DTYPE;
}

/* Moves, or for a sum the terms whose moves fill the chunk. */
bool cf_lay_filling(cf_layout *l, const cf_item *it, cf_b_chunk *chunk, cf_err *err)
{
    const cf_tensor *t = it->tensor;
    if (!t->sum) return add_term(l, it, &t->terms[0], it->cast, &chunk->move, &chunk->moves, err);
    chunk->sum = true;
    for (size_t i = 0; t->numel && i < t->n_terms; i++) {
        cf_b_term term = {.weight = t->terms[i].weight, .rounded = rounding(&t->terms[i])};
        if (!add_term(l, it, &t->terms[i], CF_F64, &term.move, &term.moves, err)) return false;
        const uint64_t number = cf_blocker_add(l->b, CF_B_TERMS, &term, sizeof term);
        if (i == 0) chunk->move = number;
        chunk->moves++;
    }
    return true;
}

uint32_t cf_lay_tensor(cf_layout *l, const cf_item *it, cf_ref path)
{
    const cf_b_tensor tensor = {.key = cf_blocker_text(l->b, it->key, strlen(it->key)),
                                .name = cf_blocker_text(l->b, it->name, strlen(it->name)),
                                .role = cf_blocker_text(l->b, it->role, strlen(it->role)),
                                .path = path,
                                .chunk = cf_lay_chunks(l),
                                .dims = l->b->sections[CF_B_NUMBERS].size / sizeof(int64_t),
                                .dtype = (uint8_t)it->dtype,
                                .ndim = (uint8_t)it->ndim,
                                .compared = it->compared};
    for (int d = 0; d < it->ndim; d++)
        cf_blocker_add(l->b, CF_B_NUMBERS, &it->shape[d], sizeof it->shape[d]);
    return (uint32_t)cf_blocker_add(l->b, CF_B_TENSORS, &tensor, sizeof tensor);
}

bool cf_lay_item(cf_layout *l, cf_item *it, uint64_t begin, uint64_t size, cf_err *err)
{
    cf_b_chunk chunk = {.begin = begin, .end = begin + size, .dtype = (uint8_t)it->cast};
    if (!cf_lay_compares(l, it, err) || !cf_lay_filling(l, it, &chunk, err)) return false;
    chunk.tensor = cf_lay_tensor(l, it, (cf_ref){0});
    cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
    return true;
}

bool cf_lay_size(const cf_item *it, uint64_t *size, cf_err *err)
{
    int64_t numel, bytes;
    if (cf_numel(it->shape, it->ndim, &numel) && cf_mul(numel, cf_dtype_size(it->dtype), &bytes)) {
        *size = (uint64_t)bytes;
        return true;
    }
    cf_fail(err, CF_E_OVERFLOW, "more than 63 bits of bytes");
    return cf_err_in_member(err, it->key);
}

static cf_item item_of(const char *name, const char *key, const char *role, const cf_tensor *t)
{
    return (cf_item){.name = name,
                     .key = key,
                     .role = role,
                     .tensor = t,
                     .dtype = t->dtype,
                     .cast = t->dtype,
                     .ndim = t->ndim,
                     .shape = t->shape};
}

/* The cast that --dtype or the write's own option asks for: of floating point, but for names that
 * are kept, and an optimizer's step, which counts. */
static bool cast_item(const cf_layout *l, const cf_write_options *o, cf_item *it, cf_err *err)
{
    const cf_plan *plan = l->plan;
    const cf_dtype wanted = o->keep ? CF_NO_DTYPE : o->dtype ? o->dtype : plan->dtype;
    const char *last = strrchr(it->name, '.');
    if (!wanted || cf_dtype_of(it->dtype)->class != CF_CLASS_FLOATING) return true;
    if (strcmp(it->role, "optim") == 0 && strcmp(last ? last + 1 : it->name, "step") == 0)
        return true;
    for (size_t i = 0; i < o->n_keep; i++)
        if (cf_glob_match(o->keep_dtype[i], it->name)) return true;
    for (int i = 0; i < plan->n_keep; i++)
        if (cf_glob_match(plan->keep_dtype[i], it->key)) return true;
    const cf_dtype was = it->tensor->sum ? CF_NO_DTYPE : rounding(&it->tensor->terms[0]);
    if (was && was != wanted)
        return cf_fail(err, CF_L_PLAN, "%s: a cast of a cast, to %s and then to %s", it->name,
                       cf_dtype_of(was)->name, cf_dtype_of(wanted)->name);
    it->dtype = it->cast = wanted;
    return true;
}

/* Where no checksum tells, what is small is read. */
static bool same_bytes(const cf_layout *l, const cf_view *a, const cf_view *b)
{
    enum { MOST = 1 << 16 };
    const alike stored = compare_stored(a, b);
    if (stored != NOT_KNOWN || a->stored != b->stored || a->conj != b->conj || a->neg != b->neg ||
        a->storage->big_endian != b->storage->big_endian || !cf_view_dense(a) || !cf_view_dense(b))
        return stored == ALIKE;
    cf_source *source = l->plan->cat->source;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    const uint8_t *x, *y;
    bool checked;
    cf_err none; /* what cannot be read is told when it is written */
    const bool same = cf_source_bytes(source, a, MOST, &scratch, &x, &checked, &none) &&
                      cf_source_bytes(source, b, MOST, &scratch, &y, &checked, &none) &&
                      memcmp(x, y, (size_t)(a->numel * cf_dtype_size(a->stored))) == 0;
    cf_arena_free(&scratch);
    return same;
}

/* Ranks hold the whole of this tensor, which may differ, and not all are known to be alike. */
static bool differs(const cf_layout *l, const cf_row *row)
{
    bool all = true;
    if (!may_differ(l, row) || !row->n_pieces) return false;
    const uint32_t kept = row->pieces[0].replica_of;
    for (size_t i = 0; i < row->n_pieces; i++) {
        if (row->pieces[i].replica_of != kept) return false;
        all &= i == kept || same_bytes(l, row->pieces[kept].view, row->pieces[i].view);
    }
    return !all;
}

/* The note's word of it: its ranks, grouped by the stored checksums where all have one. */
static void add_differing(cf_layout *l, const cf_row *row)
{
    if (l->n_differ++ >= 8) return;
    cf_text_printf(&l->differ, "%s%s", l->n_differ > 1 ? ", " : "", row->key);
    uint64_t *sums = CF_NEWS(&l->plan->arena, uint64_t, row->n_pieces);
    int32_t *ranks = CF_NEWS(&l->plan->arena, int32_t, row->n_pieces);
    for (size_t i = 0; sums && ranks && i < row->n_pieces; i++) {
        if (!row->pieces[i].view->storage->has_crc) return;
        sums[i] = row->pieces[i].view->storage->crc;
        ranks[i] = row->pieces[i].rank;
    }
    cf_text_str(&l->differ, " (");
    if (sums && ranks) cf_groups_text(&l->differ, sums, ranks, row->n_pieces);
    cf_text_str(&l->differ, ")");
}

/* A new item of a row, or of one piece of it that is all of the tensor (then number is the
 * piece's). */
static bool add_row(cf_layout *l, cf_items *items, const char *name, cf_row *row, int64_t number,
                    cf_err *err)
{
    cf_arena *arena = &l->plan->arena;
    cf_item *it = CF_PUSH(arena, items->list, items->count, items->cap);
    const cf_tensor *t = number < 0 ? cf_tensor_of_row(arena, row, err)
                                    : cf_tensor_of_view(arena, row->pieces[number].view, NULL, err);
    if (!t) return false;
    if (!it) return cf_arena_ok(arena, err);
    if (number >= 0) {
        cf_text full = {0};
        cf_text_printf(&full, "rank%d.%s", row->pieces[number].rank, name);
        name = full.at ? cf_strndup(arena, full.at, full.size) : NULL;
        cf_text_free(&full);
        if (!name) return cf_fail(err, CF_E_MEMORY, "out of memory");
    }
    *it = item_of(name, row->key, row->role, t);
    return true;
}

/* The role of a tensor that a recipe made: that of the rows it is made of, if they agree. */
static const char *role_of(const cf_tensor *t)
{
    const char *role = NULL;
    for (size_t i = 0; i < t->n_terms; i++)
        for (size_t k = 0; k < t->terms[i].count; k++) {
            const cf_row *row = t->terms[i].tiles[k].row;
            if (!row) continue; /* zeros; another checkpoint's */
            if (role && strcmp(role, row->role) != 0) return "rest";
            role = row->role;
        }
    return role ? role : "rest";
}

bool cf_lay_entry(cf_layout *l, const cf_write *w, const cf_entry *e, cf_items *items, cf_err *err)
{
    const size_t first = items->count;
    const bool all = e->row && differs(l, e->row);
    const bool each = all && l->plan->cat->values == CF_VALUES_PER_RANK;
    if (all) add_differing(l, e->row);
    if (!e->row) {
        cf_item *it = CF_PUSH(&l->plan->arena, items->list, items->count, items->cap);
        if (!it) return cf_arena_ok(&l->plan->arena, err);
        *it = item_of(e->name, e->name, role_of(e->tensor), e->tensor);
    } else if (!each) {
        if (!add_row(l, items, e->name, e->row, -1, err)) return false;
    } else {
        for (size_t k = 0; k < e->row->n_pieces; k++)
            if (!add_row(l, items, e->name, e->row, (int64_t)k, err)) return false;
    }
    for (size_t k = first; k < items->count; k++)
        CF_TRY(cast_item(l, &w->options, &items->list[k], err));
    return true;
}

bool cf_lay_items(cf_layout *l, const cf_write *w, cf_items *items, cf_err *err)
{
    for (size_t i = 0; i < w->count; i++) CF_TRY(cf_lay_entry(l, w, &w->entries[i], items, err));
    return true;
}

bool cf_lay_view(cf_layout *l, cf_items *items, const char *name, const cf_view *view, cf_err *err)
{
    cf_item *it = CF_PUSH(&l->plan->arena, items->list, items->count, items->cap);
    const cf_tensor *t = cf_tensor_of_view(&l->plan->arena, view, NULL, err);
    if (!it || !t) return cf_arena_ok(&l->plan->arena, err);
    *it = item_of(name, name, "rest", t);
    return true;
}

/* ---- safetensors -------------------------------------------------------------------------------
 */

static bool tensor_of(cf_layout *l, cf_item *it, cf_text *odd, cf_st_tensor *t, cf_err *err)
{
    const cf_dtype dtype = it->dtype;
    if (!as_pairs(l, it, err)) return false;
    if (dtype != it->dtype) {
        cf_text_str(odd, odd->size ? "," : "{");
        cf_text_json(odd, it->name, strlen(it->name));
        cf_text_printf(odd, ":\"%s\"", cf_dtype_of(dtype)->name);
        cf_text_printf(&l->plan->notes, "%s: safetensors has no %s; it is stored as pairs\n",
                       it->name, cf_dtype_of(dtype)->name);
    }
    uint64_t size;
    CF_TRY(cf_lay_size(it, &size, err));
    *t = (cf_st_tensor){.name = it->name,
                        .length = strlen(it->name),
                        .dtype = it->dtype,
                        .ndim = it->ndim,
                        .shape = it->shape,
                        .end = size};
    return true;
}

/* One file of the items; tensors have their sizes as `end` and get their places. */
static bool add_part(cf_layout *l, const char *path, cf_item *items, cf_st_tensor *tensors,
                     size_t count, const char *const *meta, size_t n_meta, cf_err *err)
{
    cf_text header = {0};
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        tensors[i].begin = at;
        if (__builtin_add_overflow(at, tensors[i].end, &at) || at > INT64_MAX / 2)
            return cf_fail(err, CF_E_OVERFLOW, "%s: more than 62 bits of bytes", path);
        tensors[i].end = at;
    }
    const uint64_t first = cf_lay_chunks(l);
    bool ok = cf_safetensors_header(&header, tensors, count, meta, n_meta, err);
    const uint64_t start = header.size;
    if (ok) cf_lay_chunk(l, 0, start, cf_blocker_text(l->b, header.at, header.size));
    cf_text_free(&header);
    for (size_t i = 0; ok && i < count; i++)
        ok = cf_lay_item(l, &items[i], start + tensors[i].begin, tensors[i].end - tensors[i].begin,
                         err);
    if (ok) cf_lay_file(l, path, start + at, first);
    return ok;
}

/* How many of the tensors go into the next file: at least one; as many as fit. */
static size_t fitting(const cf_st_tensor *tensors, size_t count, uint64_t most)
{
    enum { HEADER = CF_ST_MOST_HEADER - (4 << 20) }; /* room for the metadata */
    uint64_t bytes = 0, header = 0;
    size_t n = 0;
    for (; n < count; n++) {
        cf_st_tensor placed = tensors[n]; /* offsets have as many digits as they will have */
        placed.begin = bytes;
        placed.end = bytes += tensors[n].end;
        header += cf_safetensors_entry_size(&placed);
        if (n && ((most && bytes > most) || header > HEADER)) break;
    }
    return n;
}

void cf_lay_part_name(cf_text *name, const char *path, size_t number, size_t parts)
{
    const char *suffix = strrchr(path, '.');
    cf_text_add(name, path, (size_t)(suffix - path));
    cf_text_printf(name, "-%05zu-of-%05zu%s", number, parts, suffix);
}

static bool add_parts(cf_layout *l, const char *path, cf_items *items, cf_st_tensor *tensors,
                      uint64_t most, const char *const *meta, size_t n_meta, cf_err *err)
{
    size_t parts = 0;
    for (size_t i = 0; i < items->count; parts++) i += fitting(tensors + i, items->count - i, most);
    if (parts < 2) return add_part(l, path, items->list, tensors, items->count, meta, n_meta, err);
    const size_t n = strlen(path);
    if (n < 12 || strcmp(path + n - 12, ".safetensors") != 0)
        return cf_fail(err, CF_L_PLAN, "%s: only a path with .safetensors can be split", path);
    cf_text index = {0};
    uint64_t total = 0;
    for (size_t i = 0; i < items->count; i++) total += tensors[i].end;
    cf_text_printf(&index, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
                   (unsigned long long)total);
    bool ok = true;
    for (size_t i = 0, part = 1; ok && i < items->count; part++) {
        const size_t some = fitting(tensors + i, items->count - i, most);
        cf_text name = {0};
        cf_lay_part_name(&name, path, part, parts);
        const char *slash = strrchr(name.at ? name.at : "", '/');
        for (size_t k = i; k < i + some; k++) {
            cf_text_str(&index, k ? ",\n " : "\n ");
            cf_text_json(&index, items->list[k].name, strlen(items->list[k].name));
            cf_text_str(&index, ": ");
            const char *base = slash ? slash + 1 : name.at;
            cf_text_json(&index, base ? base : "", base ? strlen(base) : 0);
        }
        ok = cf_text_ok(&name, err) &&
             add_part(l, name.at, items->list + i, tensors + i, some, meta, n_meta, err);
        cf_text_free(&name);
        i += some;
    }
    cf_text_str(&index, "\n}}\n");
    cf_text name = {0};
    cf_text_printf(&name, "%s.index.json", path);
    ok = ok && cf_text_ok(&index, err) && cf_text_ok(&name, err);
    if (ok) cf_lay_bytes(l, name.at, &index);
    cf_text_free(&name);
    cf_text_free(&index);
    return ok;
}

bool cf_lay_safetensors(cf_layout *l, const char *path, cf_items *items,
                        const cf_write_options *options, cf_err *err)
{
    cf_arena *arena = &l->plan->arena;
    const size_t n_given = options ? options->n_meta : 0;
    cf_st_tensor *tensors = CF_NEWS(arena, cf_st_tensor, items->count + 1);
    const char **meta = CF_NEWS(arena, const char *, 2 * (n_given + 2));
    if (!tensors || !meta) return cf_arena_ok(arena, err);
    size_t n = 0;
    meta[n++] = "format";
    meta[n++] = "pt";
    for (size_t i = 0; i < 2 * n_given; i++) meta[n++] = options->meta[i];
    cf_text odd = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < items->count; i++)
        ok = tensor_of(l, &items->list[i], &odd, &tensors[i], err);
    if (odd.size) {
        cf_text_str(&odd, "}");
        meta[n++] = "ckptflow.dtype";
        meta[n++] = odd.at;
    }
    ok =
        ok && cf_text_ok(&odd, err) &&
        add_parts(l, path, items, tensors, options ? options->max_shard_size : 0, meta, n / 2, err);
    cf_text_free(&odd);
    return ok;
}
