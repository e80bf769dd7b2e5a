#include "torch_layout.h"

#include <libdeflate.h>
#include <stdio.h>
#include <string.h>

/* What the directory says of a record. Names are made again when it is written: a million of them
 * would cost more than all the rest. */
typedef struct record {
    uint64_t header, size;
    uint64_t storage; /* its number; NAMED + the number of a name otherwise */
    uint32_t crc;     /* where it is known already */
} record;

enum { NAME = 256, LOCAL = 30, ENTRY = 46, MOST_PADDING = CF_TORCH_ALIGN };

static const char *const NAMES[] = {
    "data.pkl",  ".format_version", ".storage_alignment",
    "byteorder", "version",         ".data/serialization_id",
};
static const uint64_t NAMED = UINT64_MAX - 15, LARGE = 0xffffffff;

static void put16(cf_text *t, unsigned value)
{
    cf_text_add(t, (char[2]){(char)value, (char)(value >> 8)}, 2);
}

static void put32(cf_text *t, uint64_t value)
{
    put16(t, value & 0xffff);
    put16(t, value >> 16 & 0xffff);
}

static void put64(cf_text *t, uint64_t value)
{
    put32(t, value & LARGE);
    put32(t, value >> 32);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int name_of(const cf_torch_layout *z, const record *r, char *name)
{
    return r->storage >= NAMED
               ? snprintf(name, NAME, "%s/%s", z->top, NAMES[r->storage - NAMED])
               : snprintf(name, NAME, "%s/data/%llu", z->top, (unsigned long long)r->storage);
}

/* Both sizes where the size needs it, the header's place where that does. */
static void put_zip64(cf_text *t, const record *r)
{
    const bool size = r->size >= LARGE, place = r->header >= LARGE;
    if (!size && !place) return;
    put16(t, 1);
    put16(t, (size ? 16u : 0u) + (place ? 8u : 0u));
    if (size) put64(t, r->size);
    if (size) put64(t, r->size);
    if (place) put64(t, r->header);
}

static size_t zip64_size(const record *r)
{
    if (r->size < LARGE && r->header < LARGE) return 0;
    return 4 + (r->size >= LARGE ? 16u : 0u) + (r->header >= LARGE ? 8u : 0u);
}

static unsigned flags_of(const record *r)
{
    return r->size ? 0x0808 : 0x0800;
}

/* Is the CRC of the record's payload known only when it is written? */
static bool is_late(const record *r)
{
    return r->size && (r->storage < NAMED || r->storage == NAMED + 5);
}

static void put_crc(cf_torch_layout *z, const record *r)
{
    if (is_late(r)) {
        const cf_torch_patch patch = {.at = z->gap.size,
                                      .storage = r->storage < NAMED ? r->storage : CF_TORCH_THE_ID};
        cf_text_add(&z->patches, &patch, sizeof patch);
    }
    put32(&z->gap, is_late(r) ? 0 : r->crc);
}

/* ---- records -----------------------------------------------------------------------------------
 */

/* Behind the payload. */
static void put_descriptor(cf_torch_layout *z, const record *r)
{
    const uint64_t before = z->gap.size;
    if (!r->size) return;
    cf_text_add(&z->gap, "PK\x07\x08", 4);
    put_crc(z, r);
    if (zip64_size(r)) {
        put64(&z->gap, r->size);
        put64(&z->gap, r->size);
    } else {
        put32(&z->gap, r->size);
        put32(&z->gap, r->size);
    }
    z->at += z->gap.size - before;
}

static void put_header(cf_torch_layout *z, record *r)
{
    char name[NAME], padding[MOST_PADDING];
    const uint64_t before = z->gap.size;
    r->header = z->at;
    const int n = name_of(z, r, name);
    const uint64_t start = z->at + LOCAL + (unsigned)n + zip64_size(r) + 4;
    const unsigned pad = (unsigned)((CF_TORCH_ALIGN - start % CF_TORCH_ALIGN) % CF_TORCH_ALIGN);
    cf_text_add(&z->gap, "PK\x03\x04\0\0", 6);
    put16(&z->gap, flags_of(r));
    cf_text_add(&z->gap, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18);
    put16(&z->gap, (unsigned)n);
    put16(&z->gap, (unsigned)zip64_size(r) + 4 + pad);
    cf_text_add(&z->gap, name, (size_t)n);
    put_zip64(&z->gap, r);
    cf_text_add(&z->gap, "FB", 2);
    put16(&z->gap, pad);
    memset(padding, 'Z', pad);
    cf_text_add(&z->gap, padding, pad);
    z->at += z->gap.size - before;
    cf_text_add(&z->records, r, sizeof *r);
}

/* The last record, if its descriptor is still to come (its payload is not in a gap). */
static const record *last(const cf_torch_layout *z)
{
    const record *all = (const record *)(const void *)z->records.at;
    return z->records.failed ? NULL : &all[z->records.size / sizeof *all - 1];
}

/* A record that is known already: header, payload and descriptor. */
static void put_known(cf_torch_layout *z, unsigned number, const void *bytes, size_t size)
{
    record r = {.size = size, .storage = NAMED + number, .crc = libdeflate_crc32(0, bytes, size)};
    put_header(z, &r);
    cf_text_add(&z->gap, bytes, size);
    z->at += size;
    put_descriptor(z, &r);
}

/* The payload before this gap has been passed: its descriptor comes first. */
static void pass_payload(cf_torch_layout *z)
{
    const record *r = last(z);
    z->gap.size = z->patches.size = 0;
    if (!r) return;
    z->at += r->size;
    put_descriptor(z, &(record){r->header, r->size, r->storage, r->crc});
}

static void mix(cf_torch_layout *z, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < size; i++) z->hash = (z->hash ^ p[i]) * 0x100000001b3; /* FNV-1a */
}

void cf_torch_layout_begin(cf_torch_layout *z, const char *top, const void *pickle, size_t size)
{
    *z = (cf_torch_layout){.top = top, .hash = 0xcbf29ce484222325};
    mix(z, pickle, size);
    put_known(z, 0, pickle, size);
    put_known(z, 1, "1", 1);
    put_known(z, 2, "64", 2);
    put_known(z, 3, "little", 6);
}

void cf_torch_layout_storage(cf_torch_layout *z, uint64_t size)
{
    if (z->n) pass_payload(z);
    record r = {.size = size, .storage = z->n++};
    mix(z, &size, sizeof size);
    put_header(z, &r);
}

void cf_torch_layout_id(cf_torch_layout *z)
{
    char digits[CF_TORCH_ID + 1];
    if (z->n) pass_payload(z);
    put_known(z, 4, "3\n", 2);
    snprintf(digits, sizeof digits, "%020llu%020d", (unsigned long long)z->hash, 0);
    memcpy(z->id, digits, sizeof z->id);
    record r = {.size = sizeof z->id, .storage = NAMED + 5};
    put_header(z, &r);
}

/* ---- the directory -----------------------------------------------------------------------------
 */

static void put_entry(cf_torch_layout *z, const record *r)
{
    char name[NAME];
    const int n = name_of(z, r, name);
    cf_text_add(&z->gap, "PK\x01\x02\0\0\0\0", 8);
    put16(&z->gap, flags_of(r));
    put16(&z->gap, 0); /* method */
    put32(&z->gap, 0); /* time and date */
    put_crc(z, r);
    put32(&z->gap, least(r->size, LARGE));
    put32(&z->gap, least(r->size, LARGE));
    put16(&z->gap, (unsigned)n);
    put16(&z->gap, (unsigned)zip64_size(r));
    cf_text_add(&z->gap, "\0\0\0\0\0\0\0\0\0\0", 10); /* comment, disk, attributes */
    put32(&z->gap, least(r->header, LARGE));
    cf_text_add(&z->gap, name, (size_t)n);
    put_zip64(&z->gap, r);
}

bool cf_torch_layout_end(cf_torch_layout *z, cf_err *err)
{
    pass_payload(z);
    const size_t before = z->gap.size;
    const uint64_t start = z->at, count = z->records.size / sizeof(record);
    CF_TRY(cf_text_ok(&z->records, err));
    for (uint64_t i = 0; i < count; i++)
        put_entry(z, &((const record *)(const void *)z->records.at)[i]);
    const uint64_t size = z->gap.size - before, end = start + size;
    cf_text_add(&z->gap, "PK\x06\x06", 4); /* of zip64 */
    put64(&z->gap, 44);
    put16(&z->gap, 0x031e);
    put16(&z->gap, 45);
    put64(&z->gap, 0);
    put64(&z->gap, count);
    put64(&z->gap, count);
    put64(&z->gap, size);
    put64(&z->gap, start);
    cf_text_add(&z->gap, "PK\x06\x07\0\0\0\0", 8); /* where that is */
    put64(&z->gap, end);
    put32(&z->gap, 1);
    cf_text_add(&z->gap, "PK\x05\x06\0\0\0\0", 8);
    put16(&z->gap, (unsigned)least(count, 0xffff));
    put16(&z->gap, (unsigned)least(count, 0xffff));
    put32(&z->gap, least(size, LARGE));
    put32(&z->gap, least(start, LARGE));
    put16(&z->gap, 0);
    z->at += z->gap.size - before;
    if (z->at > INT64_MAX) return cf_fail(err, CF_E_OVERFLOW, "an archive of more than 2^63 bytes");
    return cf_text_ok(&z->gap, err) && cf_text_ok(&z->patches, err);
}

void cf_torch_layout_free(cf_torch_layout *z)
{
    cf_text_free(&z->gap);
    cf_text_free(&z->patches);
    cf_text_free(&z->records);
}
