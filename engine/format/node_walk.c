/* What goes through whole trees: depth, equality, hash, copy.
 *
 * Shared nodes unfold when two trees are compared or one is hashed, so that a few hundred bytes of
 * pickle may stand for 10^30 nodes: both count their steps and give up at MOST_STEPS. Both go no
 * deeper than CF_MOST_DEPTH, which also ends cycles. The copy visits every node once, from a list
 * of jobs, and recurses nowhere.
 */
#include <string.h>

#include "node.h"

enum { MOST_STEPS = 1 << 22, BYTES_A_STEP = 1024 };

static bool is_leaf(const cf_node *node)
{
    return node->kind < CF_NODE_LIST || node->kind > CF_NODE_OBJECT;
}

/* Child number i of a container, in any order; false behind the last one. NULL: no child. */
static bool child(const cf_node *node, size_t i, cf_node **out)
{
    const cf_list *list = NULL;
    const cf_dict *dict = NULL;
    if (node->kind == CF_NODE_LIST || node->kind == CF_NODE_TUPLE || node->kind == CF_NODE_SET) {
        list = node->list;
    } else if (node->kind == CF_NODE_DICT) {
        dict = node->dict;
    } else if (node->kind == CF_NODE_OBJECT) {
        const cf_fields *fields = node->object->fields;
        const cf_parts *parts = cf_object_parts(node->object);
        if (fields) {
            if (i < fields->count) *out = node->object->values[i];
            return i < fields->count;
        }
        list = &parts->items;
        dict = &parts->pairs;
        if (i < 2) {
            *out = i ? parts->state : parts->args;
            return true;
        }
        i -= 2;
    }
    if (list && i < list->count) {
        *out = list->items[i];
        return true;
    }
    if (list) i -= list->count;
    if (!dict || i / 2 >= dict->count) return false;
    *out = i % 2 ? dict->pairs[i / 2].value : dict->pairs[i / 2].key;
    return true;
}

enum { OPEN = UINT16_MAX };

/* The height of an object whose fields are leaves or known already, as most are; 0: it is not so.
 */
static uint16_t low_object(const cf_node *node)
{
    int highest = 0;
    if (node->kind != CF_NODE_OBJECT || !node->object->fields) return 0;
    for (size_t i = 0; i < node->object->fields->count; i++) {
        const cf_node *value = node->object->values[i];
        if (value->height == OPEN || (!value->height && !is_leaf(value))) return 0;
        if (value->height > highest) highest = value->height;
    }
    return (uint16_t)(highest + 2);
}

bool cf_node_check_depth(cf_node *root, cf_err *err)
{
    struct {
        cf_node *node;
        size_t next;
        int height; /* of the highest child so far */
    } path[CF_MOST_DEPTH + 1] = {{.node = root}};
    int depth = 0;
    root->height = OPEN;
    while (depth >= 0 && depth + path[depth].height < CF_MOST_DEPTH) {
        cf_node *below = NULL, *first;
        int *highest = &path[depth].height;
        if (!child(path[depth].node, path[depth].next++, &below)) {
            const cf_node *done = path[depth].node; /* fields are a dict within an object */
            const int height =
                *highest + (done->kind == CF_NODE_OBJECT && done->object->fields ? 2 : 1);
            path[depth].node->height = (uint16_t)height;
            if (--depth >= 0 && height > path[depth].height) path[depth].height = height;
        } else if (below && is_leaf(below)) {
            continue;
        } else if (below && (below->height || (below->height = low_object(below)))) {
            if (below->height > *highest && below->height != OPEN) *highest = below->height;
        } else if (below && child(below, 0, &first)) {
            path[++depth] = (typeof(*path)){.node = below};
            below->height = OPEN;
        }
    }
    return depth < 0 || cf_fail(err, CF_E_DEPTH, "nested deeper than %d", CF_MOST_DEPTH);
}

typedef struct cf_walk {
    int64_t steps; /* left */
    int depth;
    cf_peek *peek; /* of a hash; may be NULL */
    void *ctx;
} cf_walk;

static bool enter(cf_walk *walk)
{
    return ++walk->depth <= CF_MOST_DEPTH && --walk->steps >= 0;
}

static bool same_text(cf_string a, cf_string b)
{
    return a.length == b.length && (!a.length || memcmp(a.at, b.at, a.length) == 0);
}

static bool same_global(const cf_global *a, const cf_global *b)
{
    return a == b || (strcmp(a->module, b->module) == 0 && strcmp(a->name, b->name) == 0);
}

static bool same_storage(const cf_storage *a, const cf_storage *b)
{
    if (a == b) return true;
    return a->place == b->place && (a->place == CF_IN_FILE || a->place == CF_IN_MEMBER) &&
           a->file == b->file && a->offset == b->offset && a->size == b->size;
}

/* numpy pickles an array in C or in Fortran order, either way without gaps. */
static size_t array_size(const cf_view *v)
{
    return (size_t)v->numel * (size_t)cf_dtype_size(v->dtype);
}

static bool same_view(cf_walk *walk, const cf_view *a, const cf_view *b, bool by_bytes)
{
    const size_t dims = a->ndim * sizeof *a->shape;
    if (a->dtype != b->dtype || a->ndim != b->ndim || a->conj != b->conj || a->neg != b->neg)
        return false;
    if (dims && memcmp(a->shape, b->shape, dims) != 0) return false;
    if (a->numel > 1 && memcmp(a->stride, b->stride, dims) != 0) return false;
    if (!by_bytes || a->storage->place != CF_IN_MEMORY || b->storage->place != CF_IN_MEMORY)
        return same_storage(a->storage, b->storage) && a->offset == b->offset;
    const size_t size = array_size(a);
    walk->steps -= (int64_t)(size / BYTES_A_STEP);
    return walk->steps >= 0 && a->storage->big_endian == b->storage->big_endian &&
           (!size ||
            memcmp(a->storage->bytes + a->offset, b->storage->bytes + b->offset, size) == 0);
}

static bool equal(cf_walk *walk, const cf_node *a, const cf_node *b);

static bool same_list(cf_walk *walk, const cf_list *a, const cf_list *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!equal(walk, a->items[i], b->items[i])) return false;
    return true;
}

static bool same_dict(cf_walk *walk, const cf_dict *a, const cf_dict *b)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const cf_pair *p = &a->pairs[i], *q = &b->pairs[i];
        if (!b->index && b->count > CF_FEW && p->key != q->key) /* objects, looked for one by one */
            walk->steps -= (int64_t)b->count;
        if (walk->steps < 0) return false;
        const cf_node *other = equal(walk, p->key, q->key) ? q->value : cf_dict_find(b, p->key);
        if (!other || !equal(walk, p->value, other)) return false;
    }
    return true;
}

/* Python writes a set in the order of its hashes, which differ from process to process. */
static bool same_set(cf_walk *walk, const cf_list *a, const cf_list *b)
{
    if (a->count != b->count) return false;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_dict found = {0};
    bool same = true, again;
    cf_err err;
    for (size_t i = 0; same && i < b->count; i++)
        same = --walk->steps >= 0 &&
               cf_dict_set(&scratch, &found, b->items[i], b->items[i], &again, &err);
    for (size_t i = 0; same && i < a->count; i++)
        same = equal(walk, a->items[i], b->items[i]) || cf_dict_find(&found, a->items[i]);
    cf_arena_free(&scratch);
    return same;
}

static bool same_object(cf_walk *walk, const cf_object *a, const cf_object *b)
{
    if (!same_global(a->class, b->class)) return false;
    const cf_parts *x = cf_object_parts(a), *y = cf_object_parts(b);
    cf_record left, right;
    const cf_dict *p = cf_object_dict(a, &left), *q = cf_object_dict(b, &right);
    if (!x->args != !y->args || !p != !q || (!p && !x->state != !y->state)) return false;
    return (!x->args || equal(walk, x->args, y->args)) &&
           (!p || (enter(walk) && same_dict(walk, p, q) && walk->depth--)) &&
           (p || !x->state || equal(walk, x->state, y->state)) &&
           same_list(walk, &x->items, &y->items) && same_dict(walk, &x->pairs, &y->pairs);
}

static bool same_value(cf_walk *walk, const cf_node *a, const cf_node *b)
{
    switch (a->kind) {
    case CF_NODE_NONE: return true;
    case CF_NODE_BOOL:
    case CF_NODE_INT: return a->integer == b->integer;
    case CF_NODE_FLOAT: return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case CF_NODE_COMPLEX: return memcmp(&a->complex, &b->complex, sizeof a->complex) == 0;
    case CF_NODE_BIG:
    case CF_NODE_STRING:
    case CF_NODE_BYTES: return same_text(a->text, b->text);
    case CF_NODE_LIST:
    case CF_NODE_TUPLE: return same_list(walk, a->list, b->list);
    case CF_NODE_SET: return same_set(walk, a->list, b->list);
    case CF_NODE_DICT: return same_dict(walk, a->dict, b->dict);
    case CF_NODE_OBJECT: return same_object(walk, a->object, b->object);
    case CF_NODE_GLOBAL: return same_global(a->global, b->global);
    case CF_NODE_DTYPE: return a->dtype == b->dtype;
    case CF_NODE_TENSOR: return same_view(walk, a->view, b->view, false);
    case CF_NODE_ARRAY:
    case CF_NODE_SCALAR: return same_view(walk, a->view, b->view, true);
    case CF_NODE_STORAGE: return same_storage(a->storage, b->storage);
    }
    return false;
}

static bool equal(cf_walk *walk, const cf_node *a, const cf_node *b)
{
    if (a == b) return true;
    const bool same = a->kind == b->kind && enter(walk) && same_value(walk, a, b);
    if (a->kind == b->kind) walk->depth--;
    return same;
}

bool cf_node_equal(const cf_node *a, const cf_node *b)
{
    cf_walk walk = {.steps = MOST_STEPS};
    return equal(&walk, a, b);
}

static uint64_t hash(cf_walk *walk, const cf_node *node);

static uint64_t hash_list(cf_walk *walk, const cf_list *list, bool ordered, uint64_t seed)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        const uint64_t h = hash(walk, list->items[i]);
        sum = ordered ? cf_hash(&h, sizeof h, sum) : sum + h;
    }
    return cf_hash(&sum, sizeof sum, seed + list->count);
}

static uint64_t hash_dict(cf_walk *walk, const cf_dict *dict, uint64_t seed)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < dict->count; i++) {
        const uint64_t key = hash(walk, dict->pairs[i].key);
        const uint64_t pair[2] = {key, hash(walk, dict->pairs[i].value)};
        sum += cf_hash(pair, sizeof pair, 0);
    }
    return cf_hash(&sum, sizeof sum, seed + dict->count);
}

static uint64_t hash_object(cf_walk *walk, const cf_object *object, uint64_t seed)
{
    seed = cf_hash(object->class->module, strlen(object->class->module), seed);
    seed = cf_hash(object->class->name, strlen(object->class->name), seed);
    const cf_parts *parts = cf_object_parts(object);
    cf_record room;
    const cf_dict *state = cf_object_dict(object, &room);
    if (parts->args) seed = cf_hash(&seed, sizeof seed, hash(walk, parts->args));
    if (state) { /* whether they are fields or a dict */
        const uint64_t h = enter(walk) ? hash_dict(walk, state, CF_NODE_DICT + 1) : 0;
        walk->depth--;
        seed = cf_hash(&seed, sizeof seed, ~h);
    } else if (parts->state) {
        seed = cf_hash(&seed, sizeof seed, ~hash(walk, parts->state));
    }
    return hash_dict(walk, &parts->pairs, hash_list(walk, &parts->items, true, seed));
}

static uint64_t hash_view(cf_walk *walk, const cf_view *v, uint64_t seed)
{
    const cf_storage *s = v->storage;
    seed = cf_hash(v->shape, v->ndim * sizeof *v->shape, seed + (uint64_t)v->dtype);
    const uint8_t *bytes = s->place == CF_IN_MEMORY ? s->bytes + v->offset
                           : walk->peek             ? walk->peek(walk->ctx, v)
                                                    : NULL;
    const size_t size = array_size(v);
    walk->steps -= bytes ? (int64_t)(size / BYTES_A_STEP) : 0;
    if (bytes) return walk->steps < 0 ? seed : cf_hash(bytes, size, seed);
    const uint64_t record[] = {s->crc, s->size}, place[] = {s->file, s->offset};
    seed = cf_hash(v->stride, v->ndim * sizeof *v->stride, seed + v->offset);
    return s->has_crc ? cf_hash(record, sizeof record, seed) : cf_hash(place, sizeof place, seed);
}

static uint64_t hash_value(cf_walk *walk, const cf_node *node)
{
    const uint64_t seed = (uint64_t)node->kind + 1;
    switch (node->kind) {
    case CF_NODE_NONE: return seed;
    case CF_NODE_BOOL:
    case CF_NODE_INT: return cf_hash(&node->integer, sizeof node->integer, seed);
    case CF_NODE_FLOAT: return cf_hash(&node->real, sizeof node->real, seed);
    case CF_NODE_COMPLEX: return cf_hash(&node->complex, sizeof node->complex, seed);
    case CF_NODE_BIG:
    case CF_NODE_STRING:
    case CF_NODE_BYTES: return cf_hash(node->text.at, node->text.length, seed);
    case CF_NODE_LIST:
    case CF_NODE_TUPLE:
    case CF_NODE_SET: return hash_list(walk, node->list, node->kind != CF_NODE_SET, seed);
    case CF_NODE_DICT: return hash_dict(walk, node->dict, seed);
    case CF_NODE_OBJECT: return hash_object(walk, node->object, seed);
    case CF_NODE_GLOBAL: return cf_hash(node->global->name, strlen(node->global->name), seed);
    case CF_NODE_DTYPE: return cf_hash(&node->dtype, sizeof node->dtype, seed);
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY:
    case CF_NODE_SCALAR: return hash_view(walk, node->view, seed);
    case CF_NODE_STORAGE: return cf_hash(&node->storage->size, sizeof node->storage->size, seed);
    }
    return seed;
}

static uint64_t hash(cf_walk *walk, const cf_node *node)
{
    const uint64_t h = enter(walk) ? hash_value(walk, node) : 0;
    walk->depth--;
    return h;
}

uint64_t cf_node_hash(const cf_node *node, cf_peek *peek, void *ctx)
{
    cf_walk walk = {.steps = MOST_STEPS, .peek = peek, .ctx = ctx};
    return hash(&walk, node);
}

typedef struct cf_copy_job {
    const cf_node *from;
    cf_node *to;
} cf_copy_job;

typedef struct cf_copier {
    cf_arena *arena, scratch;
    cf_map seen; /* address of what was copied (a node, a class) -> address of the copy */
    cf_copy_job *jobs;
    size_t count, cap;
} cf_copier;

/* Where the copy's address belongs; NULL if memory failed. */
static uint64_t *copy_place(cf_copier *c, const void *from, bool *fresh)
{
    const void *key = cf_memdup(&c->scratch, &from, sizeof from);
    return key ? cf_map_put(&c->seen, key, sizeof from, fresh) : NULL;
}

static const cf_global *copy_global(cf_copier *c, const cf_global *from)
{
    bool fresh;
    uint64_t *place = copy_place(c, from, &fresh);
    if (!place) return from;
    if (fresh) {
        cf_global *to = CF_NEW(c->arena, cf_global);
        if (!to) return from;
        to->module = cf_strndup(c->arena, from->module, strlen(from->module));
        to->name = cf_strndup(c->arena, from->name, strlen(from->name));
        to->trust = from->trust;
        *place = (uintptr_t)to;
    }
    return (const cf_global *)(uintptr_t)*place;
}

static cf_node *copy_node(cf_copier *c, const cf_node *from)
{
    bool fresh;
    uint64_t *place = from ? copy_place(c, from, &fresh) : NULL;
    if (!place) return NULL;
    if (!fresh) return (cf_node *)(uintptr_t)*place;
    cf_node *to = cf_node_new(c->arena, from->kind);
    *place = (uintptr_t)to;
    cf_copy_job *job = to ? CF_PUSH(&c->scratch, c->jobs, c->count, c->cap) : NULL;
    if (job) *job = (cf_copy_job){.from = from, .to = to};
    return to;
}

static void copy_list(cf_copier *c, const cf_list *from, cf_list *to)
{
    to->items = CF_NEWS(c->arena, cf_node *, from->count);
    if (!to->items) return;
    to->count = to->cap = from->count;
    for (size_t i = 0; i < from->count; i++) to->items[i] = copy_node(c, from->items[i]);
}

static void copy_dict(cf_copier *c, const cf_dict *from, cf_dict *to)
{
    to->pairs = CF_NEWS(c->arena, cf_pair, from->count);
    if (!to->pairs) return;
    to->count = to->cap = from->count;
    for (size_t i = 0; i < from->count; i++) {
        to->pairs[i].key = copy_node(c, from->pairs[i].key);
        to->pairs[i].value = copy_node(c, from->pairs[i].value);
    }
}

static const cf_fields *copy_fields(cf_copier *c, const cf_fields *from)
{
    bool fresh;
    uint64_t *place = copy_place(c, from, &fresh);
    if (!place) return from;
    if (!fresh) return (const cf_fields *)(uintptr_t)*place;
    const size_t count = from->count;
    cf_fields *to = cf_calloc(c->arena, 1, sizeof *to + count * sizeof *to->names);
    if (!to) return from;
    *place = (uintptr_t)to; /* before the map may move */
    to->count = count;
    for (size_t i = 0; i < count; i++) to->names[i] = copy_node(c, from->names[i]);
    return to;
}

static void copy_object(cf_copier *c, const cf_object *from, cf_object *to)
{
    to->class = copy_global(c, from->class);
    if (from->fields) {
        const size_t count = from->fields->count;
        to->values = CF_NEWS(c->arena, cf_node *, count);
        to->fields = copy_fields(c, from->fields);
        for (size_t i = 0; to->values && i < count; i++)
            to->values[i] = copy_node(c, from->values[i]);
        return;
    }
    const cf_parts *parts = cf_object_parts(from);
    cf_parts *own = from->parts ? cf_object_own(c->arena, to) : NULL;
    if (!own) return;
    own->args = copy_node(c, parts->args);
    own->state = copy_node(c, parts->state);
    copy_list(c, &parts->items, &own->items);
    copy_dict(c, &parts->pairs, &own->pairs);
}

/* What points at nothing in the file, or at one element of its own, needs no file's arena. */
static const cf_storage *copy_storage(cf_copier *c, const cf_storage *from, bool own)
{
    if (from->place != CF_NOWHERE && !(own && from->place == CF_IN_MEMORY)) return from;
    cf_storage *to = cf_memdup(c->arena, from, sizeof *from);
    if (!to) return from;
    to->name = "";
    if (to->place == CF_IN_MEMORY) to->bytes = cf_memdup(c->arena, from->bytes, from->size);
    return to;
}

static const cf_view *copy_view(cf_copier *c, const cf_node *from)
{
    cf_view view = *from->view;
    view.storage = copy_storage(c, view.storage, from->kind == CF_NODE_SCALAR);
    return cf_view_copy(c->arena, &view);
}

static void copy_value(cf_copier *c, const cf_node *from, cf_node *to)
{
    to->height = from->height;
    to->keyed = from->keyed;
    to->plain = from->plain;
    switch (from->kind) {
    case CF_NODE_BIG:
    case CF_NODE_STRING:
    case CF_NODE_BYTES:
        to->text.at = cf_strndup(c->arena, from->text.at, from->text.length);
        to->text.length = from->text.length;
        break;
    case CF_NODE_LIST:
    case CF_NODE_TUPLE:
    case CF_NODE_SET: copy_list(c, from->list, to->list); break;
    case CF_NODE_DICT: copy_dict(c, from->dict, to->dict); break;
    case CF_NODE_OBJECT: copy_object(c, from->object, to->object); break;
    case CF_NODE_GLOBAL: to->global = copy_global(c, from->global); break;
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY:
    case CF_NODE_SCALAR: to->view = copy_view(c, from); break;
    case CF_NODE_STORAGE:
        *to = *from;
        to->storage = copy_storage(c, from->storage, false);
        break;
    default: *to = *from; break;
    }
}

/* Only when all is copied: the index spells keys, which may be tuples. */
static bool copy_indexes(cf_copier *c)
{
    cf_err err;
    for (size_t i = 0; i < c->count; i++) {
        const cf_node *from = c->jobs[i].from;
        cf_node *to = c->jobs[i].to;
        if (from->kind == CF_NODE_DICT && from->dict->index)
            CF_TRY(cf_dict_index(c->arena, to->dict, &err));
        if (from->kind == CF_NODE_OBJECT && cf_object_parts(from->object)->pairs.index)
            CF_TRY(cf_dict_index(c->arena, &to->object->parts->pairs, &err));
    }
    return true;
}

cf_node *cf_node_copy(cf_arena *arena, const cf_node *node)
{
    cf_copier c = {.arena = arena};
    cf_arena_init(&c.scratch, 0);
    cf_map_init(&c.seen, &c.scratch);
    cf_node *root = copy_node(&c, node);
    for (size_t i = 0; i < c.count && !arena->failed && !c.scratch.failed; i++)
        copy_value(&c, c.jobs[i].from, c.jobs[i].to);
    const bool done = !arena->failed && !c.scratch.failed && copy_indexes(&c);
    cf_arena_free(&c.scratch);
    return done ? root : NULL;
}
