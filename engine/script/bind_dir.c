/* dir: the checkpoint's folder, or several folders as one. All a format can reach.
 */
#include <string.h>

#include "bind.h"
#include "dir.h"
#include "pattern.h"

static const char DIR_HANDLE[] = "dir";

static cf_source *source_of(lua_State *L)
{
    luaL_checkudata(L, 1, DIR_HANDLE);
    return cf_host_of(L)->source;
}

/* A pattern; a wrong one is the script's fault. Its placeholders become names of fields. */
static const char *check_pattern(lua_State *L, int index)
{
    cf_err err;
    const char *pattern = luaL_checkstring(L, index);
    if (!cf_pattern_check(pattern, &err)) luaL_argerror(L, index, err.message);
    cf_placeholders *known = &cf_host_of(L)->placeholders;
    for (const char *at = strchr(pattern, '{'); at; at = strchr(at + 1, '{')) {
        const size_t length = strcspn(at + 1, "*}");
        int i = 0;
        while (i < known->count &&
               (strncmp(known->names[i], at + 1, length) != 0 || known->names[i][length] != '\0'))
            i++;
        if (i < known->count) continue;
        if (i == CF_MOST_PLACEHOLDERS || length >= sizeof known->names[i])
            luaL_argerror(L, index, "too many placeholders");
        memcpy(known->names[i], at + 1, length);
        known->names[known->count++][length] = '\0';
    }
    return pattern;
}

static int dir_has(lua_State *L)
{
    const cf_dir *dir = &source_of(L)->dir;
    const char *pattern = check_pattern(L, 2);
    uint32_t file;
    const bool literal = !strpbrk(pattern, "*{");
    bool has = literal && cf_dir_find(dir, pattern, &file);
    for (uint32_t i = 0; !literal && !has && i < dir->count; i++)
        has = cf_pattern_match(pattern, dir->files[i].path, NULL);
    lua_pushboolean(L, has);
    return 1;
}

static int dir_glob(lua_State *L)
{
    const cf_dir *dir = &source_of(L)->dir;
    const int last = lua_gettop(L);
    for (int p = 2; p <= last; p++) check_pattern(L, p);
    lua_newtable(L);
    lua_Integer count = 0;
    for (uint32_t i = 0; i < dir->count; i++) {
        cf_captures captures;
        int p = 2;
        while (p <= last && !cf_pattern_match(lua_tostring(L, p), dir->files[i].path, &captures))
            p++;
        if (p > last) continue;
        cf_push_file(L, i, &captures);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

/* Does a path stay below its folder? */
static bool stays_inside(const char *path, size_t length)
{
    if (path[0] == '/' || strlen(path) != length) return false;
    for (const char *at = path; at; at = strchr(at, '/')) {
        if (*at == '/') at++;
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0')) return false;
    }
    return true;
}

static int dir_file(lua_State *L)
{
    const cf_source *source = source_of(L);
    size_t length;
    const char *path = luaL_checklstring(L, 2, &length);
    uint32_t file;
    if (!stays_inside(path, length))
        return cf_raise_code(L, CF_E_PATH, "the path '%s' leads out of the checkpoint", path);
    if (!cf_dir_find(&source->dir, path, &file)) {
        cf_err err;
        cf_fail(&err, CF_E_MISSING_FILE, "no such file in the checkpoint");
        cf_err_in_file(&err, path);
        return cf_raise(L, &err);
    }
    cf_push_file(L, file, NULL);
    return 1;
}

static int dir_item(lua_State *L)
{
    source_of(L);
    return cf_raise_code(L, CF_E_LAYOUT,
                         "dir:item (a tensor inside a slice of a file) is not in "
                         "this version");
}

static int dir_refuse(lua_State *L)
{
    source_of(L);
    return cf_refuse(L, CF_E_MISSING_FILE, NULL);
}

void cf_bind_dir(lua_State *L)
{
    static const luaL_Reg methods[] = {{"has", dir_has},       {"glob", dir_glob},
                                       {"file", dir_file},     {"item", dir_item},
                                       {"refuse", dir_refuse}, {NULL, NULL}};
    static const cf_handle handle = {DIR_HANDLE, methods, NULL, NULL, NULL};
    cf_handle_register(L, &handle);
}

void cf_push_dir(lua_State *L)
{
    cf_new(L, 0, 0, DIR_HANDLE);
}
