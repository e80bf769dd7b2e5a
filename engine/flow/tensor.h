/* A tensor that is nowhere yet: boxes of views that together make it up. What a view is in Lua.
 *
 * Every operation gives a new one and reads nothing; it fails only on shapes. A tensor is one term,
 * or the weighted sum of several of the same shape (computed in F64 when it is carried out).
 * Everything lives in the arena that is given; shapes and places count elements, from 0.
 */
#ifndef CF_TENSOR_H
#define CF_TENSOR_H

#include "catalogue.h"

typedef struct cf_tile {
    const int64_t *at; /* offsets of the box in the tensor; its sizes are the view's */
    const cf_view *view;
    cf_row *row; /* whose elements these are, for the account of what is written; NULL: nobody's */
} cf_tile;

typedef struct cf_term {
    const cf_tile *tiles; /* disjoint; they cover the tensor */
    size_t count;
    double weight;
} cf_term;

typedef struct cf_tensor {
    cf_dtype dtype;
    uint8_t ndim;
    bool sum; /* weights count: more than one term, or one that is scaled */
    const int64_t *shape;
    int64_t numel;
    cf_term *terms;
    size_t n_terms;
} cf_tensor;

/* NULL with err filled: E_BOUNDS (places), E_LAYOUT (shapes that do not fit), L_PLAN (not
 * possible), E_DTYPE, E_MEMORY. */
const cf_tensor *cf_tensor_of_view(cf_arena *arena, const cf_view *view, cf_row *row, cf_err *err);
/* The whole row, whatever its pieces. Its kept pieces cover it: cf_catalogue_finish saw to that. */
const cf_tensor *cf_tensor_of_row(cf_arena *arena, cf_row *row, cf_err *err);

const cf_tensor *cf_tensor_slice(cf_arena *arena, const cf_tensor *t, int64_t from, int64_t to,
                                 int dim, cf_err *err);
const cf_tensor *cf_tensor_permute(cf_arena *arena, const cf_tensor *t, const int64_t *dims, int n,
                                   cf_err *err);
/* One of the sizes may be -1: what is left. */
const cf_tensor *cf_tensor_reshape(cf_arena *arena, const cf_tensor *t, const int64_t *shape, int n,
                                   cf_err *err);
const cf_tensor *cf_tensor_cast(cf_arena *arena, const cf_tensor *t, cf_dtype dtype, cf_err *err);
const cf_tensor *cf_tensor_concat(cf_arena *arena, const cf_tensor *const *list, size_t count,
                                  int dim, cf_err *err);
/* In the dtype of the first. */
const cf_tensor *cf_tensor_sum(cf_arena *arena, const cf_tensor *const *list, const double *weights,
                               size_t count, cf_err *err);

/* The elements start..start+numel-1 of the row-major order of a tensor of `shape`, taken from a
 * view of any shape: the boxes they are, as tiles of one term. E_BOUNDS. */
const cf_tensor *cf_tensor_range(cf_arena *arena, const cf_view *view, int64_t start, int ndim,
                                 const int64_t *shape, cf_err *err);

#endif
