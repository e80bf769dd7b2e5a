/* See torchfile.h. A storage is found while the pickle that names it is read (zip form), or after
 * it (stream form, where the elements follow): both keep one entry per key, so that tensors that
 * share a storage share the cf_storage.
 *
 * Facts: a record is <top>/data/<key>, spelled exactly so (torch/serialization.py, _save). In the
 * stream form counts and elements are little-endian whatever the machine was that wrote it
 * (THPStorage_writeFileRaw in torch/csrc/serialization.cpp), so that sys_info's little_endian,
 * which torch ignores too, says nothing about them; the zip form has the machine's order, and
 * <top>/byteorder names it since torch 2.1.
 */
#include "torchfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "num.h"
#include "pickle.h"
#include "zipfile.h"

static const size_t MOST_PICKLE = (size_t)4 << 30;
enum { FIRST_WINDOW = 1 << 20, MOST_WINDOW = 1 << 30 }; /* of a stream that holds a pickle */
enum { MOST_RECORD = 4096 };                            /* bytes of a record's name */

/* A storage that persistent ids named. */
typedef struct known {
    struct known *next;
    cf_string key;
    cf_dtype dtype;
    int64_t numel;
    cf_storage *storage;
    bool placed;
    struct known *whole; /* stream form: what it is a part of, from this element on */
    int64_t first;
} known;

typedef struct store {
    cf_reading *reading;
    cf_map keys; /* to addresses of known */
    known *all;
} store;

typedef bool storage_fn(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *err);

/* Bytes of a key that a message shows. */
static int shown_of(const cf_string *key)
{
    return (int)cf_min((int64_t)key->length, 64);
}

static void store_init(store *s, cf_reading *r)
{
    *s = (store){.reading = r};
    cf_map_init(&s->keys, r->tree);
}

static known *store_find(const store *s, const cf_string *key)
{
    uint64_t address;
    return cf_map_get(&s->keys, key->at, key->length, &address) ? (known *)(uintptr_t)address
                                                                : NULL;
}

/* The entry of a key, which is made, with a storage of the right size that is nowhere yet, when
 * the key is new. NULL on failure. */
static known *store_put(store *s, const cf_string *key, cf_dtype dtype, int64_t numel, cf_err *err)
{
    const int shown = shown_of(key);
    int64_t size;
    known *k = store_find(s, key);
    if (k) {
        if (k->dtype == dtype && k->numel == numel) return k;
        cf_fail(err, CF_E_STORAGE_CONFLICT, "storage %.*s is %s[%lld] here, %s[%lld] before", shown,
                key->at, cf_dtype_of(dtype)->name, (long long)numel, cf_dtype_of(k->dtype)->name,
                (long long)k->numel);
        return NULL;
    }
    if (numel < 0 || !cf_mul(numel, cf_dtype_size(dtype), &size)) {
        cf_fail(err, numel < 0 ? CF_E_NUMBER : CF_E_OVERFLOW, "storage %.*s has %lld elements",
                shown, key->at, (long long)numel);
        return NULL;
    }
    bool fresh;
    uint64_t *address = cf_map_put(&s->keys, key->at, key->length, &fresh);
    k = CF_NEW(s->reading->tree, known);
    cf_storage *storage = CF_NEW(s->reading->keep, cf_storage);
    if (!address || !k || !storage) {
        if (cf_arena_ok(s->reading->tree, err)) cf_arena_ok(s->reading->keep, err);
        return NULL;
    }
    *storage = (cf_storage){
        .place = CF_NOWHERE, .file = s->reading->file, .size = (uint64_t)size, .name = ""};
    *k = (known){.next = s->all, .key = *key, .dtype = dtype, .numel = numel, .storage = storage};
    s->all = k;
    *address = (uint64_t)(uintptr_t)k;
    return k;
}

/* Uncompressed bytes at `at` of the span. */
static void place(known *k, const cf_span *span, uint64_t at)
{
    k->placed = true;
    k->storage->place = span->fd < 0 ? CF_IN_MEMORY : CF_IN_FILE;
    k->storage->offset = span->start + at;
    k->storage->bytes = span->fd < 0 ? span->bytes + at : NULL;
    if (span->fd < 0) k->storage->has_crc = false; /* nobody will read it again to check */
}

static bool run_pickle(cf_pickle *p, cf_reading *r, const uint8_t *bytes, size_t size, size_t *used,
                       cf_node **root, cf_err *err)
{
    const bool ok = cf_pickle_read(p, bytes, size, used, root, err);
    if (!r->forbidden[0]) memcpy(r->forbidden, p->forbidden, sizeof r->forbidden);
    return ok;
}

static bool read_pickle(cf_reading *r, const uint8_t *bytes, size_t size, bool checked,
                        size_t *used, storage_fn *storage, void *ctx, cf_node **root, cf_err *err)
{
    cf_pickle p = {.tree = r->tree,
                   .keep = r->keep,
                   .checked = checked,
                   .inert = r->inert,
                   .storage = storage,
                   .ctx = ctx};
    return run_pickle(&p, r, bytes, size, used, root, err);
}

/* Pages of the input that are read; the tree grows while they go. */
static void give_back(const uint8_t *bytes, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size >= page) madvise((void *)(uintptr_t)bytes, size / page * page, MADV_DONTNEED);
}

bool cf_pickle_file_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err)
{
    if (span->size > MOST_PICKLE)
        return cf_fail(err, CF_E_LIMIT, "a pickle of %llu bytes, at most %zu",
                       (unsigned long long)span->size, MOST_PICKLE);
    /* metadata of many ranks says the same names for each: the tree is smaller without the bytes */
    cf_pickle p = {.tree = r->tree, .keep = r->keep, .inert = r->inert, .passed = give_back};
    uint8_t *bytes = mmap(NULL, span->size ? span->size : 1, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return cf_fail(err, CF_E_MEMORY, "out of memory");
    size_t used = 0;
    const bool ok = cf_span_read(span, 0, bytes, span->size, err) &&
                    run_pickle(&p, r, bytes, span->size, &used, root, err) &&
                    cf_arena_ok(r->tree, err);
    munmap(bytes, span->size ? span->size : 1);
    if (!ok || used == span->size) return ok;
    if ((*root)->kind == CF_NODE_INT || (*root)->kind == CF_NODE_BIG) /* as streams begin */
        return cf_fail(err, CF_E_MAGIC, "begins with a number, but not that of a torch stream");
    return cf_fail_at(err, CF_E_TRAILING, (int64_t)used, "%llu bytes behind the end of the pickle",
                      (unsigned long long)(span->size - used));
}

/* ---- the zip form ---- */

typedef struct records {
    store store;
    cf_zip zip;
    bool big_endian;
    char name[MOST_RECORD]; /* of the record that is looked for: "<top>/" and more */
    size_t top;
} records;

static const cf_zip_entry *find_record(records *z, const char *folder, const cf_string *key)
{
    const size_t n = strlen(folder);
    if (z->top + n + key->length > sizeof z->name) return NULL;
    memcpy(z->name + z->top, folder, n);
    memcpy(z->name + z->top + n, key->at, key->length);
    return cf_zip_find(&z->zip, z->name, z->top + n + key->length);
}

static bool place_record(records *z, const cf_zip_entry *entry, known *k, cf_err *err)
{
    cf_storage *s = k->storage;
    if (entry->size != s->size)
        return cf_fail(err, CF_E_STORAGE_SIZE, "%s has %llu bytes, %s[%lld] needs %llu",
                       entry->name, (unsigned long long)entry->size, cf_dtype_of(k->dtype)->name,
                       (long long)k->numel, (unsigned long long)s->size);
    uint64_t at;
    CF_TRY(cf_zip_payload(&z->zip, entry, &at, err));
    place(k, &z->zip.span, at);
    if (entry->method != CF_ZIP_STORED) s->place = CF_IN_MEMBER;
    s->packed = entry->packed;
    s->method = entry->method;
    s->crc = entry->crc;
    s->has_crc = entry->crc || !entry->size; /* else 0 is "not computed" */
    s->big_endian = z->big_endian;
    s->name = cf_strndup(z->store.reading->keep, entry->name, entry->length);
    return s->name || cf_arena_ok(z->store.reading->keep, err);
}

static bool zip_storage(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *err)
{
    records *z = ctx;
    known *k = store_put(&z->store, &id->key, id->dtype, id->numel, err);
    if (!k) return false;
    if (id->has_view)
        return cf_fail(err, CF_E_PERSID, "a storage that is part of another, in a zip");
    *out = k->storage;
    if (k->placed) return true;
    const cf_zip_entry *entry = find_record(z, "data/", &id->key);
    if (entry) return place_record(z, entry, k, err);
    if (id->location.length == 4 && memcmp(id->location.at, "meta", 4) == 0) return true;
    return cf_fail(err, CF_E_STORAGE_MISSING, "no record %.*sdata/%.*s in the file",
                   (int)cf_min((int64_t)z->top, 64), z->name, shown_of(&id->key), id->key.at);
}

/* <top>/data.pkl: <top> is the name that the file had when it was saved, or "archive". */
static bool find_root(records *z, const cf_zip_entry **out, cf_err *err)
{
    static const char PKL[] = "/data.pkl";
    const cf_zip_entry *found = NULL;
    for (size_t i = 0; i < z->zip.count; i++) {
        const cf_zip_entry *e = &z->zip.entries[i];
        const char *slash = strchr(e->name, '/');
        if (!slash || strcmp(slash, PKL) != 0) continue;
        if (found)
            return cf_fail(err, CF_E_MAGIC, "several checkpoints in one zip: %s and %s",
                           found->name, e->name);
        found = e;
    }
    if (!found) {
        cf_fail(err, CF_E_MAGIC, "a zip archive, but not of torch.save: no <folder>/data.pkl");
        return cf_err_hint(err, "if it is a packed folder of checkpoint files, unpack it first");
    }
    z->top = found->length - strlen(PKL) + 1;
    memcpy(z->name, found->name, z->top);
    *out = found;
    return true;
}

static bool read_byteorder(records *z, cf_err *err)
{
    static const cf_string NAME = {"byteorder", 9};
    const cf_zip_entry *entry = find_record(z, "", &NAME);
    if (!entry) return true; /* before torch 2.1: little */
    const uint8_t *text;
    CF_TRY(cf_zip_read(&z->zip, entry, 16, z->store.reading->tree, &text, err));
    z->big_endian = entry->size == 3 && memcmp(text, "big", 3) == 0;
    if (z->big_endian || (entry->size == 6 && memcmp(text, "little", 6) == 0)) return true;
    cf_fail(err, CF_E_TYPE, "a byte order that is neither little nor big");
    return cf_err_in_member(err, entry->name);
}

bool cf_torch_zip_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err)
{
    records z = {.top = 0};
    store_init(&z.store, r);
    const cf_zip_entry *pkl = NULL;
    const uint8_t *bytes = NULL;
    CF_TRY((r->item ? cf_zip_open_item : cf_zip_open)(&z.zip, span, r->tree, err) &&
           find_root(&z, &pkl, err) && read_byteorder(&z, err) &&
           cf_zip_read(&z.zip, pkl, MOST_PICKLE, r->tree, &bytes, err));
    if (!read_pickle(r, bytes, pkl->size, pkl->crc != 0, NULL, zip_storage, &z, root, err))
        return cf_err_in_member(err, pkl->name);
    return cf_arena_ok(r->tree, err) && cf_arena_ok(r->keep, err);
}

/* ---- the stream form ---- */

typedef struct stream {
    store store, parts; /* by key, by view key */
    const cf_span *span;
    uint64_t at;          /* in the span */
    const uint8_t *bytes; /* those in memory from there on */
    size_t have;
} stream;

/* 0x1950a86a20f9469cfc6c as LONG1, behind PROTO and perhaps FRAME. */
bool cf_torch_legacy_magic(const uint8_t *bytes, size_t size)
{
    static const uint8_t MAGIC[] = {0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                    0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    if (size < 3 || bytes[0] != 0x80) return false;
    const size_t skip = bytes[2] == 0x95 ? 2 + 9 : 2;
    return size >= skip + sizeof MAGIC && memcmp(bytes + skip, MAGIC, sizeof MAGIC) == 0;
}

/* Where a pickle ends is known only when it has been read: if the bytes at hand are too few, it is
 * read again from more. */
static bool next_pickle(stream *s, storage_fn *storage, cf_node **root, cf_err *err)
{
    for (;;) {
        size_t used;
        if (s->have &&
            read_pickle(s->store.reading, s->bytes, s->have, false, &used, storage, s, root, err)) {
            s->at += used;
            s->bytes += used;
            s->have -= used;
            return true;
        }
        const uint64_t left = s->span->size - s->at;
        if (s->have && (err->code != CF_E_TRUNCATED || s->have == left)) {
            if (err->offset >= 0) err->offset += (int64_t)s->at;
            return false;
        }
        if (left == 0)
            return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)s->at, "ends where a pickle should be");
        if (s->have >= MOST_WINDOW)
            return cf_fail_at(err, CF_E_LIMIT, (int64_t)s->at, "a pickle of more than %d bytes",
                              MOST_WINDOW);
        const size_t window = s->have < FIRST_WINDOW ? FIRST_WINDOW : s->have * 8;
        s->have = window < left ? window : (size_t)left;
        uint8_t *bytes = cf_alloc(s->store.reading->tree, s->have);
        if (!bytes) return cf_arena_ok(s->store.reading->tree, err);
        CF_TRY(cf_span_read(s->span, s->at, bytes, s->have, err));
        s->bytes = bytes;
    }
}

static bool stream_storage(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *err)
{
    stream *s = ctx;
    known *k = store_put(&s->store, &id->key, id->dtype, id->numel, err);
    if (!k) return false;
    if (id->has_view) {
        int64_t end;
        known *part = store_put(&s->parts, &id->view_key, id->dtype, id->view_numel, err);
        if (!part) return false;
        if (id->view_offset < 0)
            return cf_fail(err, CF_E_NUMBER, "a storage is a part from element %lld on",
                           (long long)id->view_offset);
        if (!cf_add(id->view_offset, id->view_numel, &end) || end > k->numel)
            return cf_fail(err, CF_E_BOUNDS,
                           "a storage of %lld elements from %lld on is part of "
                           "one of %lld",
                           (long long)id->view_numel, (long long)id->view_offset,
                           (long long)k->numel);
        if (part->whole && (part->whole != k || part->first != id->view_offset))
            return cf_fail(err, CF_E_STORAGE_CONFLICT, "one storage is two parts");
        part->whole = k;
        part->first = id->view_offset;
        k = part;
    }
    *out = k->storage;
    return true;
}

/* One key of the list, and its elements behind those of the keys before it. */
static bool place_elements(stream *s, const cf_node *key, cf_err *err)
{
    if (key->kind != CF_NODE_STRING)
        return cf_fail(err, CF_E_TYPE, "a storage key that is no string");
    const int shown = shown_of(&key->text);
    known *k = store_find(&s->store, &key->text);
    if (!k)
        return cf_fail(err, CF_E_STORAGE_MISSING, "storage %.*s is listed, but no tensor has it",
                       shown, key->text.at);
    if (k->placed)
        return cf_fail(err, CF_E_DUP_KEY, "storage %.*s is listed twice", shown, key->text.at);
    uint8_t count[8];
    CF_TRY(cf_span_read(s->span, s->at, count, sizeof count, err));
    const int64_t numel = (int64_t)cf_le64(count);
    const uint64_t left = s->span->size - s->at - sizeof count;
    if (numel < 0)
        return cf_fail_at(err, CF_E_NUMBER, (int64_t)s->at, "storage %.*s has %lld elements", shown,
                          key->text.at, (long long)numel);
    if ((uint64_t)numel > left / (uint64_t)cf_dtype_size(k->dtype))
        return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)s->at,
                          "storage %.*s has %lld elements, but only %llu bytes are left", shown,
                          key->text.at, (long long)numel, (unsigned long long)left);
    if (numel != k->numel)
        return cf_fail_at(err, CF_E_STORAGE_SIZE, (int64_t)s->at,
                          "storage %.*s has %lld elements, its tensors say %lld", shown,
                          key->text.at, (long long)numel, (long long)k->numel);
    place(k, s->span, s->at + sizeof count);
    s->at += sizeof count + k->storage->size;
    k->storage->name = cf_strndup(s->store.reading->keep, key->text.at, key->text.length);
    return k->storage->name || cf_arena_ok(s->store.reading->keep, err);
}

static bool place_all(stream *s, const cf_node *keys, cf_err *err)
{
    if (keys->kind != CF_NODE_LIST)
        return cf_fail_at(err, CF_E_TYPE, (int64_t)s->at, "no list of storage keys ends here");
    for (size_t i = 0; i < keys->list->count; i++)
        CF_TRY(place_elements(s, keys->list->items[i], err));
    if (s->at != s->span->size)
        return cf_fail_at(err, CF_E_TRAILING, (int64_t)s->at, "%llu bytes behind the last storage",
                          (unsigned long long)(s->span->size - s->at));
    for (const known *k = s->store.all; k; k = k->next)
        if (!k->placed)
            return cf_fail(err, CF_E_STORAGE_MISSING, "storage %.*s is not in the file",
                           shown_of(&k->key), k->key.at);
    for (known *k = s->parts.all; k; k = k->next) {
        const uint64_t base = k->whole->storage->offset - s->span->start;
        place(k, s->span, base + (uint64_t)(k->first * cf_dtype_size(k->dtype)));
        k->storage->name = k->whole->storage->name;
    }
    return true;
}

bool cf_torch_legacy_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err)
{
    stream s = {.span = span};
    store_init(&s.store, r);
    store_init(&s.parts, r);
    cf_node *magic, *version, *sizes, *keys;
    uint8_t head[32];
    const size_t n = (size_t)cf_min((int64_t)span->size, sizeof head);
    CF_TRY(cf_span_read(span, 0, head, n, err));
    if (!cf_torch_legacy_magic(head, n)) return cf_fail(err, CF_E_MAGIC, "no torch stream");
    CF_TRY(next_pickle(&s, NULL, &magic, err) && next_pickle(&s, NULL, &version, err));
    if (version->kind != CF_NODE_INT || version->integer != 1001)
        return cf_fail(err, CF_E_MAGIC, "a torch stream of another protocol than 1001");
    CF_TRY(next_pickle(&s, NULL, &sizes, err) && next_pickle(&s, stream_storage, root, err) &&
           next_pickle(&s, NULL, &keys, err) && place_all(&s, keys, err));
    return cf_arena_ok(r->tree, err) && cf_arena_ok(r->keep, err);
}
