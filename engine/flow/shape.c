/* Exactness without an element-wise map: boxes that do not overlap and whose volumes add up to the
 * tensor's tile it. Disjointness is proved by a sweep: sorted by where they begin in the dimension
 * with most cuts, a box is held against those that reach past its beginning. Shards are cut along
 * one or two dimensions, so that few do. */
#include "shape.h"

#include <stdlib.h>
#include <string.h>

#include "num.h"
#include "view.h"

bool cf_box_inside(int ndim, const int64_t *shape, const int64_t *at, const int64_t *size,
                   cf_err *err)
{
    for (int d = 0; d < ndim; d++) {
        int64_t end;
        if (at[d] < 0 || size[d] < 0 || shape[d] < 0 || !cf_add(at[d], size[d], &end) ||
            end > shape[d])
            return cf_fail(err, CF_E_BOUNDS,
                           "a piece of %lld at %lld of a tensor of %lld, in dimension %d",
                           (long long)size[d], (long long)at[d], (long long)shape[d], d);
    }
    return true;
}

static _Thread_local int sort_dim, sort_ndim;

static int by_place(const void *a, const void *b)
{
    const cf_box *x = a, *y = b;
    int64_t l = x->at[sort_dim], r = y->at[sort_dim];
    for (int d = 0; l == r && d < sort_ndim; d++) {
        l = x->at[d];
        r = y->at[d];
    }
    return l < r ? -1 : l > r ? 1 : x->number < y->number ? -1 : x->number > y->number;
}

static bool overlap(int ndim, const cf_box *a, const cf_box *b)
{
    for (int d = 0; d < ndim; d++)
        if (a->at[d] >= b->at[d] + b->size[d] || b->at[d] >= a->at[d] + a->size[d]) return false;
    return true;
}

/* The dimension along which the boxes begin at most places, roughly: most changes in order. */
static int most_cut(int ndim, const cf_box *boxes, size_t count)
{
    int best = 0;
    size_t most = 0;
    for (int d = 0; d < ndim; d++) {
        size_t cuts = 0;
        for (size_t i = 1; i < count; i++) cuts += boxes[i].at[d] != boxes[i - 1].at[d];
        if (cuts > most) {
            most = cuts;
            best = d;
        }
    }
    return best;
}

/* The first stretch of dimension `dim` whose slab is not full. Boxes are sorted along it. Volumes
 * are of disjoint boxes, so that a slab with too little is one with a hole. */
static void find_hole(int ndim, const int64_t *shape, const cf_box *boxes, size_t count, int dim,
                      cf_cover_fault *fault)
{
    int64_t slab = 1;
    for (int d = 0; d < ndim; d++)
        if (d != dim) slab *= shape[d];
    fault->dim = dim;
    for (int64_t from = 0; from < shape[dim];) {
        int64_t to = shape[dim], volume = 0;
        for (size_t i = 0; i < count; i++) {
            const int64_t begin = boxes[i].at[dim], end = begin + boxes[i].size[dim];
            if (begin > from) to = cf_min(to, begin);
            if (end > from) to = cf_min(to, end);
            if (begin <= from && end > from) {
                int64_t n = 1;
                for (int d = 0; d < ndim; d++)
                    if (d != dim) n *= boxes[i].size[d];
                volume += n;
            }
        }
        if (volume < slab) {
            fault->from = from;
            fault->to = to;
            return;
        }
        from = to;
    }
}

cf_cover cf_boxes_cover(int ndim, const int64_t *shape, cf_box *boxes, size_t count,
                        cf_cover_fault *fault)
{
    int64_t numel = 0, volume = 0;
    cf_numel(shape, ndim, &numel);
    for (size_t i = 0; i < count; i++) {
        int64_t n = 1;
        for (int d = 0; d < ndim; d++) n *= boxes[i].size[d];
        /* more than 63 bits of volume can only be overlap; the sweep will find it */
        if (!cf_add(volume, n, &volume)) volume = INT64_MAX;
    }
    const int dim = most_cut(ndim, boxes, count);
    if (ndim) {
        sort_dim = dim;
        sort_ndim = ndim;
        qsort(boxes, count, sizeof *boxes, by_place);
    }
    size_t first = 0; /* boxes before it end before every later one begins */
    for (size_t i = 1; i < count; i++) {
        while (ndim && first < i &&
               boxes[first].at[dim] + boxes[first].size[dim] <= boxes[i].at[dim])
            first++;
        for (size_t k = first; k < i; k++)
            if (overlap(ndim, &boxes[k], &boxes[i])) {
                fault->a = boxes[k].number < boxes[i].number ? boxes[k].number : boxes[i].number;
                fault->b = boxes[k].number + boxes[i].number - fault->a;
                return CF_COVER_OVERLAP;
            }
    }
    if (volume == numel) return CF_COVER_EXACT;
    *fault = (cf_cover_fault){.missing = numel - volume, .to = 1};
    if (ndim) find_hole(ndim, shape, boxes, count, dim, fault);
    return CF_COVER_HOLE;
}

/* Cut at dimension d: whole indices of it make one box, what is left at either end is cut on. */
static bool cut(int d, int ndim, const int64_t *shape, const int64_t *slab, int64_t *at,
                int64_t *size, int64_t from, int64_t to, cf_take_box *take, void *ctx)
{
    if (from >= to) return true;
    if (d == ndim - 1) {
        at[d] = from;
        size[d] = to - from;
        return take(ctx, at, size);
    }
    const int64_t each = slab[d];
    int64_t first = from / each, last = (to - 1) / each;
    if (first == last && (from % each || to % each)) {
        at[d] = first;
        size[d] = 1;
        return cut(d + 1, ndim, shape, slab, at, size, from - first * each, to - first * each, take,
                   ctx);
    }
    if (from % each) {
        at[d] = first;
        size[d] = 1;
        if (!cut(d + 1, ndim, shape, slab, at, size, from % each, each, take, ctx)) return false;
        first++;
    }
    const int64_t tail = to % each, whole = tail ? last : last + 1;
    if (first < whole) {
        at[d] = first;
        size[d] = whole - first;
        for (int k = d + 1; k < ndim; k++) {
            at[k] = 0;
            size[k] = shape[k];
        }
        if (!take(ctx, at, size)) return false;
    }
    if (!tail) return true;
    at[d] = last;
    size[d] = 1;
    return cut(d + 1, ndim, shape, slab, at, size, 0, tail, take, ctx);
}

bool cf_range_boxes(int ndim, const int64_t *shape, int64_t from, int64_t to, cf_take_box *take,
                    void *ctx)
{
    int64_t at[CF_MOST_DIMS + 1] = {0}, size[CF_MOST_DIMS + 1] = {0}, slab[CF_MOST_DIMS + 1];
    if (from >= to) return true;
    if (ndim == 0) return take(ctx, at, size);
    slab[ndim - 1] = 1;
    for (int d = ndim - 2; d >= 0; d--) slab[d] = slab[d + 1] * shape[d + 1];
    return cut(0, ndim, shape, slab, at, size, from, to, take, ctx);
}
