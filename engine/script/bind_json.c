/* The module ckptflow.json: JSON that was found inside a file, and the values that ckptflow wrote.
 */
#include "bind.h"
#include "json.h"

static int json_decode(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    cf_node *root;
    cf_err err;
    cf_host *host = cf_host_of(L);
    const size_t before = cf_host_before_decoding(host);
    const bool ok = cf_json_read(text, size, &host->arena, &root, &err);
    cf_host_after_decoding(L, before);
    if (!ok) return cf_raise(L, &err);
    cf_push_value(L, root, false);
    return 1;
}

/* Asks the script's function, upvalue 2 of the iterator. What it raises leaves nothing behind: all
 * that decoding has is in the call's arena. */
static bool find_tensor(void *ctx, const char *name, size_t length, const cf_view **out,
                        cf_err *err)
{
    lua_State *L = ctx;
    luaL_checkstack(L, 4, NULL);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushlstring(L, name, length);
    lua_call(L, 1, 1);
    const cf_view *view = cf_is_view(L, -1) ? cf_leaf_view(L, -1) : NULL;
    if (!view)
        return cf_fail(err, CF_E_JSON, "no tensor is called '%.*s'",
                       (int)(length < 200 ? length : 200), name);
    *out = cf_view_copy(&cf_host_of(L)->arena, view);
    lua_pop(L, 1);
    return *out || cf_arena_ok(&cf_host_of(L)->arena, err);
}

/* Upvalues: the file, the function that finds tensors, the number of the next value. */
static int values_step(lua_State *L)
{
    const cf_file_handle *file = cf_check_file(L, lua_upvalueindex(1));
    const size_t at = (size_t)lua_tointeger(L, lua_upvalueindex(3));
    cf_host *host = cf_host_of(L);
    const cf_node *root = cf_file_root(L, file);
    if (at >= root->dict->count) return 0;
    lua_pushinteger(L, (lua_Integer)at + 1);
    lua_replace(L, lua_upvalueindex(3));
    const cf_pair *pair = &root->dict->pairs[at];
    const cf_json_decoding from = {
        .arena = &host->arena, .inert = host->source->inert, .tensor = find_tensor, .ctx = L};
    cf_node *value;
    cf_err err;
    const char *name = lua_pushlstring(L, pair->key->text.at, pair->key->text.length);
    if (!cf_json_decode(&from, pair->value, &value, &err)) {
        cf_err_in_file(&err, cf_source_path(host->source, file->file));
        cf_err_in_member(&err, name);
        return cf_raise(L, &err);
    }
    cf_push_node(L, value, false);
    return 2;
}

/* json.values(file, find): an iterator of name, value over a file that `plan:write` made. */
static int json_values(lua_State *L)
{
    const cf_file_handle *file = cf_check_file(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    const cf_node *root = cf_file_root(L, file);
    bool named = root->kind == CF_NODE_DICT;
    for (size_t i = 0; named && i < root->dict->count; i++)
        named = root->dict->pairs[i].key->kind == CF_NODE_STRING;
    if (!named) {
        cf_err err;
        cf_fail(&err, CF_E_JSON, "no table of values");
        cf_err_in_file(&err, cf_source_path(cf_host_of(L)->source, file->file));
        return cf_raise(L, &err);
    }
    lua_settop(L, 2);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, values_step, 3);
    return 1;
}

int cf_json_module(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"decode", json_decode}, {"values", json_values}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
