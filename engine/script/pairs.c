/* `pairs` of a script: in an order that depends on the keys alone. Lua itself goes through a table
 * in the order of its hashes, which are seeded anew in every state: two runs, or two threads of
 * one, would list rows and write files in different orders. Tables of integers have no such order;
 * where there are other keys, numbers come first, ascending, then strings by their bytes, then the
 * rest.
 */
#include <stdlib.h>
#include <string.h>

#include "bind.h"

typedef struct key {
    int kind;  /* 0 number, 1 string, 2 the rest */
    int place; /* in the order of `next`: the key's number in the list that holds it */
    lua_Number number;
    const char *text;
    size_t length;
} key;

static int by_key(const void *a, const void *b)
{
    const key *x = a, *y = b;
    if (x->kind != y->kind) return x->kind - y->kind;
    if (x->kind == 0 && x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->kind == 1) {
        const size_t n = x->length < y->length ? x->length : y->length;
        const int order = memcmp(x->text, y->text, n);
        if (order) return order;
        if (x->length != y->length) return x->length < y->length ? -1 : 1;
    }
    return x->place - y->place;
}

/* The keys of the table at 1, sorted, as a list that is pushed; false: all are integers. */
static bool push_sorted(lua_State *L)
{
    int count = 0;
    bool others = false;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        others |= !lua_isinteger(L, -2);
        count++;
    }
    if (!others) return false;
    lua_createtable(L, count, 0);
    const int list = lua_gettop(L);
    key *keys = lua_newuserdatauv(L, (size_t)count * sizeof *keys, 0);
    int n = 0;
    for (lua_pushnil(L); lua_next(L, 1) && n < count; lua_pop(L, 1)) {
        key *k = &keys[n];
        *k = (key){.kind = 2, .place = n};
        if (lua_type(L, -2) == LUA_TNUMBER) {
            k->kind = 0;
            k->number = lua_tonumber(L, -2);
        } else if (lua_type(L, -2) == LUA_TSTRING) {
            k->kind = 1;
            k->text = lua_tolstring(L, -2, &k->length);
        }
        lua_pushvalue(L, -2);
        lua_rawseti(L, list, ++n);
    }
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, list, keys[i].place + 1);
        lua_rawseti(L, -2, i + 1);
    }
    lua_replace(L, list);
    lua_settop(L, list);
    return true;
}

/* Upvalues: the table, its keys, how many were given. */
static int step(lua_State *L)
{
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3));
    for (;;) {
        if (lua_rawgeti(L, lua_upvalueindex(2), ++at) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break; /* else it went meanwhile */
        lua_pop(L, 2);
    }
    lua_pushinteger(L, at);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
}

static int next_key(lua_State *L)
{
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

int cf_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (push_sorted(L)) {
        lua_pushvalue(L, 1);
        lua_insert(L, -2);
        lua_pushinteger(L, 0);
        lua_pushcclosure(L, step, 3);
        return 1;
    }
    lua_pushcfunction(L, next_key);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}
