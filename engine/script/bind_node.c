/* node: a value of a pickle or JSON tree, as inert data. It has no methods, so that no key of a
 * checkpoint can collide with one.
 *
 * A handle knows the call it was made in: trees are pinned for one call, so a handle that was kept
 * beyond it is told by comparing two numbers. Nodes of the catalogue have no such end.
 */
#include <string.h>

#include "bind.h"
#include "num.h"
#include "text.h"

enum { SHOWN = 4096, MOST_NESTED = 32 };

static const char NODE[] = "node";

typedef struct node_handle {
    const cf_node *node;
    uint32_t call; /* 0: lasting */
} node_handle;

void cf_push_node(lua_State *L, const cf_node *node, bool lasting)
{
    node_handle *handle = cf_new(L, sizeof *handle, 0, NODE);
    handle->node = node;
    handle->call = lasting ? 0 : cf_host_of(L)->call;
}

const cf_node *cf_test_node(lua_State *L, int index)
{
    const node_handle *handle = luaL_testudata(L, index, NODE);
    if (!handle) return NULL;
    if (handle->call && handle->call != cf_host_of(L)->call)
        luaL_error(L, "a node outlived the read of its file: keep values, not nodes");
    return handle->node;
}

static bool lasting(lua_State *L, int index)
{
    const node_handle *handle = lua_touserdata(L, index);
    return handle->call == 0;
}

void cf_push_value(lua_State *L, const cf_node *node, bool lasts)
{
    switch (node ? node->kind : CF_NODE_NONE) {
    case CF_NODE_NONE: lua_pushnil(L); break;
    case CF_NODE_BOOL: lua_pushboolean(L, node->integer != 0); break;
    case CF_NODE_INT: lua_pushinteger(L, node->integer); break;
    case CF_NODE_FLOAT: lua_pushnumber(L, node->real); break;
    case CF_NODE_BIG:
    case CF_NODE_STRING: lua_pushlstring(L, node->text.at, node->text.length); break;
    case CF_NODE_DTYPE: lua_pushstring(L, cf_dtype_of(node->dtype)->name); break;
    case CF_NODE_TENSOR: cf_push_view(L, node->view); break;
    default: cf_push_node(L, node, lasts);
    }
}

/* What was made in the call's arena, or the arena's error. */
static const cf_node *made_in(lua_State *L, const cf_node *node)
{
    cf_err err;
    if (!node && !cf_arena_ok(&cf_host_of(L)->arena, &err)) cf_raise(L, &err);
    return node;
}

static const cf_node *to_node(lua_State *L, int index, int depth);

/* A Lua list of what can be a node. */
static const cf_node *list_to_node(lua_State *L, int index, int depth)
{
    cf_arena *arena = &cf_host_of(L)->arena;
    cf_node *list = cf_node_new(arena, CF_NODE_LIST);
    const lua_Integer count = luaL_len(L, index);
    if (depth > MOST_NESTED) luaL_error(L, "lists nested more than %d deep", MOST_NESTED);
    luaL_checkstack(L, 8, NULL);
    for (lua_Integer i = 1; list && i <= count; i++) {
        lua_geti(L, index, i);
        cf_node *item = (cf_node *)to_node(L, lua_gettop(L), depth + 1);
        if (lua_type(L, -1) == LUA_TSTRING) { /* the list outlives the stack's reference */
            item->text.at = cf_strndup(arena, item->text.at, item->text.length);
            if (!item->text.at) break;
        }
        lua_pop(L, 1);
        if (!cf_list_add(arena, list->list, item)) break;
    }
    return made_in(L, arena->failed ? NULL : list);
}

/* A table with names, in their order: a dict. */
static const cf_node *dict_to_node(lua_State *L, int index, int depth)
{
    cf_arena *arena = &cf_host_of(L)->arena;
    cf_node *dict = cf_node_new(arena, CF_NODE_DICT);
    if (depth > MOST_NESTED) luaL_error(L, "tables nested more than %d deep", MOST_NESTED);
    luaL_checkstack(L, 8, NULL);
    lua_pushcfunction(L, cf_pairs);
    lua_pushvalue(L, index);
    lua_call(L, 1, 3);
    const int next = lua_gettop(L) - 2;
    for (;;) {
        lua_pushvalue(L, next);
        lua_pushvalue(L, next + 1);
        lua_pushvalue(L, next + 2);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2)) break;
        if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "a table with names and numbers");
        size_t length;
        const char *name = lua_tolstring(L, -2, &length);
        cf_node *key = cf_node_text(arena, CF_NODE_STRING, cf_strndup(arena, name, length), length);
        cf_node *value = (cf_node *)to_node(L, lua_gettop(L), depth + 1);
        if (lua_type(L, -1) == LUA_TSTRING) /* the dict outlives the stack's reference */
            value->text.at = cf_strndup(arena, value->text.at, value->text.length);
        bool twice;
        cf_err err;
        if (arena->failed || !cf_dict_set(arena, dict->dict, key, value, &twice, &err)) break;
        lua_pop(L, 1);
        lua_replace(L, next + 2);
    }
    lua_settop(L, next - 1);
    return made_in(L, arena->failed ? NULL : dict);
}

static const cf_node *to_node(lua_State *L, int index, int depth)
{
    cf_arena *arena = &cf_host_of(L)->arena;
    const cf_node *node = cf_test_node(L, index);
    if (node) return node;
    const cf_view *view = cf_is_view(L, index) ? cf_leaf_view(L, index) : NULL;
    cf_node *made;
    size_t length;
    switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL: made = cf_node_new(arena, CF_NODE_NONE); break;
    case LUA_TBOOLEAN:
        made = cf_node_new(arena, CF_NODE_BOOL);
        if (made) made->integer = lua_toboolean(L, index);
        break;
    case LUA_TNUMBER:
        made = lua_isinteger(L, index) ? cf_node_int(arena, lua_tointeger(L, index))
                                       : cf_node_new(arena, CF_NODE_FLOAT);
        if (made && !lua_isinteger(L, index)) made->real = lua_tonumber(L, index);
        break;
    case LUA_TSTRING: {
        const char *text = lua_tolstring(L, index, &length);
        made = cf_node_text(arena, CF_NODE_STRING, text, length);
        break;
    }
    case LUA_TTABLE: {
        lua_pushnil(L);
        const bool empty = !lua_next(L, index);
        const bool named = !empty && lua_type(L, -2) == LUA_TSTRING;
        if (!empty) lua_pop(L, 2);
        return named ? dict_to_node(L, index, depth) : list_to_node(L, index, depth);
    }
    default:
        if (!view) luaL_error(L, "a %s is no value of a checkpoint", cf_class_of(L, index));
        made = cf_node_new(arena, CF_NODE_TENSOR);
        if (made && !(made->view = cf_view_copy(arena, view))) made = NULL;
    }
    return made_in(L, made);
}

const cf_node *cf_to_node(lua_State *L, int index)
{
    return to_node(L, index, 0);
}

/* ---- looking into one */

/* What is numbered in a node: a list's items, an object's state if that is a tuple, else its
 * arguments. NULL: nothing. */
static const cf_list *sequence(const cf_node *node)
{
    if (node->kind == CF_NODE_OBJECT) {
        const cf_parts *parts = cf_object_parts(node->object);
        node = parts->state && parts->state->kind == CF_NODE_TUPLE ? parts->state : parts->args;
        return node ? node->list : NULL;
    }
    return node->kind == CF_NODE_LIST || node->kind == CF_NODE_TUPLE || node->kind == CF_NODE_SET
               ? node->list
               : NULL;
}

/* What is named: a dict's pairs, an object's fields or state if that is a dict. */
static const cf_dict *mapping(const cf_node *node, cf_record *room)
{
    if (node->kind == CF_NODE_OBJECT) return cf_object_dict(node->object, room);
    return node->kind == CF_NODE_DICT ? node->dict : NULL;
}

/* The value of a key of Lua; the common keys cost no memory. */
static const cf_node *find(lua_State *L, const cf_dict *dict, int index)
{
    cf_node key = {.kind = CF_NODE_STRING};
    if (lua_type(L, index) == LUA_TSTRING) {
        key.text.at = lua_tolstring(L, index, &key.text.length);
        return cf_dict_find(dict, &key);
    }
    int whole;
    key.integer = lua_tointegerx(L, index, &whole);
    key.kind = CF_NODE_INT;
    return cf_dict_find(dict, whole ? &key : cf_to_node(L, index));
}

static int node_index(lua_State *L)
{
    const cf_node *node = cf_test_node(L, 1);
    const bool lasts = lasting(L, 1), text = lua_type(L, 2) == LUA_TSTRING;
    cf_record room;
    const cf_dict *dict = mapping(node, &room);
    if (dict && (node->kind == CF_NODE_DICT || text)) {
        cf_push_value(L, find(L, dict, 2), lasts);
        return 1;
    }
    const cf_list *list = text ? NULL : sequence(node);
    const lua_Integer number = lua_tointeger(L, 2);
    const bool inside = list && number >= 1 && (uint64_t)number <= list->count;
    cf_push_value(L, inside ? list->items[number - 1] : NULL, lasts);
    return 1;
}

static int node_length(lua_State *L)
{
    const cf_node *node = cf_test_node(L, 1);
    cf_record room;
    const cf_dict *dict = mapping(node, &room);
    const cf_list *list = sequence(node);
    if (node->kind == CF_NODE_STRING || node->kind == CF_NODE_BYTES)
        lua_pushinteger(L, (lua_Integer)node->text.length);
    else
        lua_pushinteger(L, (lua_Integer)(dict ? dict->count : list ? list->count : 0));
    return 1;
}

/* Pushes pair number `at` (from 0) of the node at `index`; false at the end. */
static bool push_pair(lua_State *L, int index, const cf_node *node, size_t at)
{
    cf_record room;
    const cf_dict *dict = mapping(node, &room);
    const cf_list *list = dict ? NULL : sequence(node);
    const bool lasts = lasting(L, index);
    if (dict && at < dict->count) {
        cf_push_value(L, dict->pairs[at].key, lasts);
        if (lua_isnil(L, -1)) { /* a key None: `pairs` would end here */
            lua_pop(L, 1);
            cf_push_node(L, dict->pairs[at].key, lasts);
        }
        cf_push_value(L, dict->pairs[at].value, lasts);
        return true;
    }
    if (!list || at >= list->count) return false;
    lua_pushinteger(L, (lua_Integer)at + 1);
    cf_push_value(L, list->items[at], lasts);
    return true;
}

/* Upvalues: the node, the number of the next pair. */
static int pairs_step(lua_State *L)
{
    const lua_Integer at = lua_tointeger(L, lua_upvalueindex(2));
    const cf_node *node = cf_test_node(L, lua_upvalueindex(1));
    lua_pushinteger(L, at + 1);
    lua_replace(L, lua_upvalueindex(2));
    return push_pair(L, lua_upvalueindex(1), node, (size_t)at) ? 2 : 0;
}

static int node_pairs(lua_State *L)
{
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_step, 2);
    return 1;
}

int cf_node_next(lua_State *L)
{
    const cf_node *node = cf_test_node(L, 1);
    size_t at = 0;
    if (!lua_isnoneornil(L, 2)) {
        const cf_node *key = cf_to_node(L, 2);
        cf_record room;
        const cf_dict *dict = mapping(node, &room);
        if (dict) {
            while (at < dict->count && !cf_node_equal(dict->pairs[at].key, key)) at++;
            at++;
        } else {
            at = key->kind == CF_NODE_INT && key->integer > 0 ? (size_t)key->integer : SIZE_MAX;
        }
    }
    if (push_pair(L, 1, node, at)) return 2;
    lua_pushnil(L);
    return 1;
}

static int node_equal(lua_State *L)
{
    const cf_node *a = cf_test_node(L, 1), *b = cf_test_node(L, 2);
    lua_pushboolean(L, a && b && cf_node_equal(a, b));
    return 1;
}

static int node_show(lua_State *L)
{
    const cf_node *node = cf_test_node(L, 1);
    cf_text *text = cf_scratch(L);
    cf_node_show(text, node, SHOWN);
    lua_pushlstring(L, text->at ? text->at : "", text->size);
    return 1;
}

void cf_bind_node(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__index", node_index},   {"__len", node_length},
                                    {"__pairs", node_pairs},   {"__eq", node_equal},
                                    {"__tostring", node_show}, {NULL, NULL}};
    static const cf_handle handle = {NODE, NULL, NULL, NULL, meta};
    cf_handle_register(L, &handle);
}

/* ---- class, numel, shapes */

const char *cf_class_of(lua_State *L, int index)
{
    const cf_node *node = cf_test_node(L, index);
    if (node) return cf_node_class(node);
    if (cf_is_view(L, index)) return "tensor";
    switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TNONE: return "none";
    case LUA_TNUMBER: return lua_isinteger(L, index) ? "integer" : "float";
    case LUA_TUSERDATA:
        if (luaL_getmetafield(L, index, "__name") == LUA_TSTRING) return lua_tostring(L, -1);
        /* fall through */
    default: return luaL_typename(L, index);
    }
}

int cf_class_function(lua_State *L)
{
    lua_settop(L, 1);
    lua_pushstring(L, cf_class_of(L, 1));
    return 1;
}

static int64_t size_at(lua_State *L, int index, const cf_list *list, size_t at)
{
    if (list) {
        const cf_node *item = list->items[at];
        if (item->kind != CF_NODE_INT)
            cf_raise_code(L, CF_E_TYPE, "a shape holds %s %s", CF_A(cf_node_class(item)));
        return item->integer;
    }
    int whole;
    lua_geti(L, index, (lua_Integer)at + 1);
    const lua_Integer size = lua_tointegerx(L, -1, &whole);
    if (!whole) cf_raise_code(L, CF_E_TYPE, "a shape holds a %s", cf_class_of(L, lua_gettop(L)));
    lua_pop(L, 1);
    return size;
}

int cf_check_shape(lua_State *L, int index, int64_t sizes[CF_MOST_DIMS])
{
    const cf_node *node = cf_test_node(L, index);
    const cf_list *list = node ? sequence(node) : NULL;
    if (node && !list)
        cf_raise_code(L, CF_E_TYPE, "%s %s where a shape should be", CF_A(cf_node_class(node)));
    if (!node) luaL_checktype(L, index, LUA_TTABLE);
    const size_t count = list ? list->count : (size_t)luaL_len(L, index);
    if (count > CF_MOST_DIMS)
        cf_raise_code(L, CF_E_LIMIT, "a shape of %zu dimensions, most are %d", count, CF_MOST_DIMS);
    for (size_t i = 0; i < count; i++) sizes[i] = size_at(L, index, list, i);
    return (int)count;
}

int cf_numel_function(lua_State *L)
{
    int64_t sizes[CF_MOST_DIMS], numel;
    const int ndim = cf_check_shape(L, 1, sizes);
    if (!cf_numel(sizes, ndim, &numel))
        return cf_raise_code(L, CF_E_OVERFLOW, "a shape's product is no number of elements");
    lua_pushinteger(L, numel);
    return 1;
}
