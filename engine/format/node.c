/* Nodes, lists and dicts.
 *
 * A dict of a few string keys is searched from front to back: a checkpoint's metadata holds them by
 * the hundred thousand, and an index each would be most of its memory. One of objects alone has no
 * index either: what is a key for the first time cannot be in it. Others have an index from
 * the key's canonical bytes to the number of its pair. A string is its own canonical bytes; every
 * other kind begins with 0xff, which no UTF-8 text does, so that 1 and "1" never meet. What Python
 * hashes by identity is spelled as its address.
 */
#include "node.h"

#include <string.h>

#include "text.h"

enum { MOST_PARTS = 4096, MOST_KEY_DEPTH = 64, MOST_KEY_SIZE = 1 << 16 };

cf_node *cf_node_new(cf_arena *arena, cf_kind kind)
{
    size_t more = 0;
    if (kind == CF_NODE_LIST || kind == CF_NODE_TUPLE || kind == CF_NODE_SET)
        more = sizeof(cf_list);
    else if (kind == CF_NODE_DICT)
        more = sizeof(cf_dict);
    else if (kind == CF_NODE_OBJECT)
        more = sizeof(cf_object);
    cf_node *node = cf_calloc(arena, 1, sizeof *node + more);
    if (!node) return NULL;
    node->kind = kind;
    if (kind == CF_NODE_DICT)
        node->dict = (void *)(node + 1);
    else if (kind == CF_NODE_OBJECT)
        node->object = (void *)(node + 1);
    else if (more)
        node->list = (void *)(node + 1);
    return node;
}

cf_node *cf_node_int(cf_arena *arena, int64_t value)
{
    cf_node *node = cf_node_new(arena, CF_NODE_INT);
    if (node) node->integer = value;
    return node;
}

cf_node *cf_node_text(cf_arena *arena, cf_kind kind, const char *at, size_t length)
{
    cf_node *node = cf_node_new(arena, kind);
    if (node) node->text = (cf_string){.at = at, .length = length};
    return node;
}

bool cf_list_add(cf_arena *arena, cf_list *list, cf_node *item)
{
    cf_node **place = CF_PUSH(arena, list->items, list->count, list->cap);
    if (place) *place = item;
    return place != NULL;
}

static void spell_bytes(cf_text *out, char mark, const void *bytes, size_t size)
{
    const char head[2] = {'\xff', mark};
    cf_text_add(out, head, sizeof head);
    cf_text_add(out, bytes, size);
}

static bool spell(cf_text *out, const cf_node *key, int depth, size_t *parts, cf_err *err)
{
    switch (key->kind) {
    case CF_NODE_NONE: spell_bytes(out, 'n', NULL, 0); break;
    case CF_NODE_BOOL:
    case CF_NODE_INT: spell_bytes(out, 'i', &key->integer, sizeof key->integer); break;
    case CF_NODE_FLOAT: {
        const double real = key->real == 0 ? 0 : key->real; /* -0.0 is the key 0.0 */
        spell_bytes(out, 'f', &real, sizeof real);
        break;
    }
    case CF_NODE_COMPLEX: spell_bytes(out, 'c', &key->complex, sizeof key->complex); break;
    case CF_NODE_BIG: spell_bytes(out, 'b', key->text.at, key->text.length); break;
    case CF_NODE_STRING: spell_bytes(out, 's', key->text.at, key->text.length); break;
    case CF_NODE_BYTES: spell_bytes(out, 'y', key->text.at, key->text.length); break;
    case CF_NODE_DTYPE: spell_bytes(out, 'd', &key->dtype, sizeof key->dtype); break;
    case CF_NODE_GLOBAL:
        spell_bytes(out, 'g', key->global->module, strlen(key->global->module));
        cf_text_add(out, ".", 1);
        cf_text_str(out, key->global->name);
        break;
    case CF_NODE_OBJECT:
    case CF_NODE_SET:
    case CF_NODE_TENSOR:
    case CF_NODE_SCALAR:
    case CF_NODE_STORAGE: spell_bytes(out, 'p', &key, sizeof(void *)); break;
    case CF_NODE_TUPLE:
        if (depth == MOST_KEY_DEPTH)
            return cf_fail(err, CF_E_LIMIT, "a key of more than %d nested tuples", MOST_KEY_DEPTH);
        *parts += key->list->count;
        if (*parts > MOST_PARTS)
            return cf_fail(err, CF_E_LIMIT, "a key of more than %d parts", MOST_PARTS);
        spell_bytes(out, 't', &key->list->count, sizeof key->list->count);
        for (size_t i = 0; i < key->list->count; i++) {
            const size_t from = out->size;
            CF_TRY(spell(out, key->list->items[i], depth + 1, parts, err));
            const size_t size = out->size - from; /* behind each part: no two tuples spell alike */
            cf_text_add(out, &size, sizeof size);
            if (out->size > MOST_KEY_SIZE)
                return cf_fail(err, CF_E_LIMIT, "a tuple key of more than %d bytes", MOST_KEY_SIZE);
        }
        break;
    case CF_NODE_LIST:
    case CF_NODE_DICT:
    case CF_NODE_ARRAY:
        return cf_fail(err, CF_E_TYPE, "%s %s cannot be a key", CF_A(cf_node_class(key)));
    }
    return cf_text_ok(out, err);
}

/* The key's canonical bytes: the string's own, or those in `room`, which the caller frees. */
static bool canonical(const cf_node *key, cf_text *room, cf_string *out, cf_err *err)
{
    *out = key->text;
    if (key->kind == CF_NODE_STRING) return true;
    size_t parts = 0;
    CF_TRY(spell(room, key, 0, &parts, err));
    *out = (cf_string){.at = room->at, .length = room->size};
    return true;
}

/* Without an index, and objects: then all keys are. */
static bool of_objects(const cf_dict *dict)
{
    return !dict->index && dict->count && dict->pairs[0].key->kind == CF_NODE_OBJECT;
}

static cf_pair *find(const cf_dict *dict, cf_string key)
{
    uint64_t number;
    if (dict->index)
        return cf_map_get(dict->index, key.at, key.length, &number) ? &dict->pairs[number] : NULL;
    if (of_objects(dict)) return NULL;
    for (size_t i = 0; i < dict->count; i++) {
        const cf_string *s = &dict->pairs[i].key->text; /* else all keys are strings */
        if (s->length == key.length && (!key.length || memcmp(s->at, key.at, key.length) == 0))
            return &dict->pairs[i];
    }
    return NULL;
}

static bool enter(cf_arena *arena, cf_dict *dict, size_t number, cf_string key, cf_err *err)
{
    const char *at = dict->pairs[number].key->kind == CF_NODE_STRING && key.length
                         ? key.at
                         : cf_memdup(arena, key.at, key.length);
    bool fresh;
    uint64_t *place = at ? cf_map_put(dict->index, at, key.length, &fresh) : NULL;
    if (!place) return cf_arena_ok(arena, err);
    *place = number;
    return true;
}

bool cf_dict_index(cf_arena *arena, cf_dict *dict, cf_err *err)
{
    dict->index = CF_NEW(arena, cf_map);
    if (!dict->index) return cf_arena_ok(arena, err);
    cf_map_init(dict->index, arena);
    bool done = true;
    for (size_t i = 0; done && i < dict->count; i++) {
        cf_text room = {0};
        cf_string key;
        done = canonical(dict->pairs[i].key, &room, &key, err) && enter(arena, dict, i, key, err);
        cf_text_free(&room);
    }
    return done;
}

static bool set(cf_arena *arena, cf_dict *dict, cf_node *key, cf_string spelled, cf_node *value,
                bool *replaced, cf_err *err)
{
    cf_pair *pair = find(dict, spelled);
    *replaced = pair != NULL;
    if (pair) {
        pair->value = value;
        return true;
    }
    pair = CF_PUSH(arena, dict->pairs, dict->count, dict->cap);
    if (!pair) return cf_arena_ok(arena, err);
    *pair = (cf_pair){.key = key, .value = value};
    if (dict->index) return enter(arena, dict, dict->count - 1, spelled, err);
    const bool few = dict->count <= CF_FEW && key->kind == CF_NODE_STRING && !of_objects(dict);
    return few || cf_dict_index(arena, dict, err);
}

/* An object that was never a key cannot be in a dict of objects. */
static bool is_new_object(const cf_dict *dict, const cf_node *key)
{
    return key->kind == CF_NODE_OBJECT && !key->keyed && (!dict->count || of_objects(dict));
}

bool cf_dict_set(cf_arena *arena, cf_dict *dict, cf_node *key, cf_node *value, bool *replaced,
                 cf_err *err)
{
    cf_text room = {0};
    cf_string spelled;
    if (is_new_object(dict, key)) {
        cf_pair *pair = CF_PUSH(arena, dict->pairs, dict->count, dict->cap);
        if (!pair) return cf_arena_ok(arena, err);
        *pair = (cf_pair){.key = key, .value = value};
        *replaced = false;
        return key->keyed = true;
    }
    if (key->kind == CF_NODE_OBJECT) key->keyed = true;
    if (of_objects(dict)) CF_TRY(cf_dict_index(arena, dict, err));
    const bool done = canonical(key, &room, &spelled, err) &&
                      set(arena, dict, key, spelled, value, replaced, err);
    cf_text_free(&room);
    return done;
}

cf_node *cf_dict_find(const cf_dict *dict, const cf_node *key)
{
    for (size_t i = 0; of_objects(dict) && key->kind == CF_NODE_OBJECT && i < dict->count; i++)
        if (dict->pairs[i].key == key) return dict->pairs[i].value;
    if (key->kind != CF_NODE_STRING && !dict->index) return NULL;
    cf_text room = {0};
    cf_string spelled;
    cf_err err;
    const cf_pair *pair = canonical(key, &room, &spelled, &err) ? find(dict, spelled) : NULL;
    cf_text_free(&room);
    return pair ? pair->value : NULL;
}

cf_node *cf_dict_string(const cf_dict *dict, const char *key)
{
    const cf_pair *pair = find(dict, (cf_string){.at = key, .length = strlen(key)});
    return pair ? pair->value : NULL;
}

cf_node *cf_node_field(const cf_node *node, const char *name)
{
    if (node->kind == CF_NODE_DICT) return cf_dict_string(node->dict, name);
    if (node->kind != CF_NODE_OBJECT) return NULL;
    const cf_fields *fields = node->object->fields;
    const cf_node *state = cf_object_parts(node->object)->state;
    if (!fields)
        return state && state->kind == CF_NODE_DICT ? cf_dict_string(state->dict, name) : NULL;
    for (size_t i = 0; i < fields->count; i++) {
        const cf_string *s = &fields->names[i]->text;
        if (strncmp(s->at, name, s->length) == 0 && !name[s->length])
            return node->object->values[i];
    }
    return NULL;
}

const cf_parts *cf_object_parts(const cf_object *object)
{
    static const cf_parts NONE;
    return object->fields || !object->parts ? &NONE : object->parts;
}

cf_parts *cf_object_own(cf_arena *arena, cf_object *object)
{
    if (!object->fields && object->parts) return object->parts;
    cf_parts *parts = CF_NEW(arena, cf_parts);
    cf_record room;
    const cf_dict *dict = cf_object_dict(object, &room);
    if (dict) {
        cf_node *state = cf_node_new(arena, CF_NODE_DICT);
        cf_pair *pairs = cf_memdup(arena, dict->pairs, dict->count * sizeof *pairs);
        if (!parts || !state || !pairs) return NULL;
        *state->dict = (cf_dict){.pairs = pairs, .count = dict->count, .cap = dict->count};
        parts->state = state;
    }
    if (!parts) return NULL;
    object->fields = NULL;
    return object->parts = parts;
}

const cf_dict *cf_object_dict(const cf_object *object, cf_record *room)
{
    const cf_fields *fields = object->fields;
    if (!fields) {
        const cf_node *state = cf_object_parts(object)->state;
        return state && state->kind == CF_NODE_DICT ? state->dict : NULL;
    }
    for (size_t i = 0; i < fields->count; i++)
        room->pairs[i] = (cf_pair){.key = fields->names[i], .value = object->values[i]};
    room->dict = (cf_dict){.pairs = room->pairs, .count = fields->count};
    return &room->dict;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

const char *cf_node_class(const cf_node *node)
{
    static const char *const NAMES[] = {
        [CF_NODE_NONE] = "none",       [CF_NODE_BOOL] = "boolean",  [CF_NODE_INT] = "integer",
        [CF_NODE_BIG] = "integer",     [CF_NODE_FLOAT] = "float",   [CF_NODE_COMPLEX] = "complex",
        [CF_NODE_STRING] = "string",   [CF_NODE_BYTES] = "bytes",   [CF_NODE_LIST] = "list",
        [CF_NODE_TUPLE] = "tuple",     [CF_NODE_SET] = "set",       [CF_NODE_DICT] = "dict",
        [CF_NODE_DTYPE] = "dtype",     [CF_NODE_TENSOR] = "tensor", [CF_NODE_ARRAY] = "ndarray",
        [CF_NODE_STORAGE] = "storage",
    };
    switch (node->kind) {
    case CF_NODE_OBJECT: return last_part(node->object->class->name);
    case CF_NODE_GLOBAL: return last_part(node->global->name);
    case CF_NODE_SCALAR: return cf_dtype_of(node->view->dtype)->torch;
    default: return NAMES[node->kind];
    }
}
