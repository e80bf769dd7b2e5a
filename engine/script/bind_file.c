/* file: one file of the checkpoint, and what the placeholders of its pattern took.
 */
#include <limits.h>
#include <string.h>

#include "bind.h"

static const char FILE_HANDLE[] = "file";

void cf_push_file(lua_State *L, uint32_t file, const cf_captures *captures)
{
    const size_t count = captures ? (size_t)captures->count : 0;
    cf_file_handle *handle = cf_new(L, sizeof *handle + count * sizeof(cf_capture), 0, FILE_HANDLE);
    handle->file = file;
    handle->rank = -1;
    for (size_t i = 0; i < count; i++) {
        const cf_capture *c = &captures->items[i];
        handle->captures[handle->count++] = *c;
        if (!c->number || strcmp(c->name, "rank") != 0) continue;
        if (c->value > INT32_MAX) {
            cf_err err;
            cf_fail(&err, CF_E_NUMBER, "rank %lld is no rank", (long long)c->value);
            cf_err_in_file(&err, cf_source_path(cf_host_of(L)->source, file));
            cf_raise(L, &err);
        }
        handle->rank = (int32_t)c->value;
    }
}

const cf_file_handle *cf_check_file(lua_State *L, int index)
{
    return luaL_checkudata(L, index, FILE_HANDLE);
}

static const char *path_of(lua_State *L, const cf_file_handle *handle)
{
    return cf_source_path(cf_host_of(L)->source, handle->file);
}

/* The tree of the file; what cannot be read is remembered, for detection to show. */
static const cf_tree *tree_of(lua_State *L, const cf_file_handle *handle)
{
    cf_host *host = cf_host_of(L);
    cf_tree *tree;
    cf_err err;
    if (cf_host_pin(host, handle->file, &tree, &err)) return tree;
    cf_err_in_file(&err, path_of(L, handle));
    if (host->unreadable.code == CF_OK) host->unreadable = err;
    cf_raise(L, &err);
    return NULL;
}

const cf_node *cf_file_root(lua_State *L, const cf_file_handle *file)
{
    return tree_of(L, file)->root;
}

static void push_kind(lua_State *L, const cf_file_handle *handle)
{
    cf_content kind;
    cf_err err;
    if (!cf_source_content(cf_host_of(L)->source, handle->file, &kind, &err)) cf_raise(L, &err);
    lua_pushstring(L, cf_content_name(kind)); /* nil: not known */
}

static bool push_capture(lua_State *L, const cf_file_handle *handle, const char *key)
{
    for (int i = 0; i < handle->count; i++) {
        const cf_capture *c = &handle->captures[i];
        if (strcmp(c->name, key) != 0) continue;
        if (c->number)
            lua_pushinteger(L, c->value);
        else
            lua_pushlstring(L, path_of(L, handle) + c->from, c->length);
        return true;
    }
    const cf_placeholders *known = &cf_host_of(L)->placeholders;
    for (int i = 0; i < known->count; i++)
        if (strcmp(known->names[i], key) == 0) {
            lua_pushnil(L);
            return true;
        }
    return false;
}

static bool field(lua_State *L, const char *key)
{
    const cf_file_handle *handle = cf_check_file(L, 1);
    if (strcmp(key, "root") == 0) {
        cf_push_value(L, tree_of(L, handle)->root, false);
    } else if (strcmp(key, "meta") == 0) {
        cf_push_value(L, tree_of(L, handle)->meta, false);
    } else if (strcmp(key, "size") == 0) {
        lua_pushinteger(L, (lua_Integer)cf_host_of(L)->source->dir.files[handle->file].size);
    } else if (strcmp(key, "kind") == 0) {
        push_kind(L, handle);
    } else if (strcmp(key, "name") == 0) {
        lua_pushstring(L, path_of(L, handle));
    } else if (strcmp(key, "folder") == 0) {
        const char *path = path_of(L, handle), *slash = strrchr(path, '/');
        lua_pushlstring(L, path, slash ? (size_t)(slash - path) + 1 : 0);
    } else if (!push_capture(L, handle, key)) {
        if (strcmp(key, "rank") != 0) return false;
        lua_pushnil(L);
    }
    return true;
}

static int file_walk(lua_State *L)
{
    const cf_file_handle *handle = cf_check_file(L, 1);
    if (lua_gettop(L) == 1) cf_push_node(L, tree_of(L, handle)->root, false);
    lua_settop(L, 2);
    return cf_file_walk(L);
}

static int file_refuse(lua_State *L)
{
    return cf_refuse(L, CF_E_LAYOUT, path_of(L, cf_check_file(L, 1)));
}

static int file_show(lua_State *L)
{
    lua_pushfstring(L, "file %s", path_of(L, cf_check_file(L, 1)));
    return 1;
}

void cf_bind_file(lua_State *L)
{
    static const luaL_Reg methods[] = {{"walk", file_walk}, {"refuse", file_refuse}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__tostring", file_show}, {NULL, NULL}};
    static const char *const fields[] = {"root", "meta", "name", "folder",
                                         "rank", "size", "kind", NULL};
    static const cf_handle handle = {FILE_HANDLE, methods, fields, field, meta};
    cf_handle_register(L, &handle);
}
