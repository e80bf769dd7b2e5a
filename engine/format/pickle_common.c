/* What a pickle says again and again is one node: strings, and tuples of numbers (shapes, offsets)
 * by a table of all that there are; numbers as long as they were made lately, for where they are
 * new (places in files) a table would hold nothing else. None of them ever changes, so that nobody
 * can tell.
 *
 * The table has open addressing on the heap; it holds what the machine made, at most one entry an
 * opcode. Hashing is seeded per process: a file cannot be made to collide.
 */
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "pickle_vm.h"

enum { MOST_TUPLE = 8, MOST_STRING = 255, MOST_INTS = 1 << 14 };

bool cf_commons_init(cf_commons *c, size_t size)
{
    c->cap_ints = 64;
    while (c->cap_ints < MOST_INTS && c->cap_ints < size >> 8) c->cap_ints *= 2;
    c->ints = calloc(c->cap_ints, sizeof *c->ints);
    return c->ints != NULL;
}

void cf_commons_free(cf_commons *c)
{
    free(c->ints);
    free(c->slots);
}

static bool same(const cf_node *a, const cf_node *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == CF_NODE_STRING)
        return a->text.length == b->text.length &&
               memcmp(a->text.at, b->text.at, a->text.length) == 0;
    if (a->list->count != b->list->count) return false;
    for (size_t i = 0; i < a->list->count; i++)
        if (a->list->items[i]->integer != b->list->items[i]->integer) return false;
    return true;
}

static struct cf_common *find(const cf_commons *c, uint64_t hash, const cf_node *node)
{
    size_t i = hash & (c->cap - 1);
    for (; c->slots[i].node; i = (i + 1) & (c->cap - 1))
        if (c->slots[i].hash == hash && same(c->slots[i].node, node)) break;
    return &c->slots[i];
}

/* The slot of an equal node, or a free one that has the hash; NULL: out of memory. */
static struct cf_common *slot_of(cf_commons *c, uint64_t hash, const cf_node *node)
{
    if (c->count * 3 >= c->cap * 2) {
        const cf_commons old = *c;
        const size_t cap = old.cap ? old.cap * 2 : 64;
        struct cf_common *slots = calloc(cap, sizeof *slots);
        if (!slots) return NULL;
        for (size_t i = 0; i < old.cap; i++) {
            size_t at = old.slots[i].hash & (cap - 1);
            while (slots[at].node) at = (at + 1) & (cap - 1);
            slots[at] = old.slots[i];
        }
        free(old.slots);
        c->slots = slots;
        c->cap = cap;
    }
    struct cf_common *slot = find(c, hash, node);
    slot->hash = hash;
    return slot;
}

static cf_node *keep(cf_commons *c, struct cf_common *slot, cf_node *node)
{
    if (!node) return NULL;
    c->count++;
    return slot->node = node;
}

cf_node *cf_common_int(cf_commons *c, cf_arena *arena, int64_t value)
{
    const uint64_t mixed = (uint64_t)value * 0x9e3779b97f4a7c15;
    cf_node **slot = &c->ints[(mixed >> 32) & (c->cap_ints - 1)];
    if (*slot && (*slot)->integer == value) return *slot;
    return *slot = cf_node_int(arena, value);
}

cf_node *cf_common_string(cf_commons *c, cf_arena *arena, const char *at, size_t length,
                          size_t *bad)
{
    const cf_node key = {.kind = CF_NODE_STRING, .text = {at, length}};
    const bool common = length && length <= MOST_STRING;
    struct cf_common *slot = common ? slot_of(c, cf_hash_bytes(at, length), &key) : NULL;
    *bad = length;
    if (common && (!slot || slot->node)) return slot ? slot->node : NULL;
    *bad = cf_utf8_valid(at, length);
    if (*bad < length) return NULL;
    cf_node *node = cf_node_text(arena, CF_NODE_STRING, at, length);
    return common ? keep(c, slot, node) : node;
}

cf_node *cf_common_tuple(cf_commons *c, cf_arena *arena, cf_node *const *items, size_t count)
{
    cf_list list = {(cf_node **)items, count, count};
    const cf_node key = {.kind = CF_NODE_TUPLE, .list = &list};
    bool plain = count <= MOST_TUPLE;
    uint64_t hash = count;
    for (size_t i = 0; i < count && plain; i++) {
        plain = items[i]->kind == CF_NODE_INT;
        hash = cf_hash_word(hash ^ (uint64_t)items[i]->integer);
    }
    struct cf_common *slot = plain ? slot_of(c, hash, &key) : NULL;
    if (plain && (!slot || slot->node)) return slot ? slot->node : NULL;
    cf_node *node = cf_node_new(arena, CF_NODE_TUPLE);
    if (!node) return NULL;
    node->list->items = cf_memdup(arena, items, count * sizeof *items);
    if (!node->list->items) return NULL;
    node->list->count = node->list->cap = count;
    node->plain = plain;
    node->height = plain;
    return plain ? keep(c, slot, node) : node;
}
