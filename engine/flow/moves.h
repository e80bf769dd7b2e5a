/* Views turned into moves: which bytes of which record go where in a tensor. */
#ifndef CF_MOVES_H
#define CF_MOVES_H

#include "block.h"
#include "source.h"

/* Bytes up to which a record that is not moved whole and in order is read once more for its
 * checksum. */
enum { CF_SMALL_RECORD = 1 << 20 };

/* Sources and records of a block, each once. */
typedef struct cf_mover {
    cf_arena arena;
    cf_source *source;
    cf_blocker *b;
    struct cf_known_record *records; /* by storage, open addressing; heap */
    size_t n_records, cap_records;
    const cf_claim *claim; /* of the last item: many have the same */
    cf_ref claim_name;
    uint64_t claim_dims;
    uint32_t *sources; /* number + 1 by file of the listing */
    uint32_t root;     /* of the block's roots, the first of this source's; 0 */
} cf_mover;

bool cf_mover_init(cf_mover *m, cf_source *source, cf_blocker *b, cf_err *err);
void cf_mover_free(cf_mover *m);

/* The source that a file of the listing is; its number. */
uint32_t cf_mover_source(cf_mover *m, uint32_t file);
/* A whole file of the listing as a record. */
uint32_t cf_mover_file(cf_mover *m, uint32_t file);

/* Appends the move of a view into the box at `at` of a row-major tensor of `shape` (view's ndim
 * both) and dtype; its number. The view has elements. E_STORAGE_MISSING for a tensor without data,
 * E_DTYPE for a cast that there is not. */
bool cf_mover_add(cf_mover *m, const cf_view *view, const int64_t *shape, const int64_t *at,
                  cf_dtype dtype, uint64_t *number, cf_err *err);

/* The move of a view into the box at `at` (NULL: the first) of a row-major tensor of `shape`,
 * without its record and the place of its dims: 3 numbers a dimension, room for CF_MOST_DIMS of
 * them. */
void cf_move_shape(cf_b_move *move, int64_t *dims, const cf_view *view, const int64_t *shape,
                   const int64_t *at);

/* qsort's order of moves: by the element they begin at. */
int cf_move_order(const void *a, const void *b);

/* Marks moves that together read a record with a checksum wholly and once, so that it can be
 * checked as they pass; small records that are read otherwise get a check of their own. */
bool cf_mover_checks(cf_mover *m, cf_err *err);

#endif
