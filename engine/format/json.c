/* JSON into nodes, by jansson: index files, and the values.json that ckptflow writes.
 *
 * jansson checks what RFC 8259 asks for: UTF-8, no lone surrogates, no number that it cannot
 * hold, and duplicate keys where it is told to. Its tree is copied into nodes and dropped. It
 * nests 2048 deep at most; nodes are bounded further, as every tree is.
 */
#include "json.h"

#include <jansson.h>
#include <string.h>

static cf_code code_of(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_out_of_memory: return CF_E_MEMORY;
    case json_error_stack_overflow: return CF_E_DEPTH;
    case json_error_duplicate_key: return CF_E_DUP_KEY;
    case json_error_numeric_overflow: return CF_E_NUMBER;
    case json_error_invalid_utf8:
    case json_error_null_byte_in_key: return CF_E_UTF8;
    default: return CF_E_JSON;
    }
}

static cf_node *string(cf_arena *arena, const char *text, size_t length)
{
    const char *copy = cf_strndup(arena, text, length);
    return copy ? cf_node_text(arena, CF_NODE_STRING, copy, length) : NULL;
}

static bool convert(const json_t *json, int depth, cf_arena *arena, cf_node **out, cf_err *err);

static bool convert_object(const json_t *json, int depth, cf_arena *arena, cf_dict *dict,
                           cf_err *err)
{
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)json, name, item)
    {
        bool replaced;
        cf_node *key = string(arena, name, strlen(name)), *value;
        CF_TRY(convert(item, depth, arena, &value, err));
        if (!key) return cf_arena_ok(arena, err);
        CF_TRY(cf_dict_set(arena, dict, key, value, &replaced, err));
    }
    return true;
}

static bool convert_array(const json_t *json, int depth, cf_arena *arena, cf_list *list,
                          cf_err *err)
{
    for (size_t i = 0; i < json_array_size(json); i++) {
        cf_node *item;
        CF_TRY(convert(json_array_get(json, i), depth, arena, &item, err));
        if (!cf_list_add(arena, list, item)) return cf_arena_ok(arena, err);
    }
    return true;
}

static bool convert(const json_t *json, int depth, cf_arena *arena, cf_node **out, cf_err *err)
{
    static const cf_kind KIND[] = {
        [JSON_OBJECT] = CF_NODE_DICT, [JSON_ARRAY] = CF_NODE_LIST, [JSON_STRING] = CF_NODE_STRING,
        [JSON_INTEGER] = CF_NODE_INT, [JSON_REAL] = CF_NODE_FLOAT, [JSON_TRUE] = CF_NODE_BOOL,
        [JSON_FALSE] = CF_NODE_BOOL,  [JSON_NULL] = CF_NODE_NONE};
    const json_type type = json_typeof(json);
    if (depth == CF_MOST_DEPTH && (type == JSON_OBJECT || type == JSON_ARRAY))
        return cf_fail(err, CF_E_DEPTH, "JSON nested more than %d deep", CF_MOST_DEPTH);
    cf_node *node = type == JSON_STRING
                        ? string(arena, json_string_value(json), json_string_length(json))
                        : cf_node_new(arena, KIND[type]);
    if (!node) return cf_arena_ok(arena, err);
    *out = node;
    switch (type) {
    case JSON_OBJECT: return convert_object(json, depth + 1, arena, node->dict, err);
    case JSON_ARRAY: return convert_array(json, depth + 1, arena, node->list, err);
    case JSON_REAL: node->real = json_real_value(json); break;
    case JSON_INTEGER: node->integer = json_integer_value(json); break;
    case JSON_TRUE: node->integer = 1; break;
    case JSON_FALSE: node->integer = 0; break;
    default: break;
    }
    return true;
}

bool cf_json_read(const char *text, size_t size, cf_arena *tree, cf_node **root, cf_err *err)
{
    json_error_t error;
    json_t *json =
        json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!json) return cf_fail_at(err, code_of(&error), error.position, "%s", error.text);
    cf_node *node;
    const bool ok = convert(json, 0, tree, &node, err);
    json_decref(json);
    if (ok) *root = node;
    return ok;
}
