/* A bounds-checked run of bytes, of a file or of memory. Parsers see nothing else of the world.
 *
 * Borrowed: the file descriptor or the bytes, and the name, outlive the span.
 */
#ifndef CF_SPAN_H
#define CF_SPAN_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

typedef struct cf_span {
    int fd;               /* -1: bytes */
    const uint8_t *bytes; /* the first byte of the span, where fd is -1 */
    uint64_t start, size; /* of the span in the file, in bytes; start is 0 for memory */
} cf_span;

cf_span cf_span_of_file(int fd, uint64_t size);
cf_span cf_span_of_bytes(const void *bytes, size_t size);

/* n bytes at `at` of the span. E_TRUNCATED beyond its end (nothing is read), E_IO. */
bool cf_span_read(const cf_span *span, uint64_t at, void *to, size_t n, cf_err *err);
/* n bytes of a file at start + at; errors tell `at`. E_TRUNCATED at its end, E_IO. */
bool cf_read_all(int fd, uint64_t start, uint64_t at, void *to, size_t n, cf_err *err);
/* Part of a span. E_TRUNCATED if it sticks out. */
bool cf_span_part(const cf_span *span, uint64_t at, uint64_t n, cf_span *out, cf_err *err);

/* Little-endian numbers at an address of any alignment. */
static inline uint16_t cf_le16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t cf_le32(const void *p)
{
    return cf_le16(p) | (uint32_t)cf_le16((const uint8_t *)p + 2) << 16;
}

static inline uint64_t cf_le64(const void *p)
{
    return cf_le32(p) | (uint64_t)cf_le32((const uint8_t *)p + 4) << 32;
}

#endif
