/* Where the bytes of a block's records are: sources opened and held against the plan, compressed
 * members decoded, items opened and held against what was claimed of them.
 *
 * A record that lies as it is in a file is read there. What does not (compressed, transposed,
 * big-endian) is brought into row-major order in a file without a name beside OUT, once. */
#ifndef CF_RECORDS_H
#define CF_RECORDS_H

#include <pthread.h>

#include "execute.h"
#include "gather.h"

typedef struct cf_records {
    const cf_execution *x;
    const cf_block *block;
    cf_sink *sink;
    cf_arena arena;
    cf_bytes bytes;
    uint32_t *crc; /* by number of the record, where has_crc */
    bool *has_crc;
    int *fds; /* of sources */
    pthread_mutex_t lock;
    int scratch; /* -1 until needed */
    uint64_t scratch_end;
    const bool *wanted; /* by number of the record: only those are opened; NULL: all */
} cf_records;

/* sink: where scratch goes; NULL: to the folder for temporary files. wanted: as in the struct.
 * cf_records_close after it, also when it failed. Errors name file and member. */
bool cf_records_open(cf_records *r, const cf_execution *x, cf_sink *sink, const bool *wanted,
                     cf_err *err);
/* Opens a source of the block; E_IO if it is not what it was when it was planned. */
bool cf_source_reopen(const cf_execution *x, uint64_t number, int *fd, cf_err *err);
/* Are the sources still what they were? E_IO if one was written to meanwhile: what was read may be
 * of both. */
bool cf_records_unchanged(const cf_records *r, cf_err *err);
void cf_records_close(cf_records *r);

/* Has a signal asked to stop? Then the error is set: E_INTERRUPTED. */
bool cf_stopped(const cf_execution *x, cf_err *err);
/* All of it to a file; E_SPACE, E_IO. */
bool cf_write_all(int fd, const void *bytes, uint64_t size, uint64_t at, cf_err *err);
/* Writes what memory still holds of a file and lets go of it, so that the next read comes from the
 * disk. */
bool cf_drop_cache(int fd, cf_err *err);

#endif
