#include "items.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "num.h"
#include "part.h"
#include "shape.h"
#include "text.h"

/* A tensor, or a value, of the table. */
typedef struct entry {
    const char *key;
    size_t op;             /* number of its op */
    const cf_list *chunks; /* NULL: a value */
    uint64_t *placed;      /* a bit a chunk: an item of it was seen */
    cf_dict by_offset;     /* where hints do not help: offsets -> number of the chunk */
    const cf_node *sizes;  /* of the last chunk, and what was made of them: most are alike */
    const cf_claim *claim;
    const int64_t *stride;
    int64_t numel;
    bool found; /* a value's item */
} entry;

/* Where a field was in the last object: those of a class share their names. */
typedef struct lookup {
    const cf_fields *fields;
    int at;
} lookup;

typedef struct builder {
    cf_part *part;
    const cf_items_spec *spec;
    cf_arena scratch;
    cf_map names; /* -> number of the entry */
    entry *entries;
    size_t count;
    lookup lookups[CF_ITEM_FIELDS];
    const cf_node *path; /* the last one, and its file */
    cf_map paths;        /* -> number in files */
    struct file {
        uint32_t file;
        int32_t rank;
        const cf_cause *missing, *cut;
    } * files, *file;
    size_t n_files, cap_files;
} builder;

static cf_op *op_of(const builder *b, const entry *e)
{
    return &b->part->ops[e->op];
}

static void look_up(lookup *l, const cf_fields *fields, const char *name)
{
    *l = (lookup){.fields = fields, .at = -1};
    for (size_t i = 0; i < fields->count; i++)
        if (fields->names[i]->text.length == strlen(name) &&
            memcmp(fields->names[i]->text.at, name, strlen(name)) == 0)
            l->at = (int)i;
}

static inline cf_node *field(builder *b, const cf_node *node, cf_item_field what)
{
    const char *name = b->spec->fields[what];
    if (node->kind != CF_NODE_OBJECT || !node->object->fields) return cf_node_field(node, name);
    lookup *l = &b->lookups[what];
    if (l->fields != node->object->fields) look_up(l, node->object->fields, name);
    return l->at < 0 ? NULL : node->object->values[l->at];
}

static bool number(const cf_node *node, const char *what, int64_t *out, cf_err *err)
{
    if (node && node->kind == CF_NODE_INT) {
        *out = node->integer;
        return true;
    }
    cf_text text = {0};
    if (node) cf_node_show(&text, node, 60);
    cf_fail(err, node && node->kind == CF_NODE_BIG ? CF_E_NUMBER : CF_E_TYPE,
            "the %s of an item is %s, no number of 63 bits", what, text.at ? text.at : "missing");
    cf_text_free(&text);
    return false;
}

/* A list or tuple of numbers. */
static bool sizes(const cf_node *node, const char *what, int64_t out[CF_MOST_DIMS], int *ndim,
                  cf_err *err)
{
    if (!node || (node->kind != CF_NODE_TUPLE && node->kind != CF_NODE_LIST))
        return cf_fail(err, CF_E_TYPE, "the %s is %s %s", what,
                       CF_A(node ? cf_node_class(node) : "none"));
    if (node->list->count > CF_MOST_DIMS)
        return cf_fail(err, CF_E_LIMIT, "more than %d dimensions", CF_MOST_DIMS);
    *ndim = (int)node->list->count;
    for (int d = 0; d < *ndim; d++) {
        const cf_node *size = node->list->items[d];
        if (size->kind != CF_NODE_INT)
            return cf_fail(err, CF_E_TYPE, "the %s holds %s %s", what, CF_A(cf_node_class(size)));
        out[d] = size->integer;
    }
    return true;
}

static const int64_t *keep(builder *b, const int64_t *from, int n)
{
    return cf_memdup(&b->part->kept, from, (size_t)n * sizeof *from);
}

bool cf_item_decode(const cf_node *decode, bool *zstd, cf_err *err)
{
    static const char NAME[] = "stream.zstd/1";
    *zstd = false;
    if (!decode || decode->kind == CF_NODE_NONE) return true;
    if (decode->kind != CF_NODE_LIST && decode->kind != CF_NODE_TUPLE)
        return cf_fail(err, CF_E_TYPE, "the transforms of an item are %s %s",
                       CF_A(cf_node_class(decode)));
    for (size_t i = 0; i < decode->list->count; i++) {
        const cf_node *name = decode->list->items[i];
        const size_t n = sizeof NAME - 1;
        const bool known = name->kind == CF_NODE_STRING && name->text.length >= n &&
                           memcmp(name->text.at, NAME, n) == 0 &&
                           (name->text.length == n || name->text.at[n] == '.');
        if (known) continue;
        cf_text text = {0};
        cf_node_show(&text, name, 80);
        cf_fail(err, CF_E_TYPE, "an unknown transform %s", text.at ? text.at : "");
        cf_text_free(&text);
        return false;
    }
    if (decode->list->count > 1)
        return cf_fail(err, CF_E_TYPE, "%zu transforms of one item", decode->list->count);
    *zstd = decode->list->count == 1;
    return true;
}

/* ---- the table of tensors ----------------------------------------------------------------------
 */

static cf_dtype dtype_of(builder *b, const cf_node *what)
{
    const cf_node *node = field(b, what, CF_ITEM_DTYPE);
    if (node && b->spec->dtype) {
        const cf_node *state =
            node->kind == CF_NODE_OBJECT ? cf_object_parts(node->object)->state : node;
        const bool list = state && (state->kind == CF_NODE_TUPLE || state->kind == CF_NODE_LIST);
        node = list && state->list->count >= b->spec->dtype ? state->list->items[b->spec->dtype - 1]
                                                            : cf_node_field(node, "dtype");
    }
    return node && node->kind == CF_NODE_DTYPE ? node->dtype : CF_NO_DTYPE;
}

static bool add_tensor(builder *b, entry *e, const cf_node *what, cf_err *err)
{
    cf_part *part = b->part;
    int64_t shape[CF_MOST_DIMS];
    int ndim;
    const cf_dtype dtype = dtype_of(b, what);
    if (!dtype) return cf_fail(err, CF_E_DTYPE, "a tensor of a dtype that is not known");
    if (!sizes(field(b, what, CF_ITEM_SHAPE), "shape", shape, &ndim, err)) return false;
    const cf_node *chunks = field(b, what, CF_ITEM_CHUNKS);
    if (chunks->kind != CF_NODE_LIST && chunks->kind != CF_NODE_TUPLE)
        return cf_fail(err, CF_E_TYPE, "its chunks are %s %s", CF_A(cf_node_class(chunks)));
    if (!cf_part_declare(part, e->key, strlen(e->key), dtype, ndim, shape, err)) return false;
    e->op = part->count - 1;
    e->chunks = chunks->list;
    e->placed = CF_NEWS(&b->scratch, uint64_t, e->chunks->count / 64 + 1);
    return e->placed || cf_arena_ok(&b->scratch, err);
}

static bool add_entry(builder *b, const cf_node *name, const cf_node *what, cf_err *err)
{
    if (name->kind != CF_NODE_STRING)
        return cf_fail(err, CF_E_TYPE, "a tensor whose name is %s %s", CF_A(cf_node_class(name)));
    uint64_t known;
    if (cf_map_get(&b->names, name->text.at, name->text.length, &known)) return true;
    entry *e = &b->entries[b->count];
    bool fresh;
    e->key = cf_strndup(&b->part->kept, name->text.at, name->text.length);
    uint64_t *number = e->key ? cf_map_put(&b->names, e->key, name->text.length, &fresh) : NULL;
    if (!number) return cf_arena_ok(&b->part->kept, err) && cf_arena_ok(&b->scratch, err);
    *number = b->count++;
    if (!field(b, what, CF_ITEM_CHUNKS))
        return cf_part_declare(b->part, e->key, name->text.length, CF_NO_DTYPE, 0, NULL, err);
    return add_tensor(b, e, what, err) || cf_err_in_member(err, e->key);
}

static bool add_entries(builder *b, cf_err *err)
{
    const cf_dict *dict = b->spec->tensors->dict;
    const cf_node *order = b->spec->order;
    b->entries = CF_NEWS(&b->scratch, entry, dict->count + 1);
    if (!b->entries) return cf_arena_ok(&b->scratch, err);
    for (size_t i = 0; order && order->kind == CF_NODE_DICT && i < order->dict->count; i++) {
        const cf_node *name = order->dict->pairs[i].key;
        const cf_node *what = name->kind == CF_NODE_STRING ? cf_dict_find(dict, name) : NULL;
        if (what && !add_entry(b, name, what, err)) return false;
    }
    for (size_t i = 0; i < dict->count; i++)
        if (!add_entry(b, dict->pairs[i].key, dict->pairs[i].value, err)) return false;
    return true;
}

/* ---- the table of places -----------------------------------------------------------------------
 */

static bool same_offsets(const cf_node *a, const cf_node *b)
{
    return a == b || (a && b && cf_node_equal(a, b));
}

/* Adds the offsets of all chunks; one with elements wins over an empty one at the same place. */
static bool index_chunks(builder *b, entry *e, cf_err *err)
{
    for (size_t i = 0; i < e->chunks->count; i++) {
        const cf_node *chunk = e->chunks->items[i];
        cf_node *at = field(b, chunk, CF_ITEM_CHUNK_AT);
        int64_t size[CF_MOST_DIMS], numel = 0;
        int ndim;
        bool replaced;
        if (!at) continue;
        if (!sizes(field(b, chunk, CF_ITEM_CHUNK_SIZE), "size of a chunk", size, &ndim, err))
            return false;
        cf_numel(size, ndim, &numel);
        if (!numel && cf_dict_find(&e->by_offset, at)) continue;
        cf_node *index = cf_node_int(&b->scratch, (int64_t)i);
        if (!index || !cf_dict_set(&b->scratch, &e->by_offset, at, index, &replaced, err))
            return index ? false : cf_arena_ok(&b->scratch, err);
    }
    return true;
}

/* The chunk that an item is of: its number, where the writer gave it, is a hint; the offsets
 * decide. A chunk without elements may share them with a real one, which then is meant. */
static bool chunk_of(builder *b, entry *e, const cf_node *key, const cf_node *at, size_t *number,
                     cf_err *err)
{
    const cf_node *hint = field(b, key, CF_ITEM_HINT);
    if (hint && hint->kind == CF_NODE_INT && (uint64_t)hint->integer < e->chunks->count) {
        const cf_node *chunk = e->chunks->items[hint->integer];
        const cf_node *size = field(b, chunk, CF_ITEM_CHUNK_SIZE);
        bool some = size && size->kind == CF_NODE_TUPLE;
        for (size_t d = 0; some && d < size->list->count; d++)
            some = size->list->items[d]->kind == CF_NODE_INT && size->list->items[d]->integer > 0;
        *number = (size_t)hint->integer;
        if (some && same_offsets(field(b, chunk, CF_ITEM_CHUNK_AT), at)) return true;
    }
    if (!e->by_offset.count && !index_chunks(b, e, err)) return false;
    const cf_node *found = at ? cf_dict_find(&e->by_offset, at) : NULL;
    if (found) {
        *number = (size_t)found->integer;
        return true;
    }
    cf_text text = {0};
    if (at) cf_node_show(&text, at, 200);
    cf_fail(err, CF_E_META_CONFLICT, "an item at %s, where no chunk is listed",
            text.at ? text.at : "no offsets");
    cf_text_free(&text);
    return false;
}

/* The claim, strides and size of a chunk's items; those of the last one where they are the same. */
static bool take_sizes(builder *b, entry *e, const cf_node *size, bool zstd, cf_err *err)
{
    if (e->claim && e->sizes == size && e->claim->zstd == zstd) return true;
    int64_t shape[CF_MOST_DIMS], stride[CF_MOST_DIMS], step = 1;
    int ndim;
    if (!sizes(size, "size of a chunk", shape, &ndim, err)) return false;
    const cf_op *op = op_of(b, e);
    if (ndim != op->ndim)
        return cf_fail(err, CF_E_TYPE, "a piece of %d dimensions of a tensor of %d", ndim,
                       op->ndim);
    int64_t bytes;
    if (!cf_numel(shape, ndim, &e->numel) || !cf_mul(e->numel, cf_dtype_size(op->dtype), &bytes))
        return cf_fail(err, CF_E_OVERFLOW, "the sizes of a tensor multiply beyond 63 bits");
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step = e->numel ? step * shape[d] : 1;
    }
    const cf_claim claim = {.dtype = op->dtype,
                            .ndim = (uint8_t)ndim,
                            .zstd = zstd,
                            .rank = -1,
                            .shape = keep(b, shape, ndim),
                            .name = e->key};
    e->claim = cf_memdup(&b->part->kept, &claim, sizeof claim);
    e->stride = keep(b, stride, ndim);
    e->sizes = size;
    return cf_arena_ok(&b->part->kept, err);
}

bool cf_item_place(const cf_source *source, uint32_t file, int64_t offset, int64_t length,
                   const cf_claim *claim, cf_storage *storage, cf_err *err)
{
    int64_t numel = 0, bytes = 0;
    const int64_t size = (int64_t)source->dir.files[file].size;
    *storage = (cf_storage){.place = CF_IN_ITEM, .file = file, .name = ""};
    storage->claim = claim;
    if (offset < 0 || length < 0)
        return cf_fail(err, CF_E_NUMBER, "an item of %lld bytes at %lld", (long long)length,
                       (long long)offset);
    if (!cf_numel(claim->shape, claim->ndim, &numel) ||
        !cf_mul(numel, claim->dtype ? cf_dtype_size(claim->dtype) : 1, &bytes))
        return cf_fail(err, CF_E_OVERFLOW, "the sizes of a tensor multiply beyond 63 bits");
    storage->offset = (uint64_t)offset;
    storage->packed = (uint64_t)length;
    storage->size = (uint64_t)bytes;
    if (claim->dtype && !claim->zstd && bytes > length)
        return cf_fail(err, CF_E_STORAGE_SIZE, "a tensor of %lld bytes in an item of %lld",
                       (long long)bytes, (long long)length);
    if ((!numel && claim->dtype) || (offset <= size && length <= size - offset)) return true;
    int fd; /* what cannot be opened says why itself */
    if (!cf_dir_open(&source->dir, file, &fd, err)) return false;
    close(fd);
    return cf_fail_at(err, CF_E_BOUNDS, size,
                      "the file ends at %lld bytes, an item lies at %lld to %lld", (long long)size,
                      (long long)offset, (long long)offset + length);
}

/* The file of a path; its struct is valid until the next path. */
static bool take_path(builder *b, const cf_node *path, cf_err *err)
{
    if (path && path == b->path) return true;
    if (!path || path->kind != CF_NODE_STRING)
        return cf_fail(err, CF_E_TYPE, "the path of an item is %s %s",
                       CF_A(path ? cf_node_class(path) : "none"));
    bool fresh;
    const char *text = cf_strndup(&b->scratch, path->text.at, path->text.length);
    uint64_t *n = text ? cf_map_put(&b->paths, text, path->text.length, &fresh) : NULL;
    if (!n) return cf_arena_ok(&b->scratch, err);
    if (fresh) {
        struct file file = {.file = CF_NO_FILE, .rank = -1};
        if (!b->spec->find(b->spec->ctx, path, &file.file, &file.rank, err)) return false;
        if (file.file == CF_NO_FILE && !(file.missing = cf_part_cause(b->part, err->file, err)))
            return cf_arena_ok(&b->part->kept, err);
        struct file *place = CF_PUSH(&b->scratch, b->files, b->n_files, b->cap_files);
        if (!place) return cf_arena_ok(&b->scratch, err);
        *place = file;
        *n = b->n_files - 1;
    }
    b->file = &b->files[*n];
    b->path = path;
    return true;
}

/* Is it lost? Then it is filed so; *lost. What the file's size does not allow is its loss, too. */
static bool place(builder *b, entry *e, int64_t offset, int64_t length, const cf_claim *claim,
                  int ndim, const int64_t *at, cf_storage *storage, bool *lost, cf_err *err)
{
    const cf_cause *why = b->file->missing;
    const cf_source *source = b->part->source;
    *lost = false;
    if (!why && !cf_item_place(source, b->file->file, offset, length, claim, storage, err)) {
        cf_err_add_file(err, cf_source_path(source, b->file->file));
        if (err->code != CF_E_BOUNDS && err->code != CF_E_MISSING_FILE)
            return cf_err_in_member(err, claim->name);
        if (!b->file->cut)
            b->file->cut = cf_part_cause(b->part, cf_source_path(source, b->file->file), err);
        why = b->file->cut;
    }
    if (!why) return true;
    *lost = true;
    return cf_part_lost(b->part, e->key, why, b->file->rank, ndim, at,
                        claim->dtype ? claim->shape : NULL, err);
}

static bool add_piece(builder *b, entry *e, const cf_node *key, int64_t offset, int64_t length,
                      bool zstd, cf_err *err)
{
    struct item {
        cf_storage storage;
        cf_view view;
        int64_t at[];
    };
    const cf_node *offsets = field(b, key, CF_ITEM_AT);
    size_t chunk = 0;
    int64_t at[CF_MOST_DIMS];
    int ndim;
    if (!chunk_of(b, e, key, offsets, &chunk, err) ||
        !take_sizes(b, e, field(b, e->chunks->items[chunk], CF_ITEM_CHUNK_SIZE), zstd, err) ||
        !sizes(offsets, "offsets of a chunk", at, &ndim, err))
        return false;
    cf_op *op = op_of(b, e);
    if (ndim != op->ndim)
        return cf_fail(err, CF_E_TYPE, "a piece of %d dimensions at %d offsets", op->ndim, ndim);
    if (!cf_box_inside(ndim, op->shape, at, e->claim->shape, err)) return false;
    const uint64_t bit = 1ull << chunk % 64;
    if (e->numel && (e->placed[chunk / 64] & bit)) {
        cf_text text = {0};
        cf_node_show(&text, offsets, 200);
        cf_fail(err, CF_E_DUP_KEY, "two items at %s", text.at ? text.at : "");
        cf_text_free(&text);
        return false;
    }
    e->placed[chunk / 64] |= bit;
    cf_storage storage;
    bool lost;
    if (!place(b, e, offset, length, e->claim, ndim, at, &storage, &lost, err)) return false;
    if (lost) return true;
    cf_arena *kept = &b->part->kept;
    if (!op->pieces && (op->cap_pieces = e->chunks->count))
        op->pieces = cf_alloc(kept, op->cap_pieces * sizeof *op->pieces);
    cf_piece *piece = CF_PUSH(kept, op->pieces, op->n_pieces, op->cap_pieces);
    struct item *item = cf_alloc(kept, sizeof *item + (size_t)ndim * sizeof *item->at);
    if (!piece || !item) return cf_arena_ok(kept, err);
    item->storage = storage;
    item->view = (cf_view){.storage = &item->storage,
                           .numel = e->numel,
                           .dtype = op->dtype,
                           .stored = op->dtype,
                           .ndim = (uint8_t)ndim,
                           .shape = e->claim->shape,
                           .stride = e->stride};
    if (ndim) memcpy(item->at, at, (size_t)ndim * sizeof *at);
    *piece = (cf_piece){.rank = b->file->rank >= 0 ? b->file->rank : b->part->rank,
                        .file = b->part->file,
                        .view = &item->view,
                        .at = item->at,
                        .replica_of = (uint32_t)(op->n_pieces - 1),
                        .start = -1};
    return true;
}

static bool add_value(builder *b, entry *e, const cf_node *key, int64_t offset, int64_t length,
                      bool zstd, cf_err *err)
{
    cf_arena *kept = &b->part->kept;
    cf_claim *claim = CF_NEW(kept, cf_claim);
    cf_storage *storage = CF_NEW(kept, cf_storage);
    cf_node *node = cf_node_new(kept, CF_NODE_STORAGE);
    const cf_node *name = field(b, key, CF_ITEM_NAME);
    const char *text = cf_strndup(kept, name->text.at, name->text.length);
    if (!claim || !storage || !node || !text) return cf_arena_ok(kept, err);
    *claim = (cf_claim){.zstd = zstd, .rank = b->file->rank, .name = text};
    entry none = {.key = text};
    bool lost;
    if (!place(b, e ? e : &none, offset, length, claim, 0, NULL, storage, &lost, err)) return false;
    if (e) e->found = true;
    node->storage = storage;
    return lost || cf_part_value(b->part, text, name->text.length, node, err);
}

static bool add_item(builder *b, const cf_node *key, const cf_node *info, cf_err *err)
{
    const cf_node *name = field(b, key, CF_ITEM_NAME);
    int64_t offset, length;
    uint64_t n;
    bool zstd;
    if (!name || name->kind != CF_NODE_STRING)
        return cf_fail(err, CF_E_TYPE, "an item whose name is %s %s",
                       CF_A(name ? cf_node_class(name) : "none"));
    entry *e = cf_map_get(&b->names, name->text.at, name->text.length, &n) ? &b->entries[n] : NULL;
    const bool ok = number(field(b, info, CF_ITEM_OFFSET), "offset", &offset, err) &&
                    number(field(b, info, CF_ITEM_LENGTH), "length", &length, err) &&
                    cf_item_decode(field(b, info, CF_ITEM_DECODE), &zstd, err) &&
                    take_path(b, field(b, info, CF_ITEM_PATH), err) &&
                    (e && e->chunks ? add_piece : add_value)(b, e, key, offset, length, zstd, err);
    if (!ok) {
        const char *text = cf_strndup(&b->scratch, name->text.at, name->text.length);
        if (text) cf_err_add_member(err, text);
    }
    return ok;
}

static bool add_all(builder *b, cf_err *err)
{
    const cf_dict *places = b->spec->places->dict;
    if (!add_entries(b, err)) return false;
    for (size_t i = 0; i < places->count; i++)
        if (!add_item(b, places->pairs[i].key, places->pairs[i].value, err)) return false;
    for (size_t i = 0; i < b->count; i++) {
        entry *e = &b->entries[i];
        if (e->chunks && op_of(b, e)->n_pieces) op_of(b, e)->kind = CF_OP_ITEMS;
        if (e->chunks || e->found) continue;
        cf_fail(err, CF_E_COVERAGE, "a value that is listed, but lies in no file");
        return cf_err_in_member(err, e->key);
    }
    return cf_arena_ok(&b->part->kept, err) && cf_arena_ok(&b->part->arena, err);
}

bool cf_part_items(cf_part *part, const cf_items_spec *spec, cf_err *err)
{
    builder b = {.part = part, .spec = spec};
    if (spec->tensors->kind != CF_NODE_DICT || spec->places->kind != CF_NODE_DICT)
        return cf_fail(err, CF_E_TYPE, "the tables of tensors and places are no dicts");
    cf_arena_init(&b.scratch, 0);
    cf_map_init(&b.names, &b.scratch);
    cf_map_init(&b.paths, &b.scratch);
    const bool ok = add_all(&b, err);
    cf_arena_free(&b.scratch);
    return ok;
}
