/* One box of a tensor, in another shape of the tensor: the boxes it becomes. */
#ifndef CF_RESHAPE_H
#define CF_RESHAPE_H

#include "tensor.h"

typedef struct cf_tiles {
    cf_arena *arena;
    cf_tile *list;
    size_t count, cap;
} cf_tiles;

enum { CF_MOST_TILES = 1 << 22 };

/* Adds the boxes that a tile of a tensor of shape `from` is in the shape `to` (of as many
 * elements). L_PLAN where it comes apart into more than CF_MOST_TILES. */
bool cf_reshape_tile(cf_tiles *tiles, const cf_tile *tile, int n_from, const int64_t *from,
                     int n_to, const int64_t *to, cf_err *err);

#endif
