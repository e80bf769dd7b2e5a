/* A reshape works on groups of dimensions with equal products: [12, 5] -> [3, 4, 5] is {12} -> {3,
 * 4} and {5} -> {5}. In a group, a box is a set of runs of the group's row-major order that lie
 * evenly in the storage; each run is at most 2k-1 boxes of the new dimensions. Groups are
 * independent: what a box becomes is the product of what its groups do. */
#include "reshape.h"

#include <string.h>

#include "num.h"
#include "shape.h"

/* What one group makes of the box: places, sizes and strides in the new dimensions, and how far
 * into the view it begins. */
typedef struct fragment {
    int64_t at[CF_MOST_DIMS], size[CF_MOST_DIMS], stride[CF_MOST_DIMS];
    int64_t skip; /* elements of the storage */
} fragment;

typedef struct work {
    cf_tiles *tiles;
    const cf_tile *tile;
    int n_from, n_to;
    const int64_t *from, *to;
    fragment done; /* of the groups before the one at hand */
    cf_err *err;
} work;

/* One group, and the run of it that is being cut. */
typedef struct group {
    work *w;
    int first_from, end_from, first_to, end_to;
    int64_t
        slab[CF_MOST_DIMS];    /* elements of the group that an index of each new dimension spans */
    int64_t begin, step, skip; /* the run: its first element, its stride, how far into the view */
} group;

static bool next_group(work *w, int from, int to);

static bool emit(work *w)
{
    cf_tiles *tiles = w->tiles;
    if (tiles->count >= CF_MOST_TILES)
        return cf_fail(w->err, CF_L_PLAN, "a reshape that comes apart into millions of pieces");
    cf_tile *tile = CF_PUSH(tiles->arena, tiles->list, tiles->count, tiles->cap);
    cf_view *v = cf_memdup(tiles->arena, w->tile->view, sizeof *v);
    int64_t *dims = cf_alloc(tiles->arena, 3 * (size_t)w->n_to * sizeof *dims);
    if (!tile || !v || !dims) return cf_arena_ok(tiles->arena, w->err);
    const size_t bytes = (size_t)w->n_to * sizeof *dims;
    if (bytes) {
        memcpy(dims, w->done.at, bytes);
        memcpy(dims + w->n_to, w->done.size, bytes);
        memcpy(dims + 2 * w->n_to, w->done.stride, bytes);
    }
    v->offset += (uint64_t)(w->done.skip * cf_dtype_size(v->stored));
    v->ndim = (uint8_t)w->n_to;
    v->shape = dims + w->n_to;
    v->stride = dims + 2 * w->n_to;
    cf_numel(v->shape, w->n_to, &v->numel);
    *tile = (cf_tile){.at = dims, .view = v, .row = w->tile->row};
    return true;
}

static bool take_box(void *ctx, const int64_t *at, const int64_t *size)
{
    group *g = ctx;
    work *w = g->w;
    int64_t place = 0;
    for (int d = g->first_to; d < g->end_to; d++) {
        const int k = d - g->first_to;
        w->done.at[d] = at[k];
        w->done.size[d] = size[k];
        w->done.stride[d] = g->step * g->slab[k];
        place += at[k] * g->slab[k];
    }
    const int64_t skip = w->done.skip;
    w->done.skip += g->skip + (place - g->begin) * g->step;
    const bool ok = next_group(w, g->end_from, g->end_to);
    w->done.skip = skip;
    return ok;
}

/* The runs of the box within a group: indices of the dimensions before `inner` one by one; those
 * from it on are one run of `length` elements, `step` apart. */
static bool runs(group *g, int d, int inner, int64_t place, int64_t skip, int64_t length)
{
    work *w = g->w;
    const cf_view *v = w->tile->view;
    int64_t slab = 1;
    for (int k = d + 1; k < g->end_from; k++) slab *= w->from[k];
    if (d == inner) {
        for (int k = inner; k < g->end_from; k++) {
            int64_t each = 1;
            for (int j = k + 1; j < g->end_from; j++) each *= w->from[j];
            place += w->tile->at[k] * each;
        }
        g->begin = place;
        g->skip = skip;
        return cf_range_boxes(g->end_to - g->first_to, w->to + g->first_to, place, place + length,
                              take_box, g);
    }
    for (int64_t i = 0; i < v->shape[d]; i++)
        if (!runs(g, d + 1, inner, place + (w->tile->at[d] + i) * slab, skip + i * v->stride[d],
                  length))
            return false;
    return true;
}

static bool do_group(group *g)
{
    work *w = g->w;
    const cf_view *v = w->tile->view;
    for (int d = g->end_to - 1; d >= g->first_to; d--)
        g->slab[d - g->first_to] =
            d == g->end_to - 1 ? 1 : g->slab[d + 1 - g->first_to] * w->to[d + 1];
    /* inner dimensions that lie evenly and are covered wholly join the one outside them */
    int inner = g->end_from - 1;
    int64_t length = v->shape[inner];
    g->step = v->stride[inner];
    bool full = v->shape[inner] == w->from[inner];
    while (inner > g->first_from && full) {
        const int64_t outer = v->shape[inner - 1], stride = v->stride[inner - 1];
        if (length == 1)
            g->step = stride;
        else if (outer != 1 && stride != g->step * length)
            break;
        inner--;
        length *= outer;
        full = outer == w->from[inner];
    }
    return runs(g, g->first_from, inner, 0, 0, length);
}

/* The next dimensions on both sides whose products are equal; a size of 1 stands alone. */
static bool next_group(work *w, int from, int to)
{
    if (from < w->n_from && w->from[from] == 1) return next_group(w, from + 1, to);
    if (to < w->n_to && w->to[to] == 1) {
        w->done.at[to] = 0;
        w->done.size[to] = 1;
        w->done.stride[to] = 1;
        return next_group(w, from, to + 1);
    }
    if (from == w->n_from) return emit(w);
    group g = {.w = w, .first_from = from, .first_to = to, .end_from = from + 1, .end_to = to + 1};
    int64_t a = w->from[from], b = w->to[to];
    while (a != b) {
        if (a < b)
            a *= w->from[g.end_from++];
        else
            b *= w->to[g.end_to++];
    }
    return do_group(&g);
}

bool cf_reshape_tile(cf_tiles *tiles, const cf_tile *tile, int n_from, const int64_t *from,
                     int n_to, const int64_t *to, cf_err *err)
{
    work w = {.tiles = tiles,
              .tile = tile,
              .n_from = n_from,
              .n_to = n_to,
              .from = from,
              .to = to,
              .err = err};
    return next_group(&w, 0, 0);
}
