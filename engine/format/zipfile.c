/* See zip.h. Field offsets are APPNOTE 6.3.10's: 4.3.7 local header, 4.3.12 directory header,
 * 4.3.14 to 4.3.16 end records, 4.5.3 zip64 extra field.
 *
 * The rules on duplicates, trailing bytes and end records are those of PyPI (August 2025). The
 * directory is read in one go and stays in the arena, names lie in it. A local header is looked at
 * only when its payload is wanted: 30 bytes and the name in one read. Real torch files: CRC and
 * sizes there are 0 under flag bit 3, and behind 4 GiB a zip64 extra holds an offset instead of
 * sizes, so that it is looked at only where a size field says so.
 */
#include "zipfile.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "text.h"

enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    MOST_TAIL = END + UINT16_MAX, /* an end record and its comment */
    MOST_NAME = 4096,
    MOST_DIRECTORY = 1 << 30, /* about ten million members */
    DEFLATE = 8,
    DEFLATE_RATIO = 1032 /* the most that deflate can squeeze */
};

enum { SIG_LOCAL = 0x04034b50, SIG_CENTRAL = 0x02014b50, SIG_END = 0x06054b50 };
enum { SIG_END64 = 0x06064b50, SIG_LOCATOR = 0x07064b50 };
enum { DESCRIPTOR = 1 << 3, HIDDEN = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 13 };

/* What the end records say, placed in the span. */
typedef struct ends {
    uint64_t directory, size, count;
} ends;

/* The end record whose comment reaches exactly to the end of the span. */
static bool find_end(const cf_span *span, bool item, uint64_t *at, uint8_t record[END], cf_err *err)
{
    if (span->size < END)
        return cf_fail(err, CF_E_TRUNCATED, "%llu bytes are too few for a zip archive",
                       (unsigned long long)span->size);
    if (item) {
        *at = span->size - END;
        CF_TRY(cf_span_read(span, *at, record, END, err));
        if (cf_le32(record) == SIG_END && !cf_le16(record + 20)) return true;
    }
    uint8_t tail[MOST_TAIL];
    const size_t n = span->size < MOST_TAIL ? (size_t)span->size : MOST_TAIL;
    CF_TRY(cf_span_read(span, span->size - n, tail, n, err));
    size_t fits = 0, where = 0, loose = n; /* loose: one that something follows */
    for (size_t i = n - END + 1; i-- > 0;) {
        if (cf_le32(tail + i) != SIG_END) continue;
        if (i + END + cf_le16(tail + i + 20) == n) {
            fits++;
            where = i;
        } else if (loose == n) {
            loose = i;
        }
    }
    if (fits > 1) return cf_fail(err, CF_E_ZIP_STRUCT, "%zu zip end records, one in another", fits);
    if (!fits && loose < n)
        return cf_fail_at(err, CF_E_ZIP_STRUCT, (int64_t)(span->size - n + loose),
                          "the zip end record is not the end: %zu bytes follow, it says %u",
                          n - loose - END, cf_le16(tail + loose + 20));
    if (!fits) {
        cf_fail(err, CF_E_ZIP_STRUCT, "no zip end record in %llu bytes",
                (unsigned long long)span->size);
        return cf_err_hint(err, "the file was cut off, or its copy was never finished");
    }
    *at = span->size - n + where;
    memcpy(record, tail + where, END);
    return true;
}

bool cf_zip_has_end(const cf_span *span)
{
    uint8_t tail[MOST_TAIL];
    const size_t n = span->size < MOST_TAIL ? (size_t)span->size : MOST_TAIL;
    cf_err err;
    if (n < END || !cf_span_read(span, span->size - n, tail, n, &err)) return false;
    for (size_t i = n - END + 1; i-- > 0;)
        if (cf_le32(tail + i) == SIG_END) return true;
    return false;
}

/* A field of the plain end record is all ones, or what the zip64 record says. */
static bool agrees(uint64_t small, uint64_t ones, uint64_t wide)
{
    return small == ones || small == wide;
}

static bool read_ends(const cf_span *span, bool item, ends *out, cf_err *err)
{
    uint8_t end[END], locator[LOCATOR], wide[END64];
    uint64_t at;
    CF_TRY(find_end(span, item, &at, end, err));
    uint64_t here = cf_le16(end + 8), size = cf_le32(end + 12), offset = cf_le32(end + 16);
    uint64_t disks = cf_le16(end + 4) | cf_le16(end + 6);
    out->count = cf_le16(end + 10);
    if (at >= LOCATOR) CF_TRY(cf_span_read(span, at - LOCATOR, locator, LOCATOR, err));
    if (at >= LOCATOR && cf_le32(locator) == SIG_LOCATOR) {
        if (at < LOCATOR + END64)
            return cf_fail(err, CF_E_ZIP_STRUCT, "a zip64 locator without its record");
        at -= LOCATOR + END64;
        CF_TRY(cf_span_read(span, at, wide, END64, err));
        if (cf_le32(wide) != SIG_END64 || cf_le64(wide + 4) != END64 - 12)
            return cf_fail_at(err, CF_E_ZIP_STRUCT, (int64_t)at,
                              "no zip64 end record of %d bytes here", END64);
        if (!agrees(here, UINT16_MAX, cf_le64(wide + 24)) ||
            !agrees(out->count, UINT16_MAX, cf_le64(wide + 32)) ||
            !agrees(size, UINT32_MAX, cf_le64(wide + 40)) ||
            !agrees(offset, UINT32_MAX, cf_le64(wide + 48)))
            return cf_fail(err, CF_E_ZIP_STRUCT, "the two zip end records disagree");
        disks = cf_le32(wide + 16) | cf_le32(wide + 20) | cf_le32(locator + 4);
        here = cf_le64(wide + 24);
        out->count = cf_le64(wide + 32);
        size = cf_le64(wide + 40);
        offset = cf_le64(wide + 48);
        if (cf_le64(locator + 8) - offset != size || cf_le32(locator + 16) > 1)
            return cf_fail(err, CF_E_ZIP_STRUCT, "the zip64 locator points elsewhere");
    }
    if (disks || here != out->count)
        return cf_fail(err, CF_E_ZIP_STRUCT, "a zip archive of several disks");
    if (size > at || offset > at - size)
        return cf_fail(err, CF_E_ZIP_STRUCT,
                       "a zip directory of %llu bytes at %llu does not end at its end record, %llu",
                       (unsigned long long)size, (unsigned long long)offset,
                       (unsigned long long)at);
    if (out->count > size / CENTRAL)
        return cf_fail(err, CF_E_ZIP_STRUCT, "%llu entries in a zip directory of %llu bytes",
                       (unsigned long long)out->count, (unsigned long long)size);
    if (size > MOST_DIRECTORY)
        return cf_fail(err, CF_E_LIMIT, "a zip directory of %llu bytes, at most %d",
                       (unsigned long long)size, MOST_DIRECTORY);
    if (offset < at - size)
        return cf_fail(err, CF_E_ZIP_STRUCT,
                       "the zip archive lies behind %llu bytes that do not belong to it",
                       (unsigned long long)(at - size - offset));
    out->directory = offset;
    out->size = size;
    return true;
}

/* The zip64 field among extra fields; empty if there is none. False: fields run over the end. */
static bool find_zip64(const uint8_t *extra, size_t n, const uint8_t **field, size_t *size)
{
    *size = 0;
    for (size_t at = 0; n - at >= 4;) {
        const size_t body = cf_le16(extra + at + 2);
        if (body > n - at - 4) return false;
        if (cf_le16(extra + at) == 1) {
            *field = extra + at + 4;
            *size = body;
            return true;
        }
        at += 4 + body;
    }
    return true;
}

/* A 32-bit field that is all ones is the next number of the zip64 field. */
static bool widen(uint64_t *value, const uint8_t **field, size_t *left)
{
    if (*value != UINT32_MAX) return true;
    if (*left < 8) return false;
    *value = cf_le64(*field);
    *field += 8;
    *left -= 8;
    return true;
}

static bool has_control(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f) return true;
        if (c == 0xc2 && (unsigned char)name[i + 1] < 0xa0) return true; /* U+0080 to U+009F */
    }
    return false;
}

/* Does it stay below a folder, by every system's reading? One "/" may end it: a folder. */
static bool stays_below(const char *name, size_t n)
{
    const char letter = (char)(name[0] | 0x20);
    if (letter >= 'a' && letter <= 'z' && n > 1 && name[1] == ':') return false;
    if (memchr(name, '\\', n)) return false;
    for (size_t from = 0; from < n;) {
        const char *slash = memchr(name + from, '/', n - from);
        const size_t part = slash ? (size_t)(slash - name) - from : n - from;
        if (part == 0 || (part == 2 && memcmp(name + from, "..", 2) == 0)) return false;
        from += part + 1;
    }
    return true;
}

static bool check_name(const char *name, size_t n, size_t number, cf_err *err)
{
    if (n == 0) return cf_fail(err, CF_E_PATH, "zip entry %zu has no name", number);
    if (n > MOST_NAME)
        return cf_fail(err, CF_E_LIMIT, "the name of zip entry %zu has %zu bytes, at most %d",
                       number, n, MOST_NAME);
    if (cf_utf8_valid(name, n) != n)
        return cf_fail(err, CF_E_UTF8, "the name of zip entry %zu is not UTF-8", number);
    if (has_control(name, n))
        return cf_fail(err, CF_E_PATH, "the name of zip entry %zu has control characters", number);
    if (!stays_below(name, n))
        return cf_fail(err, CF_E_PATH, "the name of zip entry %zu leads out of its folder: %.*s",
                       number, (int)n, name);
    return true;
}

/* One directory header of `left` bytes; *used is its length. The name moves one byte down, over a
 * field that was read, so that a NUL fits behind it. */
static bool read_entry(uint8_t *h, size_t left, const ends *e, size_t number, cf_zip_entry *out,
                       size_t *used, cf_err *err)
{
    if (left < CENTRAL || cf_le32(h) != SIG_CENTRAL)
        return cf_fail(err, CF_E_ZIP_STRUCT, "zip directory entry %zu of %llu is none", number,
                       (unsigned long long)e->count);
    const size_t n = cf_le16(h + 28), extra = cf_le16(h + 30), comment = cf_le16(h + 32);
    *used = CENTRAL + n + extra + comment;
    if (*used > left)
        return cf_fail(err, CF_E_ZIP_STRUCT, "zip directory entry %zu runs over its end", number);
    CF_TRY(check_name((const char *)h + CENTRAL, n, number, err));

    uint64_t offset = cf_le32(h + 42);
    *out = (cf_zip_entry){.name = (const char *)h + CENTRAL - 1,
                          .length = n,
                          .size = cf_le32(h + 24),
                          .packed = cf_le32(h + 20),
                          .crc = cf_le32(h + 16),
                          .method = cf_le16(h + 10),
                          .flags = cf_le16(h + 8)};
    const mode_t mode = cf_le32(h + 38) >> 16; /* 0 but from Unix writers */
    const uint16_t disk = cf_le16(h + 34);
    const uint8_t *field = NULL;
    size_t rest;
    const bool fits = find_zip64(h + CENTRAL + n, extra, &field, &rest) &&
                      widen(&out->size, &field, &rest) && widen(&out->packed, &field, &rest) &&
                      widen(&offset, &field, &rest);
    memmove(h + CENTRAL - 1, h + CENTRAL, n);
    h[CENTRAL - 1 + n] = '\0';

    if (out->flags & HIDDEN) {
        cf_fail(err, CF_E_ZIP_ENCRYPTED, "is encrypted, masked or a patch (flags 0x%x)",
                out->flags);
    } else if (S_ISLNK(mode)) {
        cf_fail(err, CF_E_PATH, "is a symbolic link");
    } else if ((mode & S_IFMT) && !S_ISREG(mode) && !S_ISDIR(mode)) {
        cf_fail(err, CF_E_NOT_REGULAR, "is a device, a pipe or a socket");
    } else if (disk) {
        cf_fail(err, CF_E_ZIP_STRUCT, "lies on another disk");
    } else if (!fits) {
        cf_fail(err, CF_E_ZIP_STRUCT, "has broken extra fields, or sizes without a zip64 field");
    } else if (offset > e->directory || out->packed > e->directory - offset) {
        cf_fail(err, CF_E_ZIP_STRUCT, "%llu bytes at %llu do not fit before the directory",
                (unsigned long long)out->packed, (unsigned long long)offset);
    } else if (out->size > INT64_MAX ||
               (out->method == CF_ZIP_STORED && out->size != out->packed)) {
        cf_fail(err, CF_E_ZIP_STRUCT, "declares %llu bytes, and %llu in the file",
                (unsigned long long)out->size, (unsigned long long)out->packed);
    } else {
        out->header = offset;
        return true;
    }
    return cf_err_in_member(err, out->name);
}

static int by_header(const void *a, const void *b)
{
    const cf_zip_entry *const *x = a, *const *y = b;
    return ((*x)->header > (*y)->header) - ((*x)->header < (*y)->header);
}

/* Ends every entry where the next local header, or the directory, begins. */
static bool set_ends(cf_zip *zip, cf_arena *arena, uint64_t directory, cf_err *err)
{
    cf_zip_entry **order = CF_NEWS(arena, cf_zip_entry *, zip->count);
    if (!order) return cf_arena_ok(arena, err);
    for (size_t i = 0; i < zip->count; i++) order[i] = &zip->entries[i];
    if (zip->count) qsort(order, zip->count, sizeof *order, by_header);
    if (zip->count && order[0]->header)
        return cf_fail(err, CF_E_ZIP_STRUCT, "%llu bytes before the first zip entry",
                       (unsigned long long)order[0]->header);
    for (size_t i = 0; i < zip->count; i++) {
        cf_zip_entry *e = order[i];
        e->end = i + 1 < zip->count ? order[i + 1]->header : directory;
        if (e->end - e->header < LOCAL + e->length + e->packed) {
            cf_fail_at(err, CF_E_ZIP_OVERLAP, (int64_t)e->header, "runs into %s",
                       i + 1 < zip->count ? order[i + 1]->name : "the directory");
            return cf_err_in_member(err, e->name);
        }
    }
    return true;
}

static bool open_zip(cf_zip *zip, const cf_span *span, bool item, cf_arena *arena, cf_err *err)
{
    ends e;
    CF_TRY(read_ends(span, item, &e, err));
    *zip = (cf_zip){.span = *span, .count = e.count};
    cf_map_init(&zip->names, arena);
    uint8_t *directory = cf_alloc(arena, e.size);
    zip->entries = CF_NEWS(arena, cf_zip_entry, e.count);
    if (!directory || !zip->entries) return cf_arena_ok(arena, err);
    CF_TRY(cf_span_read(span, e.directory, directory, e.size, err));
    size_t at = 0, used = 0;
    for (size_t i = 0; i < zip->count; i++, at += used) {
        cf_zip_entry *entry = &zip->entries[i];
        CF_TRY(read_entry(directory + at, e.size - at, &e, i, entry, &used, err));
        bool fresh;
        uint64_t *number = cf_map_put(&zip->names, entry->name, entry->length, &fresh);
        if (!number) return cf_arena_ok(arena, err);
        if (!fresh) {
            cf_fail(err, CF_E_ZIP_DUP, "two zip entries have this name");
            return cf_err_in_member(err, entry->name);
        }
        *number = i;
    }
    if (at != e.size)
        return cf_fail(err, CF_E_ZIP_STRUCT, "%llu bytes behind the last zip directory entry",
                       (unsigned long long)(e.size - at));
    return set_ends(zip, arena, e.directory, err);
}

bool cf_zip_open(cf_zip *zip, const cf_span *span, cf_arena *arena, cf_err *err)
{
    return open_zip(zip, span, false, arena, err);
}

bool cf_zip_open_item(cf_zip *zip, const cf_span *span, cf_arena *arena, cf_err *err)
{
    return open_zip(zip, span, true, arena, err);
}

const cf_zip_entry *cf_zip_find(const cf_zip *zip, const char *name, size_t length)
{
    uint64_t i;
    return cf_map_get(&zip->names, name, length, &i) ? &zip->entries[i] : NULL;
}

/* Sizes of a local header that are all ones stand in its zip64 field. */
static bool local_sizes(const cf_span *span, uint64_t extra, size_t n, uint64_t *size,
                        uint64_t *packed, cf_err *err)
{
    if (*size != UINT32_MAX && *packed != UINT32_MAX) return true;
    uint8_t fields[UINT16_MAX];
    CF_TRY(cf_span_read(span, extra, fields, n, err));
    const uint8_t *field = NULL;
    size_t rest;
    if (!find_zip64(fields, n, &field, &rest) || !widen(size, &field, &rest) ||
        !widen(packed, &field, &rest))
        return cf_fail(err, CF_E_ZIP_STRUCT, "has a local header without its zip64 sizes");
    return true;
}

static bool locate(const cf_zip *zip, const cf_zip_entry *entry, uint64_t *at, cf_err *err)
{
    if (entry->method != CF_ZIP_STORED) CF_TRY(cf_zip_supports(entry->method, err));
    if (entry->method == DEFLATE && entry->size / DEFLATE_RATIO > entry->packed)
        return cf_fail(err, CF_E_ZIP_STRUCT, "declares %llu bytes, deflated to %llu: impossible",
                       (unsigned long long)entry->size, (unsigned long long)entry->packed);
    uint8_t h[LOCAL + MOST_NAME];
    CF_TRY(cf_span_read(&zip->span, entry->header, h, LOCAL + entry->length, err));
    if (cf_le32(h) != SIG_LOCAL)
        return cf_fail_at(err, CF_E_ZIP_STRUCT, (int64_t)entry->header, "no local zip header here");
    const uint16_t flags = cf_le16(h + 6);
    if (flags & HIDDEN)
        return cf_fail(err, CF_E_ZIP_ENCRYPTED, "is encrypted, masked or a patch (flags 0x%x)",
                       flags);
    if (cf_le16(h + 26) != entry->length || memcmp(h + LOCAL, entry->name, entry->length) != 0)
        return cf_fail_at(err, CF_E_ZIP_MISMATCH, (int64_t)entry->header,
                          "the local header has another name");
    if (cf_le16(h + 8) != entry->method)
        return cf_fail_at(err, CF_E_ZIP_MISMATCH, (int64_t)entry->header,
                          "method %u in the local header, %u in the directory", cf_le16(h + 8),
                          entry->method);
    const uint64_t extra = entry->header + LOCAL + entry->length;
    const uint16_t skip = cf_le16(h + 28);
    if (entry->end - extra < skip + entry->packed)
        return cf_fail_at(err, CF_E_ZIP_OVERLAP, (int64_t)entry->header,
                          "runs into what follows it");
    const uint32_t crc = cf_le32(h + 14);
    uint64_t size = cf_le32(h + 22), packed = cf_le32(h + 18);
    CF_TRY(local_sizes(&zip->span, extra, skip, &size, &packed, err));
    const bool later = flags & DESCRIPTOR; /* then zeros are as good */
    if ((crc != entry->crc && (crc || !later)) || (size != entry->size && (size || !later)) ||
        (packed != entry->packed && (packed || !later)))
        return cf_fail_at(err, CF_E_ZIP_MISMATCH, (int64_t)entry->header,
                          "CRC-32 or sizes differ between the local header and the directory");
    *at = extra + skip;
    return true;
}

bool cf_zip_payload(const cf_zip *zip, const cf_zip_entry *entry, uint64_t *at, cf_err *err)
{
    return locate(zip, entry, at, err) || cf_err_in_member(err, entry->name);
}

static bool append(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    (void)err;
    uint8_t **to = ctx;
    memcpy(*to, bytes, size);
    *to += size;
    return true;
}

static bool read_stored(const cf_zip *zip, const cf_zip_entry *entry, uint64_t at, uint8_t *to,
                        cf_err *err)
{
    CF_TRY(cf_span_read(&zip->span, at, to, entry->size, err));
    const uint32_t crc = libdeflate_crc32(0, to, entry->size);
    if (entry->crc && crc != entry->crc)
        return cf_fail(err, CF_E_ZIP_CRC, "is damaged: its CRC-32 is %08x, the file says %08x", crc,
                       entry->crc);
    return true;
}

bool cf_zip_read(const cf_zip *zip, const cf_zip_entry *entry, size_t most, cf_arena *arena,
                 const uint8_t **bytes, cf_err *err)
{
    uint64_t at;
    CF_TRY(cf_zip_payload(zip, entry, &at, err));
    if (entry->size > most) {
        cf_fail(err, CF_E_LIMIT, "has %llu bytes, at most %zu", (unsigned long long)entry->size,
                most);
        return cf_err_in_member(err, entry->name);
    }
    uint8_t *to = cf_alloc(arena, entry->size), *next = to;
    if (!to) return cf_arena_ok(arena, err);
    if (!(entry->method == CF_ZIP_STORED
              ? read_stored(zip, entry, at, to, err)
              : cf_zip_decode(&zip->span, entry->name, entry->size, append, &next, err)))
        return cf_err_in_member(err, entry->name);
    *bytes = to;
    return true;
}
