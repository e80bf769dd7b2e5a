/* Moves carried out: bytes of a record into a buffer of the tensor's shape. */
#ifndef CF_GATHER_H
#define CF_GATHER_H

#include "means.h"
#include "span.h"

/* A stretch of a record that was read, and its CRC-32: to be put together at the end. */
typedef struct cf_stretch {
    uint64_t number; /* of the record or chunk */
    uint64_t at, size;
    uint32_t crc;
} cf_stretch;

typedef struct cf_stretches {
    cf_stretch *items;
    size_t count, cap;
} cf_stretches;

/* Adds a stretch, joined to one that ends where it begins if that is among the latest. Heap. */
bool cf_stretch_add(cf_stretches *list, uint64_t number, uint64_t at, uint64_t size, uint32_t crc,
                    cf_err *err);
/* Sorts, and tells whether number's stretches tile 0..size-1; crc is of all of it. */
void cf_stretches_sort(cf_stretches *list);
bool cf_stretches_whole(const cf_stretches *list, uint64_t number, uint64_t size, uint32_t *crc);

/* Where the bytes of each record are: opened once, shared by all threads. */
typedef struct cf_bytes {
    const cf_block *block;
    cf_span *records; /* by number: the payload alone */
    cf_input *inputs; /* by number of the source; NULL: all records are read as spans */
} cf_bytes;

/* What a thread owns. */
typedef struct cf_gather {
    const cf_bytes *bytes;
    const cf_means *means;
    cf_reader reader;
    uint8_t *scratch;     /* a tile */
    double *sum;          /* what was added up, and the next term, a tile each; NULL until needed */
    uint8_t *staging;     /* elements to be cast; NULL until needed */
    cf_stretches checked; /* of records */
    uint64_t read, requests;
    uint64_t scratched; /* dry: bytes of scratch that were used at a time */
    bool dry; /* nothing is read or changed, only counted: `bytes` needs its block alone */
} cf_gather;

bool cf_gather_start(cf_gather *g, const cf_bytes *bytes, const cf_means *means, cf_err *err);
/* A dry one has no memory to give back. */
void cf_gather_dry(cf_gather *g, const cf_bytes *bytes, const cf_means *means);
void cf_gather_end(cf_gather *g);

/* n bytes at `at` of a record, the way it is asked for. Errors name the file. */
bool cf_gather_read(cf_gather *g, uint64_t record, uint64_t at, void *to, uint64_t n, cf_err *err);

/* Bytes from..to-1 of the chunk that the moves first..first+count-1 fill, into buffer; both are
 * multiples of an element. *crc is set and *known if the CRC-32 of the result came for free. */
bool cf_gather_fill(cf_gather *g, uint64_t first, uint64_t count, uint64_t from, uint64_t to,
                    uint8_t *buffer, uint32_t *crc, bool *known, cf_err *err);
/* The same of a chunk, whatever fills it. */
bool cf_gather_chunk(cf_gather *g, const cf_b_chunk *chunk, uint64_t from, uint64_t to,
                     uint8_t *buffer, uint32_t *crc, bool *known, cf_err *err);

#endif
