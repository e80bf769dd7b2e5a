/* What a pickle says again and again is one node: numbers, strings, and tuples of numbers (shapes,
 * offsets). All of them never change, so that nobody can tell.
 *
 * A table of open addressing on the heap; it holds what the machine made, at most one entry an
 * opcode. Hashing is seeded per process: a file cannot be made to collide.
 */
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "pickle_vm.h"

enum { MOST_TUPLE = 8, MOST_STRING = 255 };

static uint64_t hash_of(const cf_node *node)
{
    if (node->kind == CF_NODE_INT) return cf_hash_word((uint64_t)node->integer);
    if (node->kind == CF_NODE_STRING) return cf_hash_bytes(node->text.at, node->text.length);
    uint64_t h = node->list->count;
    for (size_t i = 0; i < node->list->count; i++)
        h = cf_hash_word(h ^ (uint64_t)node->list->items[i]->integer);
    return h;
}

static bool same(const cf_node *a, const cf_node *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == CF_NODE_INT) return a->integer == b->integer;
    if (a->kind == CF_NODE_STRING)
        return a->text.length == b->text.length &&
               memcmp(a->text.at, b->text.at, a->text.length) == 0;
    if (a->list->count != b->list->count) return false;
    for (size_t i = 0; i < a->list->count; i++)
        if (a->list->items[i]->integer != b->list->items[i]->integer) return false;
    return true;
}

static cf_node **find(const cf_commons *c, const cf_node *node)
{
    size_t i = hash_of(node) & (c->cap - 1);
    while (c->slots[i] && !same(c->slots[i], node)) i = (i + 1) & (c->cap - 1);
    return &c->slots[i];
}

/* The slot of an equal node, or a free one. */
static cf_node **slot_of(cf_commons *c, const cf_node *node)
{
    if (c->count * 3 >= c->cap * 2) {
        cf_commons wide = {.count = c->count, .cap = c->cap ? c->cap * 2 : 64};
        wide.slots = calloc(wide.cap, sizeof *wide.slots);
        if (!wide.slots) return NULL;
        for (size_t i = 0; i < c->cap; i++)
            if (c->slots[i]) *find(&wide, c->slots[i]) = c->slots[i];
        free(c->slots);
        *c = wide;
    }
    return find(c, node);
}

static cf_node *keep(cf_commons *c, cf_node **slot, cf_node *node)
{
    if (!node) return NULL;
    c->count++;
    return *slot = node;
}

cf_node *cf_common_int(cf_commons *c, cf_arena *arena, int64_t value)
{
    const cf_node key = {.kind = CF_NODE_INT, .integer = value};
    cf_node **slot = slot_of(c, &key);
    return !slot || *slot ? (slot ? *slot : NULL) : keep(c, slot, cf_node_int(arena, value));
}

cf_node *cf_common_string(cf_commons *c, cf_arena *arena, const char *at, size_t length)
{
    const cf_node key = {.kind = CF_NODE_STRING, .text = {at, length}};
    if (!length || length > MOST_STRING) return cf_node_text(arena, CF_NODE_STRING, at, length);
    cf_node **slot = slot_of(c, &key);
    if (!slot || *slot) return slot ? *slot : NULL;
    return keep(c, slot, cf_node_text(arena, CF_NODE_STRING, at, length));
}

cf_node *cf_common_tuple(cf_commons *c, cf_arena *arena, cf_node *const *items, size_t count)
{
    cf_list list = {(cf_node **)items, count, count};
    const cf_node key = {.kind = CF_NODE_TUPLE, .list = &list};
    bool plain = count <= MOST_TUPLE;
    for (size_t i = 0; i < count && plain; i++) plain = items[i]->kind == CF_NODE_INT;
    cf_node **slot = plain ? slot_of(c, &key) : NULL;
    if (plain && (!slot || *slot)) return slot ? *slot : NULL;
    cf_node *node = cf_node_new(arena, CF_NODE_TUPLE);
    if (!node) return NULL;
    node->list->items = cf_memdup(arena, items, count * sizeof *items);
    if (!node->list->items) return NULL;
    node->list->count = node->list->cap = count;
    node->plain = plain;
    return plain ? keep(c, slot, node) : node;
}
