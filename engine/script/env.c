/* What scripts see: the safe part of the standard library, in copies of this state's own.
 *
 * The globals are an empty table whose metatable looks names up in the real one, so that no global
 * can be assigned, and a name that is not there is an error with a hint. `load`, `io`, `os` and all
 * that could undo a limit are not there. `tostring` and `string.format` show no addresses. The
 * metatable of strings is locked, and its methods are a copy that scripts cannot reach.
 */
#include <string.h>

#include <lualib.h>

#include "bind.h"
#include "num.h"

static const char *const base[] = {"assert", "error",    "ipairs", "select", "tonumber",
                                   "type",   "rawequal", "rawlen", NULL};

/* All there is, for "did you mean". */
static const char *const known[] = {
    "assert",   "error",    "ipairs", "next",     "pairs",   "pcall",        "select",
    "tonumber", "tostring", "type",   "rawequal", "rawlen",  "class",        "numel",
    "math",     "string",   "table",  "utf8",     "require", "setmetatable", NULL};

static const char *const withheld[] = {
    "collectgarbage", "coroutine", "debug",   "dofile",   "getfenv",
    "getmetatable",   "io",        "load",    "loadfile", "loadstring",
    "module",         "newproxy",  "os",      "package",  "print",
    "rawget",         "rawset",    "setfenv", "unpack",   "warn",
    "xpcall",         "_G",        "_ENV",    "_VERSION", NULL};

static bool listed(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

static int denied(lua_State *L, const char *name)
{
    luaL_where(L, 1);
    return cf_raise_code(L, CF_L_DENIED, "%s'%s' is withheld from scripts", lua_tostring(L, -1),
                         name);
}

static int missing_global(lua_State *L)
{
    const char *name = luaL_tolstring(L, 2, NULL);
    if (listed(name, withheld)) return denied(L, name);
    return luaL_error(L, "there is no global '%s'%s", name, cf_push_guess(L, name, known));
}

static int assigned_global(lua_State *L)
{
    return luaL_error(L, "scripts have no globals of their own: '%s' needs a 'local'",
                      luaL_tolstring(L, 2, NULL));
}

/* Reading string.dump, math.random and the like. Upvalue 1: the library's name. */
static int missing_member(lua_State *L)
{
    static const char *const members[] = {"dump", "random", "randomseed", NULL};
    if (lua_type(L, 2) != LUA_TSTRING || !listed(lua_tostring(L, 2), members)) return 0;
    return denied(
        L, lua_pushfstring(L, "%s.%s", lua_tostring(L, lua_upvalueindex(1)), lua_tostring(L, 2)));
}

/* ---- functions that the standard ones are not safe enough for */

/* As luaL_tolstring, without addresses. */
static void push_text(lua_State *L, int index)
{
    switch (lua_type(L, index)) {
    case LUA_TTABLE:
    case LUA_TUSERDATA:
        if (luaL_getmetafield(L, index, "__tostring") != LUA_TNIL) {
            lua_pop(L, 1);
            luaL_tolstring(L, index, NULL);
            return;
        }
        /* fall through */
    case LUA_TFUNCTION:
    case LUA_TTHREAD:
    case LUA_TLIGHTUSERDATA: lua_pushstring(L, luaL_typename(L, index)); return;
    default: luaL_tolstring(L, index, NULL);
    }
}

static int env_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    push_text(L, 1);
    return 1;
}

/* string.format; upvalue 1: the standard one. */
static int env_format(lua_State *L)
{
    const char *fmt = luaL_checkstring(L, 1);
    const int given = lua_gettop(L);
    for (int arg = 1; *fmt; fmt++) {
        if (*fmt != '%') continue;
        if (*++fmt == '%') continue;
        fmt += strspn(fmt, "-+ #0123456789.");
        if (*fmt == 'p') return luaL_error(L, "string.format has no '%%p' here");
        if (*fmt == 's' && ++arg <= given) {
            push_text(L, arg);
            lua_replace(L, arg);
        } else if (*fmt && *fmt != 's') {
            arg++;
        }
        if (!*fmt) break;
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, given, 1);
    return 1;
}

/* string.rep; upvalue 1: the standard one, which calls an error what would be too much. */
static int env_rep(lua_State *L)
{
    size_t size, between;
    luaL_checklstring(L, 1, &size);
    const lua_Integer times = luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &between);
    int64_t bytes;
    if (times > 0 && (!cf_mul((int64_t)(size + between), times, &bytes) ||
                      (size_t)bytes > cf_host_most_memory(cf_host_of(L))))
        return cf_host_too_much(L);
    lua_settop(L, 3);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 3, 1);
    return 1;
}

/* Hands limits and error objects on: only ordinary errors are caught. */
static int env_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    cf_host *host = cf_host_of(L);
    const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    if (status == LUA_ERRMEM) host->tripped = CF_L_LIMIT_MEM;
    if (status != LUA_OK && cf_raised(L, -1)) return lua_error(L);
    if (host->tripped) return luaL_error(L, "a limit was hit"); /* cf_host_run knows which */
    luaL_checkstack(L, 1, NULL);
    lua_pushboolean(L, status == LUA_OK);
    lua_insert(L, 1);
    return lua_gettop(L);
}

static int env_next(lua_State *L)
{
    if (cf_test_node(L, 1)) return cf_node_next(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

/* A finaliser would run where no hook fires. */
static int env_setmetatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, lua_isnoneornil(L, 2) || lua_istable(L, 2), 2, "nil or table");
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL) return denied(L, "__gc");
    }
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        return luaL_error(L, "cannot change a protected metatable");
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* ---- putting it together */

/* A table with what is in the table at the top (a copy), which it replaces. */
static void copy_table(lua_State *L)
{
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, -3);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_settable(L, -4);
    }
    lua_remove(L, -2);
}

static void drop(lua_State *L, const char *name)
{
    lua_pushnil(L);
    lua_setfield(L, -2, name);
}

/* The library `name`, made by open, as a field of the table at the top. */
static void add_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
    if (open == luaopen_string) {
        drop(L, "dump");
        lua_getfield(L, -1, "format");
        lua_pushcclosure(L, env_format, 1);
        lua_setfield(L, -2, "format");
        lua_getfield(L, -1, "rep");
        lua_pushcclosure(L, env_rep, 1);
        lua_setfield(L, -2, "rep");
        lua_pushliteral(L, "");
        lua_getmetatable(L, -1);
        lua_pushvalue(L, -3);
        copy_table(L);
        lua_setfield(L, -2, "__index");
        lua_pushboolean(L, false);
        lua_setfield(L, -2, "__metatable");
        lua_pop(L, 2);
    } else if (open == luaopen_math) {
        drop(L, "random");
        drop(L, "randomseed");
    }
    lua_createtable(L, 0, 1);
    lua_pushstring(L, name);
    lua_pushcclosure(L, missing_member, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, name);
}

void cf_env_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"tostring", env_tostring},
                                   {"pcall", env_pcall},
                                   {"next", env_next},
                                   {"pairs", cf_pairs},
                                   {"setmetatable", env_setmetatable},
                                   {"require", cf_require},
                                   {"class", cf_class_function},
                                   {"numel", cf_numel_function},
                                   {NULL, NULL}};
    /* luaopen_base fills the table of globals, which nothing but this function ever sees. */
    lua_pushcfunction(L, luaopen_base);
    lua_call(L, 0, 1);
    lua_newtable(L);
    for (const char *const *name = base; *name; name++) {
        lua_getfield(L, -2, *name);
        lua_setfield(L, -2, *name);
    }
    luaL_setfuncs(L, own, 0);
    add_library(L, "string", luaopen_string);
    add_library(L, "table", luaopen_table);
    add_library(L, "math", luaopen_math);
    add_library(L, "utf8", luaopen_utf8);

    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, missing_global);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);

    lua_newtable(L); /* the globals */
    lua_createtable(L, 0, 3);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, assigned_global);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_settop(L, 0);
}
