#include "join.h"

typedef struct joining {
    cf_arena arena;
    cf_map seen; /* addresses: each is moved once */
    uint32_t by;
} joining;

static bool is_new(joining *j, const void *at)
{
    bool fresh = false;
    const void **key = cf_memdup(&j->arena, &at, sizeof at);
    return key && cf_map_put(&j->seen, key, sizeof *key, &fresh) && fresh;
}

static void move_storage(joining *j, const cf_storage *s)
{
    /* made by the reading that has just ended; nobody else has it yet */
    if (s && is_new(j, s)) ((cf_storage *)(uintptr_t)s)->file += j->by;
}

static void move_node(joining *j, const cf_node *node)
{
    if (!node) return;
    const cf_list *list = NULL;
    const cf_dict *dict = NULL;
    switch (node->kind) {
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY:
    case CF_NODE_SCALAR: move_storage(j, node->view->storage); return;
    case CF_NODE_STORAGE: move_storage(j, node->storage); return;
    case CF_NODE_LIST:
    case CF_NODE_TUPLE:
    case CF_NODE_SET: list = node->list; break;
    case CF_NODE_DICT: dict = node->dict; break;
    case CF_NODE_OBJECT: break;
    default: return;
    }
    if (!is_new(j, node)) return;
    if (node->kind == CF_NODE_OBJECT && node->object->fields) {
        for (size_t i = 0; i < node->object->fields->count; i++)
            move_node(j, node->object->values[i]);
    } else if (node->kind == CF_NODE_OBJECT) {
        const cf_parts *parts = cf_object_parts(node->object);
        move_node(j, parts->args);
        move_node(j, parts->state);
        list = &parts->items;
        dict = &parts->pairs;
    }
    for (size_t i = 0; list && i < list->count; i++) move_node(j, list->items[i]);
    for (size_t i = 0; dict && i < dict->count; i++) {
        move_node(j, dict->pairs[i].key);
        move_node(j, dict->pairs[i].value);
    }
}

static void move_row(joining *j, cf_row *row)
{
    if (row->alias) return; /* its pieces are the other row's */
    for (size_t i = 0; i < row->n_pieces; i++) {
        row->pieces[i].file += j->by;
        move_storage(j, row->pieces[i].view->storage);
        if (row->pieces[i].range) move_storage(j, row->pieces[i].range->storage);
    }
    for (size_t i = 0; i < row->n_values; i++) {
        row->values[i].file += j->by;
        move_node(j, row->values[i].node);
    }
}

bool cf_join(cf_source *first, cf_source *other, cf_catalogue *cat, uint32_t root, cf_err *err)
{
    cf_source *last = first;
    joining j = {.by = first->dir.count};
    for (; last->next; last = last->next) j.by += last->next->dir.count;
    cf_arena_init(&j.arena, 0);
    cf_map_init(&j.seen, &j.arena);
    for (size_t i = 0; i < cat->count; i++) move_row(&j, cat->rows[i]);
    other->first_root = root;
    last->next = other;
    cat->source = first;
    const bool ok = cf_arena_ok(&j.arena, err);
    cf_arena_free(&j.arena);
    return ok;
}
