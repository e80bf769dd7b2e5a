/* Handle types: userdata with methods and fields, and errors for what they do not have.
 */
#include <string.h>

#include "bind.h"

enum { MOST_NAMES = 32 };

static int no_field(lua_State *L, const cf_handle *handle)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "a %s has no field that is a %s", handle->name, luaL_typename(L, 2));
    const char *names[MOST_NAMES];
    int count = 0;
    for (const luaL_Reg *m = handle->methods; m && m->name; m++) names[count++] = m->name;
    for (const char *const *f = handle->fields; f && *f; f++) names[count++] = *f;
    names[count] = NULL;
    const char *key = lua_tostring(L, 2);
    return luaL_error(L, "%s %s has no field '%s'%s", strchr("aeiou", handle->name[0]) ? "an" : "a",
                      handle->name, key, cf_push_guess(L, key, names));
}

/* Upvalues: the cf_handle, the table of methods. */
static int handle_index(lua_State *L)
{
    const cf_handle *handle = lua_touserdata(L, lua_upvalueindex(1));
    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_pushvalue(L, 2);
        if (lua_rawget(L, lua_upvalueindex(2)) != LUA_TNIL) return 1;
        lua_pop(L, 1);
        if (handle->field && handle->field(L, lua_tostring(L, 2))) return 1;
    }
    return no_field(L, handle);
}

static int handle_text(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

void cf_handle_register(lua_State *L, const cf_handle *handle)
{
    luaL_newmetatable(L, handle->name);
    lua_pushstring(L, handle->name);
    lua_pushcclosure(L, handle_text, 1);
    lua_setfield(L, -2, "__tostring");
    lua_pushlightuserdata(L, (void *)handle);
    lua_newtable(L);
    if (handle->methods) luaL_setfuncs(L, handle->methods, 0);
    lua_pushcclosure(L, handle_index, 2);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    if (handle->meta) luaL_setfuncs(L, handle->meta, 0);
    lua_pop(L, 1);
}

void *cf_new(lua_State *L, size_t size, int uservalues, const char *name)
{
    if (cf_host_stress) lua_gc(L, LUA_GCCOLLECT);
    void *made = lua_newuserdatauv(L, size, uservalues);
    memset(made, 0, size);
    luaL_setmetatable(L, name);
    return made;
}

int cf_refuse(lua_State *L, cf_code code, const char *file)
{
    const char *message = luaL_checkstring(L, 2), *hint = luaL_optstring(L, 3, "");
    const char *name = luaL_optstring(L, 4, cf_code_name(code));
    code = cf_code_of(name);
    luaL_argcheck(L, code != CF_OK, 4, "there is no such code");
    cf_err err;
    cf_fail(&err, code, "%s", message);
    if (*hint) cf_err_hint(&err, "%s", hint);
    if (file) cf_err_in_file(&err, file);
    return cf_raise(L, &err);
}
