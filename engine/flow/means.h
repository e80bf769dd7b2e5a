/* What a run works with: threads, buffers, the way of reading, so that it stays within --max-mem.
 *
 * Memory is (buffers a thread) x threads, whatever the size of the checkpoint; the plan itself and
 * checksums in the making are metadata and come on top. Where the buffers do not fit, they shrink,
 * those of transposed tensors first, then all to 16 KiB; then threads are done without.
 */
#ifndef CF_MEANS_H
#define CF_MEANS_H

#include "block.h"
#include "reader.h"

enum {
    CF_TILE = 256 << 10, /* bytes of a buffer: it and its source stay in a core's L2 cache */
    CF_LEAST_TILE = 16 << 10,
    CF_WINDOW = 8 << 20, /* of an output file: the unit of scheduling */
    CF_MAX_MEM = 64 << 20
};

typedef struct cf_means {
    cf_io io; /* never CF_IO_AUTO */
    int threads;
    uint64_t tile;    /* bytes of output that are put together at a time, and read at a time */
    uint64_t tall;    /* the same of transposed tensors, at most; tile where there are none */
    uint64_t staging; /* bytes of elements that wait to be cast; 0: none are */
    uint64_t sum;     /* bytes of F64 that are added up; 0: nothing is */
    uint64_t reading; /* bytes that the way of reading takes */
    uint64_t memory;  /* bytes of all buffers of all threads */
} cf_means;

/* threads and max_mem: as asked for. E_MEMORY if one thread with the least buffers needs more. */
bool cf_means_fit(cf_means *means, const cf_block *block, int threads, cf_io io, uint64_t max_mem,
                  cf_err *err);

/* Bytes of output that bring so much of the chunk's source together that a request is worth it, at
 * most a window; 0 where the source does not lie across. */
uint64_t cf_chunk_tall(const cf_block *block, const cf_b_chunk *chunk);

/* Bytes of output to put together at a time in this chunk: more than a tile where its source lies
 * across, so that a stretch of the source is long enough to be worth a request. */
uint64_t cf_chunk_tile(const cf_block *block, const cf_b_chunk *chunk, const cf_means *means);

#endif
