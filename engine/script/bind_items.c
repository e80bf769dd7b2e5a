/* out:items: what a table of metadata lists, all at once. A call an item would take seconds for
 * half a million of them; here the plugin says once which field means what.
 */
#include <string.h>

#include "bind.h"
#include "items.h"
#include "path.h"
#include "pattern.h"

typedef struct finding {
    lua_State *L;
    cf_source *source;
    const char *folder, *rank; /* rank: a pattern with {rank}, or NULL */
    int32_t last;              /* rank seen; -1: none */
} finding;

/* The file of a path, and its rank, which its name tells. */
static bool find(void *ctx, const cf_node *path, uint32_t *file, int32_t *rank, cf_err *err)
{
    finding *f = ctx;
    cf_text *text = cf_scratch(f->L);
    cf_text_str(text, f->folder);
    cf_text_add(text, path->text.at, path->text.length);
    if (!cf_text_ok(text, err)) return false;
    if (!path->text.length || cf_path_kind_of(text->at, text->size) == CF_PATH_OUT ||
        cf_path_kind_of(text->at + strlen(f->folder), path->text.length) == CF_PATH_OUT)
        return cf_fail(err, CF_E_PATH, "the path '%s' leads out of the checkpoint", text->at);
    if (!cf_dir_find(&f->source->dir, text->at, file)) {
        *file = CF_NO_FILE;
        cf_fail(err, CF_E_MISSING_FILE, "no such file in the checkpoint");
        cf_err_in_file(err, text->at);
    }
    cf_captures captures;
    if (f->rank && cf_pattern_match(f->rank, text->at + strlen(f->folder), &captures))
        for (int i = 0; i < captures.count; i++)
            if (strcmp(captures.items[i].name, "rank") == 0 && captures.items[i].value <= INT32_MAX)
                *rank = (int32_t)captures.items[i].value;
    f->last = *rank > f->last ? *rank : f->last;
    return true;
}

/* out:items(tensors, places, fields): fields names what is looked for, and more. Gives the last
 * rank that a path names. */
int cf_out_items(lua_State *L)
{
    static const char *const names[] = {[CF_ITEM_DTYPE] = "dtype",
                                        [CF_ITEM_SHAPE] = "shape",
                                        [CF_ITEM_CHUNKS] = "chunks",
                                        [CF_ITEM_CHUNK_AT] = "chunk_at",
                                        [CF_ITEM_CHUNK_SIZE] = "chunk_size",
                                        [CF_ITEM_NAME] = "name",
                                        [CF_ITEM_AT] = "at",
                                        [CF_ITEM_HINT] = "hint",
                                        [CF_ITEM_PATH] = "path",
                                        [CF_ITEM_OFFSET] = "offset",
                                        [CF_ITEM_LENGTH] = "length",
                                        [CF_ITEM_DECODE] = "decode",
                                        [CF_ITEM_FIELDS] = "dtype_number",
                                        "folder",
                                        "rank",
                                        "order",
                                        NULL};
    cf_part *part = cf_check_out(L);
    cf_host *host = cf_host_of(L);
    finding f = {.L = L, .source = host->source, .last = -1};
    cf_items_spec spec = {
        .tensors = cf_test_node(L, 2), .places = cf_test_node(L, 3), .find = find, .ctx = &f};
    if (!spec.tensors || !spec.places)
        cf_raise_code(L, CF_E_TYPE, "the tables of tensors and places are a %s and a %s",
                      cf_class_of(L, 2), cf_class_of(L, 3));
    luaL_checktype(L, 4, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, 4); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int i = 0;
        while (names[i] && strcmp(names[i], name) != 0) i++;
        if (!names[i])
            luaL_error(L, "items have no field '%s'%s", name, cf_push_guess(L, name, names));
    }
    for (int i = 0; i < CF_ITEM_FIELDS; i++) {
        lua_getfield(L, 4, names[i]);
        if (!(spec.fields[i] = lua_tostring(L, -1))) luaL_error(L, "items need '%s'", names[i]);
        lua_pop(L, 1); /* the table keeps the string */
    }
    lua_getfield(L, 4, "folder");
    f.folder = luaL_optstring(L, -1, "");
    lua_getfield(L, 4, "rank");
    f.rank = luaL_optstring(L, -1, NULL);
    cf_err err;
    if (f.rank && !cf_pattern_check(f.rank, &err)) return luaL_argerror(L, 4, err.message);
    if (lua_getfield(L, 4, "order") != LUA_TNIL) spec.order = cf_test_node(L, lua_gettop(L));
    lua_getfield(L, 4, "dtype_number");
    const lua_Integer number = luaL_optinteger(L, -1, 0);
    luaL_argcheck(L, number >= 0 && number < 64, 4, "dtype_number is no number from 0");
    spec.dtype = (size_t)number;
    const int64_t paused = cf_host_pause(); /* C's time is not the script's */
    const bool ok = cf_part_items(part, &spec, &err);
    cf_host_resume(host, paused);
    host->rows += spec.tensors->kind == CF_NODE_DICT ? (uint64_t)spec.tensors->dict->count : 0;
    if (!ok) return cf_raise(L, &err);
    f.last < 0 ? lua_pushnil(L) : lua_pushinteger(L, f.last);
    return 1;
}
