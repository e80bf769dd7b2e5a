/* The output cut into windows, and windows into tiles: the same for who writes and who prices.
 *
 * Both end between elements, and between rows of a tensor where a row is short enough: a tile that
 * ends inside one costs requests of its own for the two parts.
 */
#ifndef CF_WINDOWS_H
#define CF_WINDOWS_H

#include "means.h"

typedef struct cf_window {
    uint64_t file, begin, end, chunk; /* bytes of the file; the first chunk that reaches into it */
} cf_window;

typedef struct cf_windows {
    const cf_window *list;
    uint64_t count;
} cf_windows;

/* One of several processes that write an output together: number `rank`, from 0, of `of`. */
typedef struct cf_share {
    uint32_t rank, of; /* of 0: nobody else is there */
} cf_share;

enum { CF_MOST_SHARES = 1 << 16 };

/* Those that begin in the rank's part of all bytes: they follow one another. */
cf_windows cf_windows_share(const cf_windows *all, cf_share share);

/* In the order of the files. They depend on the block alone. */
bool cf_windows_cut(cf_windows *windows, const cf_block *block, cf_arena *arena, cf_err *err);

/* Where the tile that begins at `at` of the window ends. *chunk: the number of the first chunk that
 * reaches beyond `at`, or one before; it moves on. */
uint64_t cf_tile_end(const cf_block *block, const cf_window *window, const cf_means *means,
                     uint64_t at, uint64_t *chunk);

/* One window of a file, from `at` on. *chunk: as above. */
cf_window cf_window_at(const cf_block *block, uint64_t file, uint64_t at, uint64_t *chunk);

/* The stretches of two copies that are compared: all of them, or 16 blocks of 4 KiB at places that
 * depend on the size alone. i counts up from 0; false: no more. */
static inline bool cf_compare_part(const cf_b_compare *c, uint64_t i, uint64_t *at, uint64_t *size)
{
    enum { BLOCKS = 16, BLOCK = 4096 };
    const bool all = c->all || c->size <= BLOCKS * BLOCK;
    if (i >= (all ? 1 : BLOCKS)) return false;
    *at = all ? 0 : i * ((c->size - BLOCK) / (BLOCKS - 1) / 16 * 16);
    *size = all ? c->size : BLOCK;
    return true;
}

/* The window of a job. Jobs follow one another in time; windows that are written at one time should
 * lie in distant parts of the output, as writers of one file wait for its lock: the list is cut
 * into as many parts as there are threads, and jobs go through the parts in turn. */
uint64_t cf_window_of(const cf_windows *windows, int threads, uint64_t job);

#endif
