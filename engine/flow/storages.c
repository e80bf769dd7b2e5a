#include "storages.h"

static bool is_new(cf_storages *s, const void *at)
{
    bool fresh = false;
    const void **key = cf_memdup(&s->arena, &at, sizeof at);
    return key && cf_map_put(&s->seen, key, sizeof *key, &fresh) && fresh;
}

static void take_once(cf_storages *s, const cf_storage *storage)
{
    if (storage && is_new(s, storage)) s->take(s->ctx, storage);
}

void cf_storages_begin(cf_storages *s, void (*take)(void *ctx, const cf_storage *storage),
                       void *ctx)
{
    *s = (cf_storages){.take = take, .ctx = ctx};
    cf_arena_init(&s->arena, 0);
    cf_map_init(&s->seen, &s->arena);
}

void cf_storages_of_view(cf_storages *s, const cf_view *view)
{
    take_once(s, view->storage);
}

void cf_storages_of_node(cf_storages *s, const cf_node *node)
{
    if (!node) return;
    const cf_list *list = NULL;
    const cf_dict *dict = NULL;
    switch (node->kind) {
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY:
    case CF_NODE_SCALAR: take_once(s, node->view->storage); return;
    case CF_NODE_STORAGE: take_once(s, node->storage); return;
    case CF_NODE_LIST:
    case CF_NODE_TUPLE:
    case CF_NODE_SET: list = node->list; break;
    case CF_NODE_DICT: dict = node->dict; break;
    case CF_NODE_OBJECT: break;
    default: return;
    }
    if (!is_new(s, node)) return;
    if (node->kind == CF_NODE_OBJECT && node->object->fields) {
        for (size_t i = 0; i < node->object->fields->count; i++)
            cf_storages_of_node(s, node->object->values[i]);
    } else if (node->kind == CF_NODE_OBJECT) {
        const cf_parts *parts = cf_object_parts(node->object);
        cf_storages_of_node(s, parts->args);
        cf_storages_of_node(s, parts->state);
        list = &parts->items;
        dict = &parts->pairs;
    }
    for (size_t i = 0; list && i < list->count; i++) cf_storages_of_node(s, list->items[i]);
    for (size_t i = 0; dict && i < dict->count; i++) {
        cf_storages_of_node(s, dict->pairs[i].key);
        cf_storages_of_node(s, dict->pairs[i].value);
    }
}

bool cf_storages_end(cf_storages *s, cf_err *err)
{
    const bool ok = cf_arena_ok(&s->arena, err);
    cf_arena_free(&s->arena);
    return ok;
}
