/* Parts are filled on any thread, without a lock: each has an arena of its own, and what it takes
 * from a tree is copied, so that the tree can go. */
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "item.h"
#include "num.h"
#include "shape.h"
#include "tensor.h"

enum { MOST_KEY = 64 << 10 };

cf_part *cf_part_new(cf_source *source, uint32_t file, int32_t rank)
{
    cf_part *part = calloc(1, sizeof *part);
    if (!part) return NULL;
    cf_arena_init(&part->arena, 0);
    cf_arena_init(&part->kept, 0);
    part->source = source;
    part->file = file;
    part->rank = part->named = rank;
    return part;
}

void cf_part_free(cf_part *part)
{
    if (!part) return;
    cf_arena_free(&part->arena);
    cf_arena_free(&part->kept);
    free(part);
}

uint32_t cf_part_file(const cf_part *part)
{
    return part->file;
}

void cf_part_root(cf_part *part, const cf_node *root)
{
    part->root = root;
}

static bool context(const cf_part *part, const char *key, cf_err *err)
{
    cf_err_in_file(err, cf_source_path(part->source, part->file));
    return cf_err_in_member(err, key);
}

/* A new op under a checked key; NULL with the error set. */
static cf_op *add(cf_part *part, cf_op_kind kind, const char *key, size_t length, cf_err *err)
{
    if (length > MOST_KEY) {
        cf_fail(err, CF_E_LIMIT, "a key of %zu bytes, at most %d", length, MOST_KEY);
        context(part, NULL, err);
        return NULL;
    }
    if (memchr(key, 0, length) || cf_utf8_valid(key, length) < length) {
        cf_fail(err, CF_E_UTF8, "a key that is no UTF-8 or holds a NUL");
        context(part, NULL, err);
        return NULL;
    }
    cf_op *op = CF_PUSH(&part->arena, part->ops, part->count, part->cap);
    const char *copy = cf_strndup(&part->arena, key, length);
    if (!op || !copy) {
        cf_arena_ok(&part->arena, err);
        return NULL;
    }
    *op = (cf_op){.kind = kind, .key = copy, .rank = part->rank, .start = -1};
    const bool held = kind == CF_OP_PIECE || kind == CF_OP_VALUE || kind == CF_OP_ALIAS;
    if (held && part->root) op->path = cf_path_find(&part->arena, part->root, copy);
    return op;
}

static const int64_t *dims(cf_part *part, const int64_t *from, int n)
{
    return cf_memdup(&part->arena, from, (size_t)n * sizeof *from);
}

bool cf_part_piece(cf_part *part, const char *key, size_t length, int ndim, const int64_t *shape,
                   int n_at, const int64_t *at, const cf_view *view, cf_err *err)
{
    cf_op *op = add(part, CF_OP_PIECE, key, length, err);
    if (!op) return false;
    if (n_at != view->ndim || (shape && ndim != view->ndim)) {
        cf_fail(err, CF_E_TYPE, "a piece of %d dimensions at %d offsets of a tensor of %d",
                view->ndim, n_at, shape ? ndim : n_at);
        return context(part, op->key, err);
    }
    if (ndim > CF_MOST_DIMS || n_at > CF_MOST_DIMS) {
        cf_fail(err, CF_E_LIMIT, "more than %d dimensions", CF_MOST_DIMS);
        return context(part, op->key, err);
    }
    if (shape && !cf_box_inside(view->ndim, shape, at, view->shape, err))
        return context(part, op->key, err);
    if (view->storage->place == CF_IN_ITEM && view->storage->claim->rank >= 0)
        op->rank = view->storage->claim->rank;
    op->ndim = view->ndim;
    op->dtype = view->dtype;
    op->shape = shape ? dims(part, shape, ndim) : NULL;
    op->at = dims(part, at, n_at);
    op->view = cf_view_copy(&part->arena, view);
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_range(cf_part *part, const char *key, size_t length, int ndim, const int64_t *shape,
                   int64_t start, const cf_view *view, const int64_t *at, const int64_t *size,
                   cf_err *err)
{
    const size_t first = part->count;
    if (size && !cf_box_inside(ndim, shape, at, size, err)) return context(part, key, err);
    const cf_tensor *boxes =
        cf_tensor_range(&part->arena, view, start, ndim, size ? size : shape, err);
    if (!boxes) return context(part, key, err);
    if (!boxes->numel || !view->numel)
        return cf_part_declare(part, key, length, view->dtype, ndim, shape, err);
    for (size_t i = 0; i < boxes->terms[0].count; i++) {
        const cf_tile *tile = &boxes->terms[0].tiles[i];
        int64_t place[CF_MOST_DIMS];
        for (int d = 0; d < ndim; d++) place[d] = tile->at[d] + (at ? at[d] : 0);
        if (!cf_part_piece(part, key, length, ndim, shape, ndim, place, tile->view, err))
            return false;
        if (!size) part->ops[part->count - 1].start = start;
    }
    if (!size) part->ops[first].range = cf_view_copy(&part->arena, view);
    return cf_arena_ok(&part->arena, err);
}

/* What of a value lies in a file. */
typedef struct peeking {
    cf_source *source;
    cf_arena arena;
    size_t left;
} peeking;

static const uint8_t *peek(void *ctx, const cf_view *view)
{
    peeking *p = ctx;
    const uint8_t *bytes;
    bool checked;
    cf_err none; /* what cannot be read is told when it is written */
    if (!p->left || !cf_view_dense(view) ||
        !cf_source_bytes(p->source, view, p->left, &p->arena, &bytes, &checked, &none))
        return NULL;
    const size_t cost =
        1024 + (size_t)(view->numel * cf_dtype_size(view->dtype)); /* of opening it */
    p->left -= cost < p->left ? cost : p->left;
    return bytes;
}

bool cf_part_value(cf_part *part, const char *key, size_t length, const cf_node *node, cf_err *err)
{
    cf_op *op = add(part, CF_OP_VALUE, key, length, err);
    if (!op) return false;
    if (cf_node_is_item(node) && node->storage->claim->rank >= 0)
        op->rank = node->storage->claim->rank;
    enum { MOST_PEEKED = 1 << 20 };
    peeking peeked = {.source = part->source, .left = MOST_PEEKED};
    cf_arena_init(&peeked.arena, 0);
    op->hash = cf_node_hash(node, peek, &peeked);
    cf_arena_free(&peeked.arena);
    op->node = cf_node_copy(&part->arena, node);
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_declare(cf_part *part, const char *key, size_t length, cf_dtype dtype, int ndim,
                     const int64_t *shape, cf_err *err)
{
    cf_op *op = add(part, CF_OP_DECLARE, key, length, err);
    if (!op) return false;
    int64_t numel, bytes;
    if (ndim > CF_MOST_DIMS) {
        cf_fail(err, CF_E_LIMIT, "more than %d dimensions", CF_MOST_DIMS);
        return context(part, op->key, err);
    }
    if (!cf_numel(shape, ndim, &numel) || !cf_mul(numel, cf_dtype_size(dtype), &bytes)) {
        cf_fail(err, CF_E_OVERFLOW, "the sizes of a tensor multiply beyond 63 bits");
        return context(part, op->key, err);
    }
    op->dtype = dtype;
    op->ndim = (uint8_t)ndim;
    op->shape = dims(part, shape, ndim);
    return cf_arena_ok(&part->arena, err);
}

const cf_cause *cf_part_cause(cf_part *part, const char *path, const cf_err *why)
{
    cf_cause *cause = CF_NEW(&part->kept, cf_cause);
    if (!cause) return NULL;
    cause->path = cf_strndup(&part->kept, path, strlen(path));
    cause->err = cf_memdup(&part->kept, why, sizeof *why);
    return cause->path && cause->err ? cause : NULL;
}

bool cf_part_lost(cf_part *part, const char *key, const cf_cause *why, int32_t rank, int ndim,
                  const int64_t *at, const int64_t *size, cf_err *err)
{
    int64_t numel = 1;
    if (size && cf_numel(size, ndim, &numel) && !numel) return true;
    cf_lost *lost = why ? CF_PUSH(&part->kept, part->lost, part->n_lost, part->cap_lost) : NULL;
    if (!lost) return cf_arena_ok(&part->kept, err);
    *lost = (cf_lost){.key = cf_strndup(&part->kept, key, strlen(key)), .why = why, .rank = rank};
    if (!size) return cf_arena_ok(&part->kept, err);
    lost->ndim = (uint8_t)ndim;
    lost->at = cf_memdup(&part->kept, at, (size_t)ndim * sizeof *at);
    lost->size = cf_memdup(&part->kept, size, (size_t)ndim * sizeof *size);
    return cf_arena_ok(&part->kept, err);
}

bool cf_part_name(cf_part *part, const char *key, size_t length, const char *role, const char *name,
                  cf_err *err)
{
    cf_op *op = add(part, CF_OP_NAME, key, length, err);
    if (!op) return false;
    op->text = cf_strndup(&part->arena, role, strlen(role));
    op->more = cf_strndup(&part->arena, name, strlen(name));
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_alias(cf_part *part, const char *key, size_t length, const char *of, cf_err *err)
{
    cf_op *op = add(part, CF_OP_ALIAS, key, length, err);
    if (!op) return false;
    op->text = cf_strndup(&part->arena, of, strlen(of));
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_path(cf_part *part, const char *key, size_t length, const cf_path *path, cf_err *err)
{
    cf_op *op = add(part, CF_OP_PATH, key, length, err);
    if (!op) return false;
    op->path = cf_path_copy(&part->arena, path, NULL, NULL);
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_same(cf_part *part, const char *key, size_t length, const char *said, cf_err *err)
{
    if (!said) return true;
    cf_op *op = add(part, CF_OP_SAME, key, length, err);
    if (!op) return false;
    op->text = cf_strndup(&part->arena, said, strlen(said));
    return cf_arena_ok(&part->arena, err);
}

bool cf_part_world(cf_part *part, int64_t size, int32_t rank, cf_err *err)
{
    cf_op *op = add(part, CF_OP_WORLD, "", 0, err);
    if (!op) return false;
    op->size = size;
    if (rank >= 0) op->rank = rank;
    if (size < 0) return true;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)size);
    op->text = cf_strndup(&part->arena, text, strlen(text));
    return cf_arena_ok(&part->arena, err);
}

void cf_part_rank(cf_part *part, int32_t rank)
{
    for (size_t i = 0; i < part->count; i++)
        if (part->ops[i].rank == part->rank) part->ops[i].rank = rank;
    part->rank = rank;
    part->known = true;
}

bool cf_part_placed(const cf_part *part)
{
    bool counted = false;
    for (size_t i = 0; i < part->count && !counted; i++) counted = part->ops[i].kind == CF_OP_WORLD;
    return part->known && counted;
}

bool cf_part_note(cf_part *part, const char *text, size_t length, cf_err *err)
{
    return add(part, CF_OP_NOTE, text, length, err) != NULL;
}

bool cf_part_writers(cf_part *part, int64_t count, cf_err *err)
{
    cf_op *op = add(part, CF_OP_WRITERS, "", 0, err);
    if (!op) return false;
    op->size = count;
    return true;
}
