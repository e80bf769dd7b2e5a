#include "tensor.h"

#include <string.h>

#include "cast.h"
#include "num.h"
#include "reshape.h"

/* ---- making one --------------------------------------------------------------------------------
 */

static const cf_tensor *fail(cf_arena *arena, cf_err *err)
{
    cf_arena_ok(arena, err);
    return NULL;
}

/* A copy of the frame with another shape, its terms still empty. */
static cf_tensor *frame(cf_arena *arena, const cf_tensor *like, int ndim, const int64_t *shape)
{
    cf_tensor *t = CF_NEW(arena, cf_tensor);
    cf_term *terms = CF_NEWS(arena, cf_term, like->n_terms + 1);
    const int64_t *copy = cf_memdup(arena, shape, (size_t)ndim * sizeof *shape);
    if (!t || !terms || !copy) return NULL;
    *t = *like;
    t->ndim = (uint8_t)ndim;
    t->shape = copy;
    t->terms = terms;
    cf_numel(shape, ndim, &t->numel);
    for (size_t i = 0; i < like->n_terms; i++) terms[i].weight = like->terms[i].weight;
    return t;
}

static const cf_view *part_of(cf_arena *arena, const cf_view *view, uint64_t offset, int ndim,
                              const int64_t *shape, const int64_t *stride)
{
    cf_view *v = cf_memdup(arena, view, sizeof *view);
    int64_t *dims = cf_alloc(arena, 2 * (size_t)ndim * sizeof *dims);
    if (!v || !dims) return NULL;
    v->offset = offset;
    v->ndim = (uint8_t)ndim;
    if (ndim) {
        memcpy(dims, shape, (size_t)ndim * sizeof *dims);
        memcpy(dims + ndim, stride, (size_t)ndim * sizeof *dims);
    }
    v->shape = dims;
    v->stride = dims + ndim;
    cf_numel(shape, ndim, &v->numel);
    return v;
}

const cf_tensor *cf_tensor_of_view(cf_arena *arena, const cf_view *view, cf_row *row, cf_err *err)
{
    cf_tensor *t = CF_NEW(arena, cf_tensor);
    cf_term *term = CF_NEW(arena, cf_term);
    cf_tile *tile = CF_NEW(arena, cf_tile);
    int64_t *at = CF_NEWS(arena, int64_t, view->ndim + 1u);
    if (!t || !term || !tile || !at) return fail(arena, err);
    *tile = (cf_tile){.at = at, .view = view, .row = row};
    *term = (cf_term){.tiles = tile, .count = view->numel > 0, .weight = 1};
    *t = (cf_tensor){.dtype = view->dtype,
                     .ndim = view->ndim,
                     .shape = view->shape,
                     .numel = view->numel,
                     .terms = term,
                     .n_terms = 1};
    return t;
}

const cf_tensor *cf_tensor_of_row(cf_arena *arena, cf_row *row, cf_err *err)
{
    if (row->in_part) {
        cf_fail(err, CF_E_COVERAGE, "%s is here in part, as one rank holds it", row->key);
        cf_err_hint(err, "a recipe of pieces writes row:pieces()");
        return NULL;
    }
    cf_tensor *t = CF_NEW(arena, cf_tensor);
    cf_term *term = CF_NEW(arena, cf_term);
    cf_tile *tiles = CF_NEWS(arena, cf_tile, row->n_pieces + 1);
    if (!t || !term || !tiles) return fail(arena, err);
    size_t n = 0;
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        if (p->replica_of == i && p->view->numel)
            tiles[n++] = (cf_tile){.at = p->at, .view = p->view, .row = row};
    }
    *term = (cf_term){.tiles = tiles, .count = n, .weight = 1};
    *t = (cf_tensor){.dtype = row->dtype,
                     .ndim = row->ndim,
                     .shape = row->shape,
                     .numel = row->numel,
                     .terms = term,
                     .n_terms = 1};
    return t;
}

/* ---- operations --------------------------------------------------------------------------------
 */

const cf_tensor *cf_tensor_slice(cf_arena *arena, const cf_tensor *t, int64_t from, int64_t to,
                                 int dim, cf_err *err)
{
    if (dim < 0 || dim >= t->ndim) {
        cf_fail(err, CF_E_BOUNDS, "slice: there is no dimension %d of %d", dim, t->ndim);
        return NULL;
    }
    if (from < 0 || from > to || to > t->shape[dim]) {
        cf_fail(err, CF_E_BOUNDS, "slice %lld to %lld of a dimension of %lld", (long long)from,
                (long long)to, (long long)t->shape[dim]);
        return NULL;
    }
    int64_t shape[CF_MOST_DIMS];
    memcpy(shape, t->shape, t->ndim * sizeof *shape);
    shape[dim] = to - from;
    cf_tensor *r = frame(arena, t, t->ndim, shape);
    for (size_t i = 0; r && i < t->n_terms; i++) {
        const cf_term *term = &t->terms[i];
        cf_tile *tiles = CF_NEWS(arena, cf_tile, term->count + 1);
        size_t n = 0;
        for (size_t k = 0; tiles && r->numel && k < term->count; k++) {
            const cf_tile *tile = &term->tiles[k];
            const cf_view *v = tile->view;
            const int64_t begin = cf_max(tile->at[dim], from);
            const int64_t end = cf_min(tile->at[dim] + v->shape[dim], to);
            if (begin >= end) continue;
            int64_t size[CF_MOST_DIMS];
            int64_t *at = cf_memdup(arena, tile->at, t->ndim * sizeof *at);
            if (!at) return fail(arena, err);
            memcpy(size, v->shape, t->ndim * sizeof *size);
            size[dim] = end - begin;
            at[dim] = begin - from;
            const int64_t skip =
                (begin - tile->at[dim]) * v->stride[dim] * cf_dtype_size(v->stored);
            tiles[n++] = (cf_tile){
                .at = at,
                .view = part_of(arena, v, v->offset + (uint64_t)skip, t->ndim, size, v->stride),
                .row = tile->row};
        }
        r->terms[i].tiles = tiles;
        r->terms[i].count = n;
    }
    return cf_arena_ok(arena, err) ? r : NULL;
}

const cf_tensor *cf_tensor_permute(cf_arena *arena, const cf_tensor *t, const int64_t *dims, int n,
                                   cf_err *err)
{
    uint64_t seen = 0;
    int64_t shape[CF_MOST_DIMS];
    bool ok = n == t->ndim;
    for (int d = 0; ok && d < n; d++) {
        ok = dims[d] >= 0 && dims[d] < n && !(seen >> dims[d] & 1);
        if (!ok) break;
        seen |= 1ull << dims[d];
        shape[d] = t->shape[dims[d]];
    }
    if (!ok) {
        cf_fail(err, CF_E_LAYOUT, "permute: not the %d dimensions of the tensor, each once",
                t->ndim);
        return NULL;
    }
    cf_tensor *r = frame(arena, t, n, shape);
    for (size_t i = 0; r && i < t->n_terms; i++) {
        const cf_term *term = &t->terms[i];
        cf_tile *tiles = CF_NEWS(arena, cf_tile, term->count + 1);
        for (size_t k = 0; tiles && k < term->count; k++) {
            const cf_view *v = term->tiles[k].view;
            int64_t size[CF_MOST_DIMS], stride[CF_MOST_DIMS];
            int64_t *at = CF_NEWS(arena, int64_t, (size_t)n + 1);
            if (!at) return fail(arena, err);
            for (int d = 0; d < n; d++) {
                at[d] = term->tiles[k].at[dims[d]];
                size[d] = v->shape[dims[d]];
                stride[d] = v->stride[dims[d]];
            }
            tiles[k] = (cf_tile){.at = at,
                                 .view = part_of(arena, v, v->offset, n, size, stride),
                                 .row = term->tiles[k].row};
        }
        r->terms[i].tiles = tiles;
        r->terms[i].count = term->count;
    }
    return cf_arena_ok(arena, err) ? r : NULL;
}

/* The -1 of a wanted shape, filled in; the same number of elements. */
static bool whole_shape(const cf_tensor *t, const int64_t *wanted, int n, int64_t *shape,
                        cf_err *err)
{
    int open = -1;
    int64_t numel = 1;
    if (n > CF_MOST_DIMS) return cf_fail(err, CF_E_LIMIT, "more than %d dimensions", CF_MOST_DIMS);
    for (int d = 0; d < n; d++) {
        shape[d] = wanted[d];
        if (wanted[d] == -1 && open < 0) {
            open = d;
            continue;
        }
        if (wanted[d] < 0 || !cf_mul(numel, wanted[d], &numel))
            return cf_fail(err, CF_E_LAYOUT, "reshape: a size of %lld", (long long)wanted[d]);
    }
    if (open >= 0) {
        shape[open] = numel ? t->numel / numel : 0;
        numel *= shape[open];
    }
    if (numel == t->numel) return true;
    char from[256], to[256];
    cf_view_text(t->dtype, t->ndim, t->shape, from, sizeof from);
    cf_view_text(t->dtype, n, shape, to, sizeof to);
    return cf_fail(err, CF_E_LAYOUT, "reshape: %s has not the elements of %s", to, from);
}

const cf_tensor *cf_tensor_reshape(cf_arena *arena, const cf_tensor *t, const int64_t *wanted,
                                   int n, cf_err *err)
{
    int64_t shape[CF_MOST_DIMS];
    if (!whole_shape(t, wanted, n, shape, err)) return NULL;
    cf_tensor *r = frame(arena, t, n, shape);
    if (!r) return fail(arena, err);
    for (size_t i = 0; r->numel && i < t->n_terms; i++) {
        cf_tiles tiles = {.arena = arena};
        for (size_t k = 0; k < t->terms[i].count; k++)
            if (!cf_reshape_tile(&tiles, &t->terms[i].tiles[k], t->ndim, t->shape, n, shape, err))
                return NULL;
        r->terms[i].tiles = tiles.list;
        r->terms[i].count = tiles.count;
    }
    return r;
}

const cf_tensor *cf_tensor_cast(cf_arena *arena, const cf_tensor *t, cf_dtype dtype, cf_err *err)
{
    if (dtype == t->dtype) return t;
    if (!cf_cast_possible(t->dtype, dtype)) {
        cf_fail(err, CF_E_DTYPE, "%s cannot be cast to %s", cf_dtype_of(t->dtype)->name,
                cf_dtype_of(dtype)->name);
        return NULL;
    }
    cf_tensor *r = frame(arena, t, t->ndim, t->shape);
    if (!r) return fail(arena, err);
    r->dtype = dtype;
    for (size_t i = 0; i < t->n_terms; i++) {
        const cf_term *term = &t->terms[i];
        cf_tile *tiles = cf_memdup(arena, term->tiles, term->count * sizeof *tiles);
        if (!tiles) return fail(arena, err);
        for (size_t k = 0; !t->sum && k < term->count; k++) {
            cf_view *v = cf_memdup(arena, tiles[k].view, sizeof *v);
            if (!v) return fail(arena, err);
            if (!cf_cast_exact(v->stored, v->dtype)) {
                cf_fail(err, CF_L_PLAN, "a cast of a cast, %s to %s to %s",
                        cf_dtype_of(v->stored)->name, cf_dtype_of(v->dtype)->name,
                        cf_dtype_of(dtype)->name);
                return NULL;
            }
            v->dtype = dtype;
            tiles[k].view = v;
        }
        r->terms[i].tiles = tiles;
        r->terms[i].count = term->count;
    }
    return r;
}

/* Of one dtype, and of one shape but for dimension `dim` (-1: wholly). */
static bool alike(const cf_tensor *const *list, size_t count, int dim, const char *what,
                  cf_err *err)
{
    if (!count) return cf_fail(err, CF_L_PLAN, "%s: no views", what);
    for (size_t i = 1; i < count; i++) {
        bool same = list[i]->dtype == list[0]->dtype && list[i]->ndim == list[0]->ndim;
        for (int d = 0; same && d < list[0]->ndim; d++)
            same = d == dim || list[i]->shape[d] == list[0]->shape[d];
        if (same) continue;
        char a[256], b[256];
        cf_view_text(list[0]->dtype, list[0]->ndim, list[0]->shape, a, sizeof a);
        cf_view_text(list[i]->dtype, list[i]->ndim, list[i]->shape, b, sizeof b);
        return cf_fail(err, CF_L_PLAN, "%s: %s and %s do not fit", what, a, b);
    }
    return true;
}

const cf_tensor *cf_tensor_concat(cf_arena *arena, const cf_tensor *const *list, size_t count,
                                  int dim, cf_err *err)
{
    if (!alike(list, count, dim, "plan:concat", err)) return NULL;
    if (dim < 0 || dim >= list[0]->ndim) {
        cf_fail(err, CF_L_PLAN, "plan:concat: there is no dimension %d", dim);
        return NULL;
    }
    int64_t shape[CF_MOST_DIMS];
    size_t total = 0;
    memcpy(shape, list[0]->shape, list[0]->ndim * sizeof *shape);
    shape[dim] = 0;
    for (size_t i = 0; i < count; i++) {
        if (list[i]->sum) {
            cf_fail(err, CF_L_PLAN, "plan:concat: of a sum; sum what was concatenated");
            return NULL;
        }
        total += list[i]->terms[0].count;
        if (!cf_add(shape[dim], list[i]->shape[dim], &shape[dim])) {
            cf_fail(err, CF_E_OVERFLOW, "plan:concat: more than 63 bits of elements");
            return NULL;
        }
    }
    int64_t numel;
    if (!cf_numel(shape, list[0]->ndim, &numel)) {
        cf_fail(err, CF_E_OVERFLOW, "plan:concat: more than 63 bits of elements");
        return NULL;
    }
    cf_tensor *r = frame(arena, list[0], list[0]->ndim, shape);
    cf_tile *tiles = CF_NEWS(arena, cf_tile, total + 1);
    if (!r || !tiles) return fail(arena, err);
    size_t n = 0;
    int64_t place = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < list[i]->terms[0].count; k++) {
            tiles[n] = list[i]->terms[0].tiles[k];
            int64_t *at = cf_memdup(arena, tiles[n].at, r->ndim * sizeof *at);
            if (!at) return fail(arena, err);
            at[dim] += place;
            tiles[n++].at = at;
        }
        place += list[i]->shape[dim];
    }
    r->terms[0].tiles = tiles;
    r->terms[0].count = n;
    return r;
}

const cf_tensor *cf_tensor_sum(cf_arena *arena, const cf_tensor *const *list, const double *weights,
                               size_t count, cf_err *err)
{
    if (!alike(list, count, -1, "plan:sum", err)) return NULL;
    if (!cf_cast_possible(list[0]->dtype, CF_F64)) {
        cf_fail(err, CF_E_DTYPE, "plan:sum: not of %s", cf_dtype_of(list[0]->dtype)->name);
        return NULL;
    }
    cf_tensor *t = cf_memdup(arena, list[0], sizeof **list);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += list[i]->n_terms;
    cf_term *terms = CF_NEWS(arena, cf_term, n + 1);
    if (!t || !terms) return fail(arena, err);
    t->terms = terms;
    t->n_terms = n;
    t->sum = true;
    n = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < list[i]->n_terms; k++) {
            terms[n] = list[i]->terms[k];
            terms[n++].weight *= weights[i];
        }
    return t;
}

const cf_tensor *cf_tensor_range(cf_arena *arena, const cf_view *view, int64_t start, int ndim,
                                 const int64_t *shape, cf_err *err)
{
    int64_t numel = 0, end;
    if (!cf_numel(shape, ndim, &numel) || start < 0 || !cf_add(start, view->numel, &end) ||
        end > numel) {
        cf_fail(err, CF_E_BOUNDS, "elements %lld to %lld of a tensor of %lld", (long long)start,
                (long long)start + view->numel, (long long)numel);
        return NULL;
    }
    const cf_tensor *flat = cf_tensor_of_view(arena, view, NULL, err);
    const int64_t line[] = {view->numel};
    flat = flat ? cf_tensor_reshape(arena, flat, line, 1, err) : NULL;
    if (!flat) return NULL;
    cf_tensor *r = frame(arena, flat, ndim, shape);
    if (!r) return fail(arena, err);
    cf_tiles tiles = {.arena = arena};
    for (size_t k = 0; k < flat->terms[0].count; k++) {
        const int64_t at[] = {flat->terms[0].tiles[k].at[0] + start};
        cf_tile tile = flat->terms[0].tiles[k];
        tile.at = at;
        if (!cf_reshape_tile(&tiles, &tile, 1, &numel, ndim, shape, err)) return NULL;
    }
    r->terms[0].tiles = tiles.list;
    r->terms[0].count = tiles.count;
    return r;
}
