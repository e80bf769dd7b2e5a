/* Error objects: a userdata that holds a cf_err.
 *
 * Bad data, refusals and limits are raised as such objects and pass through `pcall`. An ordinary
 * Lua error is text; where a call ends it becomes L_ERROR with the script's line and a short
 * traceback. Texts never show an address.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bind.h"

enum { MOST_FRAMES = 6 };

static const char ERROR[] = "error";

int cf_raise(lua_State *L, const cf_err *err)
{
    *(cf_err *)cf_new(L, sizeof *err, 0, ERROR) = *err;
    return lua_error(L);
}

int cf_raise_code(lua_State *L, cf_code code, const char *fmt, ...)
{
    cf_err *err = cf_new(L, sizeof *err, 0, ERROR);
    va_list args;
    va_start(args, fmt);
    char message[sizeof err->message];
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    cf_fail(err, code, "%s", message);
    return lua_error(L);
}

const cf_err *cf_raised(lua_State *L, int index)
{
    return luaL_testudata(L, index, ERROR);
}

static bool field(lua_State *L, const char *key)
{
    const cf_err *err = luaL_checkudata(L, 1, ERROR);
    if (strcmp(key, "code") == 0)
        lua_pushstring(L, cf_code_name(err->code));
    else if (strcmp(key, "exit") == 0)
        lua_pushinteger(L, cf_code_exit(err->code));
    else if (strcmp(key, "message") == 0)
        lua_pushstring(L, err->message);
    else if (strcmp(key, "hint") == 0)
        err->hint[0] ? (void)lua_pushstring(L, err->hint) : lua_pushnil(L);
    else if (strcmp(key, "file") == 0)
        err->file[0] ? (void)lua_pushstring(L, err->file) : lua_pushnil(L);
    else if (strcmp(key, "offset") == 0)
        err->offset >= 0 ? lua_pushinteger(L, err->offset) : lua_pushnil(L);
    else
        return false;
    return true;
}

static int show(lua_State *L)
{
    const cf_err *err = luaL_checkudata(L, 1, ERROR);
    char line[sizeof *err];
    lua_pushfstring(L, "%s: %s", cf_code_name(err->code), cf_err_line(err, line, sizeof line));
    return 1;
}

void cf_raise_register(lua_State *L)
{
    static const char *const fields[] = {"code", "exit", "message", "hint", "file", "offset", NULL};
    static const luaL_Reg meta[] = {{"__tostring", show}, {NULL, NULL}};
    static const cf_handle handle = {ERROR, NULL, fields, field, meta};
    cf_handle_register(L, &handle);
}

/* ---- ordinary errors */

static void add(cf_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(cf_err *err, const char *fmt, ...)
{
    const size_t used = strlen(err->message);
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message + used, sizeof err->message - used, fmt, args);
    va_end(args);
}

/* The Lua functions under way, innermost first; those of C say nothing to a script's author. */
static void add_frames(lua_State *L, cf_err *err)
{
    lua_Debug at;
    for (int level = 1, shown = 0; shown < MOST_FRAMES && lua_getstack(L, level, &at); level++) {
        lua_getinfo(L, "Sln", &at);
        if (at.currentline < 0) continue;
        if (strcmp(at.what, "main") == 0)
            add(err, "\n  in the chunk at %s:%d", at.short_src, at.currentline);
        else
            add(err, "\n  in %s at %s:%d", at.name ? at.name : "a function", at.short_src,
                at.currentline);
        shown++;
    }
}

int cf_explain(lua_State *L)
{
    if (cf_raised(L, 1)) return 1;
    cf_err *err = cf_new(L, sizeof *err, 0, ERROR);
    if (lua_type(L, 1) == LUA_TSTRING || lua_type(L, 1) == LUA_TNUMBER)
        cf_fail(err, CF_L_ERROR, "%s", lua_tostring(L, 1));
    else
        cf_fail(err, CF_L_ERROR, "a script raised a %s", luaL_typename(L, 1));
    add_frames(L, err);
    return 1;
}

/* ---- did you mean */

const char *cf_nearest(const char *word, const char *const *names)
{
    const int length = (int)strlen(word);
    int best = length < 3 ? 1 : length < 6 ? 2 : 3;
    const char *found = NULL;
    for (; *names; names++) {
        const int distance = cf_text_distance(word, *names);
        if (distance > best || distance >= length || (found && distance == best)) continue;
        best = distance;
        found = *names;
    }
    return found;
}

const char *cf_push_guess(lua_State *L, const char *word, const char *const *names)
{
    const char *near = cf_nearest(word, names);
    return near ? lua_pushfstring(L, "; did you mean '%s'?", near) : lua_pushliteral(L, "");
}
