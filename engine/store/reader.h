/* Ways of bringing a file's bytes into memory: the same bytes, another path through the kernel.
 *
 *   pread   copied by the kernel from the page cache: measured, the fastest of all; what `auto` is
 *   mmap    mapped in windows of 1 MiB and copied from there; a window that is left is unmapped, so
 *           that its pages do not stay in the process (read_map.c)
 *   direct  O_DIRECT into windows of aligned memory, past the page cache; who reads on gets 1 MiB
 * at a time, as nobody else reads ahead then (read_direct.c)
 *
 * A file that a way does not work for (a file system without maps or O_DIRECT) is read with pread.
 * Whatever the way: E_TRUNCATED for a file that became shorter, E_IO for one that cannot be read.
 */
#ifndef CF_READER_H
#define CF_READER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "err.h"

typedef enum cf_io { CF_IO_AUTO, CF_IO_PREAD, CF_IO_MMAP, CF_IO_DIRECT } cf_io;

/* A file, shared by all threads. */
typedef struct cf_input {
    int fd;            /* borrowed */
    int direct;        /* the same file opened with O_DIRECT, or -1 */
    uint64_t align;    /* of offsets, lengths and memory of direct reads */
    uint64_t size;     /* when it was opened */
    atomic_bool plain; /* the way asked for does not work here: pread */
} cf_input;

enum { CF_READ_WINDOWS = 8 }; /* that a thread holds */

typedef struct cf_read_window {
    const cf_input *input; /* NULL: the window is empty */
    uint64_t start;        /* in the file */
    uint8_t *at;
    size_t size;
    bool used; /* since the hand came by: the first one that was not is given up */
} cf_read_window;

/* What a thread owns. */
typedef struct cf_reader {
    cf_io io;
    size_t window; /* bytes */
    cf_read_window windows[CF_READ_WINDOWS];
    int hand;
} cf_reader;

/* fd: open for reading, of `size` bytes; stays the caller's. Cannot fail: at worst it is `plain`.
 */
void cf_input_open(cf_input *input, cf_io io, int fd, uint64_t size);
void cf_input_close(cf_input *input);

/* Memory of one reader that does well, in bytes; 0 for pread. */
uint64_t cf_reader_memory(cf_io io);
/* memory: that, or a power of two less of it, down to a sixteenth. */
void cf_reader_start(cf_reader *reader, cf_io io, uint64_t memory);
void cf_reader_end(cf_reader *reader);

/* n bytes at `at` of the file, which the caller knows to be in it. */
bool cf_reader_read(cf_reader *reader, cf_input *input, uint64_t at, void *to, size_t n,
                    cf_err *err);
/* Bytes that lie one after another, to `count` places (at most IOV_MAX); iov is changed. */
bool cf_reader_scatter(cf_reader *reader, cf_input *input, uint64_t at, struct iovec *iov,
                       int count, cf_err *err);

/* The ways, for reader.c. done: bytes that were had, from the front; what is missing at the end is
 * asked for with pread, which says what is wrong. */
size_t cf_read_map(cf_reader *reader, cf_input *input, uint64_t at, void *to, size_t n);
size_t cf_read_direct(cf_reader *reader, cf_input *input, uint64_t at, void *to, size_t n);
void cf_read_direct_open(cf_input *input);
void cf_read_map_end(cf_reader *reader);
void cf_read_direct_end(cf_reader *reader);
/* The window that holds byte `at`, or NULL. */
cf_read_window *cf_read_window_of(cf_reader *reader, const cf_input *input, uint64_t at);
/* One to be filled anew. */
cf_read_window *cf_read_window_free(cf_reader *reader);

#endif
