/* Zip archives, read through their central directory: torch.save's and everybody's.
 *
 *   archive   = { local header, payload [, descriptor] }* directory [zip64 end, locator] end
 *   payload at = local header + 30 + local name length + local extra length
 *
 * torch writes local headers with CRC and sizes 0, flag bit 3 and an "FB" extra that only the
 * local header has; the directory alone is believed (APPNOTE 6.3.10; notes in
 * caffe2/serialize/inline_container.cc). An archive may begin at an offset of its span: then every
 * offset counts from there. Refused: two entries of one name, trailing bytes, wrong counts and
 * sizes, overlap, encryption, links, names that are paths out, local headers that disagree.
 * Stored payloads are located for direct reads; compressed ones go through libzip.
 */
#ifndef CF_ZIPFILE_H
#define CF_ZIPFILE_H

#include "arena.h"
#include "map.h"
#include "span.h"

typedef struct cf_zip_entry {
    const char *name; /* NUL-terminated, valid UTF-8 without control characters */
    size_t length;
    uint64_t header, end;  /* of the local header; of what lies behind: both in the span */
    uint64_t size, packed; /* bytes decoded, bytes in the file */
    uint32_t crc;
    uint16_t method, flags;
} cf_zip_entry;

enum { CF_ZIP_STORED = 0 };

typedef struct cf_zip {
    cf_span span;
    cf_zip_entry *entries; /* in the directory's order */
    size_t count;
    cf_map names;
} cf_zip;

/* Reads and checks the directory. The zip and its names live in arena. */
bool cf_zip_open(cf_zip *zip, const cf_span *span, cf_arena *arena, cf_err *err);
/* The same of one that metadata says the bounds of: an end record without a comment that is the end
 * is taken as such, as CPython and torch do, and no 64 KiB are searched for another. */
bool cf_zip_open_item(cf_zip *zip, const cf_span *span, cf_arena *arena, cf_err *err);

/* Is there an end record, whatever the file begins with? */
bool cf_zip_has_end(const cf_span *span);

/* NULL if absent. */
const cf_zip_entry *cf_zip_find(const cf_zip *zip, const char *name, size_t length);

/* Where the payload begins, in the span: reads the local header and holds it against the
 * directory (E_ZIP_MISMATCH, E_ZIP_METHOD, E_ZIP_OVERLAP). Errors name the member. */
bool cf_zip_payload(const cf_zip *zip, const cf_zip_entry *entry, uint64_t *at, cf_err *err);

/* The whole decoded member in memory, its CRC checked (a stored CRC of 0 is "not computed").
 * E_LIMIT if it is larger than `most`. */
bool cf_zip_read(const cf_zip *zip, const cf_zip_entry *entry, size_t most, cf_arena *arena,
                 const uint8_t **bytes, cf_err *err);

/* Can members of this method (not CF_ZIP_STORED) be decoded? E_ZIP_METHOD. */
bool cf_zip_supports(uint16_t method, cf_err *err);

/* Decodes a compressed member in pieces, in order: for members that do not fit in memory.
 * take returns false to stop. E_ZIP_CRC, E_STORAGE_SIZE if it decodes to more or less than the
 * directory says. Knows nothing of cf_zip, so that a worker can call it with a plan's numbers. */
typedef bool cf_take(void *ctx, const uint8_t *bytes, size_t size, cf_err *err);
bool cf_zip_decode(const cf_span *archive, const char *name, uint64_t size, cf_take *take,
                   void *ctx, cf_err *err);

#endif
