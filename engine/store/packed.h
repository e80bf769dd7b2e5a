/* Files that are compressed as a whole (rank0.pt.zst, rank0.pt.gz): what each became.
 *
 * A parser needs any byte at any time, so such a file is unpacked once, before a checkpoint is
 * listed, into a file without a name (flow/unpack.c); what lists and opens files then hands that
 * out in its place, under the name without the suffix. The table is made before the planner is
 * forked and never changed: both processes read the same unpacked bytes. */
#ifndef CF_PACKED_H
#define CF_PACKED_H

#include <stddef.h>

#include "err.h"

typedef enum cf_packing { CF_NOT_PACKED, CF_ZSTD, CF_GZIP } cf_packing;

typedef struct cf_packed {
    uint64_t device, inode, size; /* of the compressed file */
    int64_t mtime_ns;
    cf_packing packing;
    int fd; /* of its content; -1: */
    cf_err err;
    uint64_t unpacked; /* bytes of the content */
} cf_packed;

/* What is a checkpoint's file but for one more suffix: which packing, and the length of the path
 * without that. Other compressed files (logs, archives) are none of our business. */
cf_packing cf_packed_suffix(const char *path, size_t *stem);

/* Sets the table; borrowed for the life of the process. */
void cf_packed_set(const cf_packed *list, size_t count);
/* The entry of a file, by what fstat says of it; NULL: it is as it is. */
const cf_packed *cf_packed_find(uint64_t device, uint64_t inode, uint64_t size, int64_t mtime_ns);
/* A descriptor of the content, for the caller to close; or why there is none. */
bool cf_packed_open(const cf_packed *packed, int *fd, cf_err *err);

#endif
