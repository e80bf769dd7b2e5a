/* Boxes in row-major tensors: offsets and sizes, one of each a dimension. Elements, from 0. */
#ifndef CF_SHAPE_H
#define CF_SHAPE_H

#include <stddef.h>

#include "arena.h"

/* Does the box lie in the tensor? E_BOUNDS with both in words. A box without elements may lie
 * anywhere from 0 to the end. */
bool cf_box_inside(int ndim, const int64_t *shape, const int64_t *at, const int64_t *size,
                   cf_err *err);

typedef struct cf_box {
    const int64_t *at, *size;
    uint32_t number; /* of the piece it is of */
} cf_box;

typedef enum cf_cover { CF_COVER_EXACT, CF_COVER_HOLE, CF_COVER_OVERLAP } cf_cover;

typedef struct cf_cover_fault {
    uint32_t a, b;    /* CF_COVER_OVERLAP: numbers of two boxes that overlap */
    int dim;          /* CF_COVER_HOLE: of this dimension, */
    int64_t from, to; /* indices from..to-1 are not wholly covered */
    int64_t missing;  /* elements in no box */
} cf_cover_fault;

/* Do the boxes (inside, none empty, no two equal) tile the tensor? Exact: no box overlaps another
 * and their volumes add up. A sweep along the dimension with most cuts; boxes is reordered. */
cf_cover cf_boxes_cover(int ndim, const int64_t *shape, cf_box *boxes, size_t count,
                        cf_cover_fault *fault);

/* Elements from..to-1 of the row-major order of a grid of `ndim` sizes, as at most 2*ndim-1 boxes;
 * take gets offsets and sizes of each, in order. */
typedef bool cf_take_box(void *ctx, const int64_t *at, const int64_t *size);
bool cf_range_boxes(int ndim, const int64_t *shape, int64_t from, int64_t to, cf_take_box *take,
                    void *ctx);

#endif
