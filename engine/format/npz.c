/* .npz: a zip whose members are arrays (npy.h). A stored member is read in place; of a compressed
 * one only the header is decoded here.
 *
 * The zip's CRC is that of header and elements together; that of the elements alone follows from
 * it, for crc(a b) = shift(crc(a), |b|) ^ crc(b).
 */
#include <string.h>
#include <zlib.h>

#include "npy.h"
#include "num.h"
#include "zipfile.h"

enum { MOST_OTHER = 1 << 20 }; /* bytes of a member that is no array */

/* Length of the name without ".npy"; 0: it has no such end. */
static size_t stem(const cf_zip_entry *e)
{
    return e->length > 4 && memcmp(e->name + e->length - 4, ".npy", 4) == 0 ? e->length - 4 : 0;
}

bool cf_npz_is(const cf_span *span, cf_arena *arena)
{
    cf_zip zip;
    cf_err err;
    bool array = false;
    if (!cf_zip_open(&zip, span, arena, &err)) return false;
    for (size_t i = 0; i < zip.count; i++) {
        const char *slash = strchr(zip.entries[i].name, '/');
        if (slash && strcmp(slash, "/data.pkl") == 0) return false;
        array = array || stem(&zip.entries[i]);
    }
    return array;
}

typedef struct head {
    uint8_t *bytes;
    size_t have, want;
} head;

static bool fill(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    head *h = ctx;
    const size_t n = (size_t)cf_min((int64_t)size, (int64_t)(h->want - h->have));
    memcpy(h->bytes + h->have, bytes, n);
    h->have += n;
    return h->have < h->want || cf_fail(err, CF_E_LIMIT, "enough"); /* which nobody reports */
}

/* The first bytes of a member, decoded: enough of them for a header. */
static bool read_head(const cf_zip *zip, const cf_zip_entry *e, uint64_t at, head *h, cf_err *err)
{
    h->want = (size_t)cf_min((int64_t)e->size, CF_NPY_MOST);
    h->have = 0;
    if (e->method == CF_ZIP_STORED) {
        h->have = h->want;
        return cf_span_read(&zip->span, at, h->bytes, h->want, err);
    }
    return cf_zip_decode(&zip->span, e->name, e->size, fill, h, err) || h->have == h->want;
}

static cf_node *read_array(const cf_zip *zip, const cf_zip_entry *e, cf_reading *r, head *h,
                           cf_err *err)
{
    uint64_t at;
    cf_npy npy;
    if (!cf_zip_payload(zip, e, &at, err) || !read_head(zip, e, at, h, err) ||
        !cf_npy_header(h->bytes, h->have, e->size, &npy, err))
        return NULL;
    cf_storage *s = CF_NEW(r->keep, cf_storage);
    const char *name = cf_strndup(r->keep, e->name, e->length);
    if (!s || !name) {
        cf_arena_ok(r->keep, err);
        return NULL;
    }
    *s = (cf_storage){.file = r->file,
                      .offset = zip->span.start + at,
                      .size = e->size,
                      .packed = e->packed,
                      .name = name,
                      .method = e->method,
                      .crc = e->crc,
                      .has_crc = e->crc || !e->size, /* else 0 is "not computed" */
                      .big_endian = npy.big_endian};
    if (e->method != CF_ZIP_STORED) {
        s->place = CF_IN_MEMBER;
        return cf_npy_node(&npy, s, npy.data, r, err);
    }
    const uLong before = crc32(0, h->bytes, (uInt)npy.data);
    s->place = zip->span.fd < 0 ? CF_IN_MEMORY : CF_IN_FILE;
    if (zip->span.fd < 0) s->bytes = zip->span.bytes + at + npy.data;
    s->offset += npy.data;
    s->size = s->packed = npy.size;
    s->crc ^= (uint32_t)crc32_combine(before, 0, (z_off_t)npy.size);
    return cf_npy_node(&npy, s, 0, r, err);
}

static cf_node *read_bytes(const cf_zip *zip, const cf_zip_entry *e, cf_reading *r, cf_err *err)
{
    const uint8_t *bytes;
    if (!cf_zip_read(zip, e, MOST_OTHER, r->tree, &bytes, err)) return NULL;
    cf_node *node = cf_node_text(r->tree, CF_NODE_BYTES, (const char *)bytes, e->size);
    if (!node) cf_arena_ok(r->tree, err);
    return node;
}

bool cf_npz_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err)
{
    cf_zip zip;
    CF_TRY(cf_zip_open(&zip, span, r->tree, err));
    head h = {.bytes = cf_alloc(r->tree, CF_NPY_MOST)};
    *root = cf_node_new(r->tree, CF_NODE_DICT);
    if (!h.bytes || !*root) return cf_arena_ok(r->tree, err);
    for (size_t i = 0; i < zip.count; i++) {
        const cf_zip_entry *e = &zip.entries[i];
        const size_t n = stem(e);
        cf_node *value = n ? read_array(&zip, e, r, &h, err) : read_bytes(&zip, e, r, err);
        if (!value) return cf_err_in_member(err, e->name);
        cf_node *key = cf_node_text(r->tree, CF_NODE_STRING, e->name, n ? n : e->length);
        bool twice;
        if (!key) return cf_arena_ok(r->tree, err);
        CF_TRY(cf_dict_set(r->tree, (*root)->dict, key, value, &twice, err));
        if (twice) {
            cf_err_set(err, CF_E_DUP_KEY, "two members of this name");
            return cf_err_in_member(err, e->name);
        }
    }
    return cf_arena_ok(r->tree, err) && cf_arena_ok(r->keep, err);
}
