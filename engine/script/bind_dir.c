/* dir: the checkpoint's folder, or several folders as one. All a format can reach.
 */
#include <string.h>

#include "bind.h"
#include "dir.h"
#include "items.h"
#include "num.h"
#include "path.h"
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

/* What a format looked for, of several patterns at once one: for the guesses where none fits. */
static void note_probe(lua_State *L, const char *pattern, bool hit)
{
    cf_probes *probes = cf_host_of(L)->probes;
    if (!probes || probes->count == CF_MOST_PROBES) return;
    cf_probe *probe = &probes->items[probes->count];
    if (strlen(pattern) >= sizeof probe->pattern) return;
    strcpy(probe->pattern, pattern);
    probe->hit = hit;
    for (int i = 0; i < probes->count; i++)
        if (strcmp(probes->items[i].pattern, pattern) == 0) return;
    probes->count++;
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
    note_probe(L, pattern, has);
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
    int hit = 0;
    for (uint32_t i = 0; i < dir->count; i++) {
        cf_captures captures;
        int p = 2;
        if (dir->files[i].twin) continue; /* read with the first of its name */
        while (p <= last && !cf_pattern_match(lua_tostring(L, p), dir->files[i].path, &captures))
            p++;
        if (p > last) continue;
        if (!hit) hit = p;
        cf_push_file(L, i, &captures);
        lua_rawseti(L, -2, ++count);
    }
    if (last > 1) note_probe(L, lua_tostring(L, hit ? hit : 2), hit);
    return 1;
}

static int dir_links(lua_State *L)
{
    const cf_dir *dir = &source_of(L)->dir;
    const int last = lua_gettop(L);
    for (int p = 2; p <= last; p++) check_pattern(L, p);
    lua_newtable(L);
    for (size_t i = 0; i < dir->n_links; i++) {
        int p = 2;
        while (p <= last && !cf_pattern_match(lua_tostring(L, p), dir->links[i].path, NULL)) p++;
        if (p > last) continue;
        lua_pushstring(L, dir->links[i].to);
        lua_setfield(L, -2, dir->links[i].path);
    }
    return 1;
}

/* Where faults are collected, an item of a file that is not there, or that does not lie in it, is
 * one: what is left is an item without a place. */
enum { NO_FILE = UINT32_MAX };

static uint32_t find_file(lua_State *L, int index, bool may_miss)
{
    const cf_source *source = source_of(L);
    size_t length;
    const char *path = luaL_checklstring(L, index, &length);
    uint32_t file;
    if (cf_path_kind_of(path, length) == CF_PATH_OUT)
        cf_raise_code(L, CF_E_PATH, "the path '%s' leads out of the checkpoint", path);
    /* of several folders rather that of the file that is being read */
    const cf_part *part = cf_host_of(L)->part;
    const uint32_t root = part ? source->dir.files[cf_part_file(part)].root : 0;
    if (!cf_dir_find_in(&source->dir, path, root, &file) &&
        !cf_dir_find(&source->dir, path, &file)) {
        cf_err err;
        cf_fail(&err, CF_E_MISSING_FILE, "no such file in the checkpoint");
        cf_err_in_file(&err, path);
        if (may_miss && cf_faults_take(source->faults, &err)) return NO_FILE;
        cf_raise(L, &err);
    }
    return file;
}

static int dir_file(lua_State *L)
{
    cf_push_file(L, find_file(L, 2, false), NULL);
    return 1;
}

/* ---- item */

static const char *const item_fields[] = {"dtype", "shape", "name", "rank", "decode", NULL};

static bool check_decode(lua_State *L, int index)
{
    cf_err err;
    bool zstd;
    if (!cf_item_decode(cf_to_node(L, index), &zstd, &err)) cf_raise(L, &err);
    return zstd;
}

/* What the table at 5 claims; in the arena that storages of the file being read live in. */
static cf_claim *check_claim(lua_State *L, cf_arena *arena)
{
    int64_t shape[CF_MOST_DIMS];
    cf_claim claim = {.rank = -1, .name = ""};
    luaL_checktype(L, 5, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, 5); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int i = 0;
        while (item_fields[i] && strcmp(item_fields[i], name) != 0) i++;
        if (!item_fields[i])
            luaL_error(L, "an item has no field '%s'%s", name, cf_push_guess(L, name, item_fields));
    }
    if (lua_getfield(L, 5, "dtype") != LUA_TNIL) claim.dtype = cf_check_dtype(L, lua_gettop(L));
    const bool shaped = lua_getfield(L, 5, "shape") != LUA_TNIL;
    if (shaped != (claim.dtype != CF_NO_DTYPE))
        luaL_error(L, "an item has dtype and shape, or neither");
    if (shaped) claim.ndim = (uint8_t)cf_check_shape(L, lua_gettop(L), shape);
    lua_getfield(L, 5, "name");
    const char *text = luaL_optstring(L, -1, "");
    lua_getfield(L, 5, "rank");
    const lua_Integer rank = luaL_optinteger(L, -1, -1);
    claim.rank = rank < 0 || rank > INT32_MAX ? -1 : (int32_t)rank;
    lua_getfield(L, 5, "decode");
    claim.zstd = check_decode(L, lua_gettop(L));
    claim.name = cf_strndup(arena, text, strlen(text));
    claim.shape = cf_memdup(arena, shape, claim.ndim * sizeof *shape);
    return claim.name && claim.shape ? cf_memdup(arena, &claim, sizeof claim) : NULL;
}

/* A number that the metadata gives: what is none is bad data, not a fault of the script. */
static lua_Integer check_place(lua_State *L, int index, const char *what)
{
    int whole;
    const lua_Integer number = lua_tointegerx(L, index, &whole);
    if (whole && lua_type(L, index) == LUA_TNUMBER) return number;
    if (lua_isnoneornil(L, index)) return luaL_error(L, "an item has %s", what);
    return cf_raise_code(L, CF_E_NUMBER, "the %s of an item is %s, no number of 63 bits", what,
                         lua_isstring(L, index) ? lua_tostring(L, index) : cf_class_of(L, index));
}

/* An item as a storage; its tensor is the whole of it, row-major. */
static int push_item(lua_State *L, cf_source *source, cf_arena *arena, uint32_t file,
                     lua_Integer offset, lua_Integer length, const cf_claim *claim)
{
    cf_storage *s = CF_NEW(arena, cf_storage);
    cf_err err = {0};
    if (!claim || !s) {
        cf_arena_ok(arena, &err);
        return cf_raise(L, &err);
    }
    int64_t numel = 0;
    if (file == NO_FILE) {
        *s = (cf_storage){.place = CF_NOWHERE, .name = ""};
        if (cf_numel(claim->shape, claim->ndim, &numel) && claim->dtype)
            s->size = (uint64_t)(numel * cf_dtype_size(claim->dtype));
    } else if (!cf_item_place(source, file, offset, length, claim, s, &err)) {
        const uint64_t bytes = s->size;
        cf_err_add_file(&err, source->dir.files[file].path);
        if (*claim->name) cf_err_add_member(&err, claim->name);
        const bool sized = err.code != CF_E_OVERFLOW && err.code != CF_E_NUMBER;
        if (!sized || !cf_faults_take(source->faults, &err)) return cf_raise(L, &err);
        *s = (cf_storage){.place = CF_NOWHERE, .size = bytes, .name = ""};
    }
    if (!claim->dtype) {
        cf_node *node = cf_node_new(arena, CF_NODE_STORAGE);
        if (node) node->storage = s;
        if (node) cf_push_node(L, node, false);
    } else {
        const cf_view *v =
            cf_view_new(arena, s, claim->dtype, 0, claim->ndim, claim->shape, NULL, &err);
        if (!v) return cf_raise(L, &err);
        cf_push_view(L, v);
    }
    if (!cf_arena_ok(arena, &err)) return cf_raise(L, &err);
    return 1;
}

static int dir_item(lua_State *L)
{
    cf_source *source = cf_host_of(L)->source;
    const cf_part *part = cf_host_of(L)->part;
    source_of(L);
    if (!part) return luaL_error(L, "dir:item is of use in `read` alone");
    const uint32_t file = find_file(L, 2, true);
    const lua_Integer offset = check_place(L, 3, "offset"), length = check_place(L, 4, "length");
    cf_arena *arena = &source->trees[cf_part_file(part)].keep;
    return push_item(L, source, arena, file, offset, length, check_claim(L, arena));
}

static int dir_refuse(lua_State *L)
{
    source_of(L);
    return cf_refuse(L, CF_E_MISSING_FILE, NULL);
}

static int dir_note(lua_State *L)
{
    cf_source *source = source_of(L);
    char line[1000];
    snprintf(line, sizeof line, "%s", luaL_checkstring(L, 2));
    if (cf_host_of(L)->notes-- <= 0) return luaL_error(L, "dir:note is for `files`, a few times");
    for (char *at = line; *at; at++)
        if (*at == '\n') *at = ' ';
    cf_source_note(source, "%s", line);
    return 0;
}

static int dir_length(lua_State *L)
{
    lua_pushinteger(L, source_of(L)->dir.count);
    return 1;
}

void cf_bind_dir(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__len", dir_length}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"has", dir_has},   {"glob", dir_glob}, {"links", dir_links},   {"file", dir_file},
        {"item", dir_item}, {"note", dir_note}, {"refuse", dir_refuse}, {NULL, NULL}};
    static const cf_handle handle = {DIR_HANDLE, methods, NULL, NULL, meta};
    cf_handle_register(L, &handle);
}

void cf_push_dir(lua_State *L)
{
    cf_new(L, 0, 0, DIR_HANDLE);
}
