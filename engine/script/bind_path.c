/* Paths as lists: { "optim", "state", 0, "exp_avg" }. A string or integer is a key of a dict, { 0 }
 * the first place of a list, { 0, "tuple" } of a tuple.
 */
#include <string.h>

#include "bind.h"

static cf_step check_step(lua_State *L, cf_arena *arena, int index, lua_Integer number)
{
    int whole;
    size_t length;
    const int type = lua_geti(L, index, number), top = lua_gettop(L);
    if (type == LUA_TSTRING) {
        const char *text = lua_tolstring(L, top, &length);
        if (length > CF_MOST_KEY || cf_utf8_valid(text, length) != length || strlen(text) != length)
            luaL_error(L, "a path: element %d is no name", (int)number);
        return (cf_step){.kind = CF_STEP_TEXT,
                         .length = (uint32_t)length,
                         .text = cf_strndup(arena, text, length)};
    }
    cf_step step = {.kind = CF_STEP_NUMBER};
    if (type == LUA_TTABLE) {
        const bool tuple =
            lua_geti(L, top, 2) == LUA_TSTRING && strcmp(lua_tostring(L, -1), "tuple") == 0;
        step.kind = tuple ? CF_STEP_TUPLE : CF_STEP_LIST;
        if (!tuple && !lua_isnil(L, -1))
            luaL_error(L, "a path: element %d is no { place } and no { place, \"tuple\" }",
                       (int)number);
        lua_geti(L, top, 1);
    }
    step.number = lua_tointegerx(L, -1, &whole);
    if (!whole || lua_type(L, -1) != LUA_TNUMBER ||
        (step.kind != CF_STEP_NUMBER && step.number < 0))
        luaL_error(L, "a path: element %d is a %s, not a string, an integer or { place }",
                   (int)number, luaL_typename(L, top));
    return step;
}

const cf_path *cf_check_path(lua_State *L, int index)
{
    cf_arena *arena = cf_view_arena(L);
    luaL_checktype(L, index, LUA_TTABLE);
    const lua_Integer count = luaL_len(L, index);
    if (count < 1 || count > CF_MOST_DEPTH)
        luaL_error(L, "a path has 1 to %d elements, not %d", CF_MOST_DEPTH, (int)count);
    cf_path *path = CF_NEW(arena, cf_path);
    cf_step *steps = CF_NEWS(arena, cf_step, (size_t)count);
    const int top = lua_gettop(L);
    for (lua_Integer i = 1; path && steps && i <= count; i++) {
        steps[i - 1] = check_step(L, arena, index, i);
        lua_settop(L, top);
    }
    cf_err err;
    if (!cf_arena_ok(arena, &err)) cf_raise(L, &err);
    *path = (cf_path){(size_t)count, steps};
    return path;
}

void cf_push_path(lua_State *L, const cf_path *path)
{
    lua_createtable(L, (int)path->count, 0);
    for (size_t i = 0; i < path->count; i++) {
        const cf_step *s = &path->steps[i];
        if (s->kind == CF_STEP_TEXT) {
            lua_pushlstring(L, s->text, s->length);
        } else if (s->kind == CF_STEP_NUMBER) {
            lua_pushinteger(L, s->number);
        } else if (s->kind == CF_STEP_KEY) {
            lua_pop(L, 1); /* a list cannot say it */
            lua_pushnil(L);
            return;
        } else {
            lua_createtable(L, 2, 0);
            lua_pushinteger(L, s->number);
            lua_rawseti(L, -2, 1);
            if (s->kind == CF_STEP_TUPLE) {
                lua_pushliteral(L, "tuple");
                lua_rawseti(L, -2, 2);
            }
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}
