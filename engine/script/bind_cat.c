/* selection and row: the catalogue as recipes see it, rows under names.
 *
 * A selection is one userdata with its entries inside. Names belong to rows, or to the selection
 * that a `rename` made; a later one keeps that one alive.
 */
#include <string.h>

#include "bind.h"
#include "pattern.h"

static const char SELECTION[] = "selection";
static const char ROW[] = "row";

typedef struct row_handle {
    cf_row *row;
    const cf_catalogue *cat;
} row_handle;

const cf_selection *cf_test_selection(lua_State *L, int index)
{
    return luaL_testudata(L, index, SELECTION);
}

static cf_selection *check_selection(lua_State *L)
{
    return luaL_checkudata(L, 1, SELECTION);
}

cf_row *cf_test_row(lua_State *L, int index)
{
    const row_handle *handle = luaL_testudata(L, index, ROW);
    return handle ? handle->row : NULL;
}

/* Room for `most` entries; `from` (an index, or 0) holds the names. */
static cf_selection *new_selection(lua_State *L, cf_catalogue *cat, size_t most, int from)
{
    cf_selection *sel = cf_new(L, sizeof *sel + most * sizeof(cf_entry), 1, SELECTION);
    sel->cat = cat;
    cf_arena_init(&sel->arena, 0);
    if (from) {
        lua_pushvalue(L, from);
        lua_setiuservalue(L, -2, 1);
    }
    return sel;
}

static void add(cf_selection *sel, const char *name, cf_row *row)
{
    sel->entries[sel->count++] = (cf_entry){.name = name, .row = row};
}

void cf_push_catalogue(lua_State *L, cf_catalogue *cat)
{
    cf_selection *sel = new_selection(L, cat, cat->count, 0);
    for (size_t i = 0; i < cat->count; i++) add(sel, cat->rows[i]->key, cat->rows[i]);
}

/* Makes the map of names; the number of the first entry that has the name of an earlier one in
 * `twin`, SIZE_MAX: none. False: no memory. */
static bool index_names(cf_selection *sel, size_t *twin)
{
    *twin = SIZE_MAX;
    if (sel->indexed) return true;
    cf_map_init(&sel->index, &sel->arena);
    for (size_t i = 0; i < sel->count; i++) {
        bool fresh;
        const char *name = sel->entries[i].name;
        uint64_t *at = cf_map_put(&sel->index, name, strlen(name), &fresh);
        if (!at) return false;
        if (!fresh && *twin == SIZE_MAX) *twin = i;
        if (fresh) *at = i;
    }
    sel->indexed = true;
    return true;
}

/* Two rows under one name are an error. Returns 1, for the selection at the top. */
static int check_names(lua_State *L, cf_selection *sel)
{
    size_t twin;
    uint64_t first = 0;
    cf_err err;
    if (!index_names(sel, &twin)) {
        cf_arena_ok(&sel->arena, &err);
        return cf_raise(L, &err);
    }
    if (twin == SIZE_MAX) return 1;
    const cf_entry *entry = &sel->entries[twin];
    cf_map_get(&sel->index, entry->name, strlen(entry->name), &first);
    return cf_raise_code(L, CF_E_DUP_KEY, "%s and %s both map to %s", sel->entries[first].row->key,
                         entry->row->key, entry->name);
}

/* The entries that a test keeps, in a selection that is pushed. */
typedef bool keeps(lua_State *L, const cf_entry *entry, const void *ctx);

static cf_selection *filter(lua_State *L, keeps *test, const void *ctx)
{
    const cf_selection *all = check_selection(L);
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) count += test(L, &all->entries[i], ctx);
    cf_selection *sel = new_selection(L, all->cat, count, 1);
    for (size_t i = 0; i < all->count; i++)
        if (test(L, &all->entries[i], ctx)) add(sel, all->entries[i].name, all->entries[i].row);
    return sel;
}

static bool has_role(lua_State *L, const cf_entry *entry, const void *role)
{
    (void)L;
    return strcmp(entry->row->role, role) == 0;
}

static int sel_role(lua_State *L)
{
    static const char *const roles[] = {"model", "optim", "copy", "rest", NULL};
    cf_selection *sel = filter(L, has_role, roles[luaL_checkoption(L, 2, NULL, roles)]);
    for (size_t i = 0; i < sel->count; i++) sel->entries[i].name = sel->entries[i].row->name;
    return check_names(L, sel);
}

/* Any of the globs from index 2 on, and none of those that begin with "!". */
static bool fits(lua_State *L, const cf_entry *entry, const void *last)
{
    bool any = false, wanted = false;
    for (int i = 2; i <= *(const int *)last; i++) {
        const char *glob = lua_tostring(L, i);
        if (glob[0] == '!') {
            if (cf_glob_match(glob + 1, entry->name)) return false;
        } else {
            wanted = true;
            any = any || cf_glob_match(glob, entry->name);
        }
    }
    return any || !wanted;
}

static int sel_match(lua_State *L)
{
    const int last = lua_gettop(L);
    for (int i = 2; i <= last; i++) luaL_checkstring(L, i);
    filter(L, fits, &last);
    return 1;
}

static bool is_tensor(lua_State *L, const cf_entry *entry, const void *ctx)
{
    (void)L;
    (void)ctx;
    return entry->row->dtype != CF_NO_DTYPE;
}

static bool is_value(lua_State *L, const cf_entry *entry, const void *ctx)
{
    return !is_tensor(L, entry, ctx);
}

static int sel_tensors(lua_State *L)
{
    filter(L, is_tensor, NULL);
    return 1;
}

static int sel_values(lua_State *L)
{
    filter(L, is_value, NULL);
    return 1;
}

static int sel_rename(lua_State *L)
{
    const cf_selection *all = check_selection(L);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    cf_selection *sel = new_selection(L, all->cat, all->count, 0);
    for (size_t i = 0; i < all->count; i++) {
        lua_pushvalue(L, 2);
        lua_pushstring(L, all->entries[i].name);
        lua_call(L, 1, 1);
        size_t length;
        if (lua_type(L, -1) != LUA_TSTRING)
            return luaL_error(L, "rename: the new name of '%s' is a %s", all->entries[i].name,
                              luaL_typename(L, -1));
        const char *name = lua_tolstring(L, -1, &length);
        if (length > CF_MOST_KEY || cf_utf8_valid(name, length) != length || strlen(name) != length)
            return luaL_error(L, "rename: the new name of '%s' is no name", all->entries[i].name);
        name = cf_strndup(&sel->arena, name, length);
        if (!name) break; /* check_names tells */
        add(sel, name, all->entries[i].row);
        lua_pop(L, 1);
    }
    return check_names(L, sel);
}

static void push_row(lua_State *L, const cf_catalogue *cat, cf_row *row)
{
    row_handle *handle = cf_new(L, sizeof *handle, 0, ROW);
    handle->row = row;
    handle->cat = cat;
}

static int sel_find(lua_State *L)
{
    cf_selection *sel = check_selection(L);
    size_t length, twin;
    const char *name = luaL_checklstring(L, 2, &length);
    uint64_t at;
    cf_err err;
    if (!index_names(sel, &twin)) {
        cf_arena_ok(&sel->arena, &err);
        return cf_raise(L, &err);
    }
    if (cf_map_get(&sel->index, name, length, &at))
        push_row(L, sel->cat, sel->entries[at].row);
    else
        lua_pushnil(L);
    return 1;
}

static int sel_length(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)check_selection(L)->count);
    return 1;
}

/* Upvalues: the selection, the number of the next entry. */
static int pairs_step(lua_State *L)
{
    const cf_selection *sel = lua_touserdata(L, lua_upvalueindex(1));
    const size_t at = (size_t)lua_tointeger(L, lua_upvalueindex(2));
    if (at >= sel->count) return 0;
    lua_pushinteger(L, (lua_Integer)at + 1);
    lua_replace(L, lua_upvalueindex(2));
    lua_pushstring(L, sel->entries[at].name);
    push_row(L, sel->cat, sel->entries[at].row);
    return 2;
}

static int sel_pairs(lua_State *L)
{
    check_selection(L);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_step, 2);
    return 1;
}

static int sel_free(lua_State *L)
{
    cf_arena_free(&check_selection(L)->arena);
    return 0;
}

static int sel_show(lua_State *L)
{
    lua_pushfstring(L, "selection of %d rows", (int)check_selection(L)->count);
    return 1;
}

static bool sel_field(lua_State *L, const char *key)
{
    const cf_catalogue *cat = check_selection(L)->cat;
    if (strcmp(key, "world") == 0)
        cat->world ? lua_pushinteger(L, cat->world) : lua_pushnil(L);
    else if (strcmp(key, "format") == 0)
        lua_pushstring(L, cat->format);
    else if (strcmp(key, "rank") == 0)
        cat->only_rank >= 0 ? lua_pushinteger(L, cat->only_rank) : lua_pushnil(L);
    else
        return false;
    return true;
}

/* ---- row */

static const row_handle *check_row(lua_State *L)
{
    return luaL_checkudata(L, 1, ROW);
}

/* Whose pieces a row has: its own, or those it is an alias of. */
static const cf_row *holder(const cf_row *row)
{
    return row->alias ? row->alias : row;
}

/* The value of the smallest rank; where it was told equal to an earlier one, that one's node. */
static const cf_node *value_of(const cf_row *row)
{
    const cf_value *first = NULL;
    for (size_t i = 0; i < row->n_values; i++)
        if (!first || row->values[i].rank < first->rank) first = &row->values[i];
    if (!first || first->node) return first ? first->node : NULL;
    for (size_t i = 0; i < row->n_values; i++)
        if (row->values[i].node && row->values[i].hash == first->hash) return row->values[i].node;
    return NULL;
}

static void push_whole(lua_State *L, cf_row *row)
{
    cf_err err;
    cf_push_tensor(L, cf_tensor_of_row(cf_view_arena(L), row, &err), &err);
}

static void push_row_value(lua_State *L, const cf_catalogue *cat, const cf_node *node)
{
    cf_err err;
    if (node && !cf_source_value(cat->source, node, cf_view_arena(L), &node, &err))
        cf_raise(L, &err);
    cf_push_value(L, node, true);
}

static bool row_field(lua_State *L, const char *key)
{
    cf_row *row = check_row(L)->row;
    const bool tensor = row->dtype != CF_NO_DTYPE;
    if (strcmp(key, "key") == 0)
        lua_pushstring(L, row->key);
    else if (strcmp(key, "role") == 0)
        lua_pushstring(L, row->role);
    else if (strcmp(key, "name") == 0)
        lua_pushstring(L, row->name);
    else if (strcmp(key, "path") == 0)
        row->path ? cf_push_path(L, row->path) : lua_pushnil(L);
    else if (strcmp(key, "dtype") == 0)
        tensor ? (void)lua_pushstring(L, cf_dtype_of(row->dtype)->name) : lua_pushnil(L);
    else if (strcmp(key, "shape") == 0)
        /* the hull of one rank's pieces is not that of all */
        tensor && !(row->in_part && row->hull) ? cf_push_sizes(L, row->ndim, row->shape)
                                               : lua_pushnil(L);
    else if (strcmp(key, "view") == 0)
        tensor ? push_whole(L, row) : lua_pushnil(L);
    else if (strcmp(key, "value") == 0)
        push_row_value(L, check_row(L)->cat, tensor ? NULL : value_of(row));
    else
        return false;
    return true;
}

/* A piece as Lua sees it: a whole range is told with its first box. */
static void push_piece(lua_State *L, const row_handle *handle, const cf_piece *piece)
{
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, piece->rank);
    lua_setfield(L, -2, "rank");
    lua_pushstring(L, cf_source_path(handle->cat->source, piece->file));
    lua_setfield(L, -2, "file");
    lua_pushstring(L, piece->range ? "range" : "box");
    lua_setfield(L, -2, "kind");
    if (piece->range)
        lua_pushinteger(L, piece->start);
    else
        cf_push_sizes(L, handle->row->ndim, piece->at);
    lua_setfield(L, -2, "at");
    cf_err err;
    cf_push_tensor(L,
                   cf_tensor_of_view(cf_view_arena(L), piece->range ? piece->range : piece->view,
                                     handle->row, &err),
                   &err);
    lua_setfield(L, -2, "view");
}

/* Upvalues: the row, the number of the next piece. */
static int pieces_step(lua_State *L)
{
    const row_handle *handle = lua_touserdata(L, lua_upvalueindex(1));
    const cf_row *row = holder(handle->row);
    size_t at = (size_t)lua_tointeger(L, lua_upvalueindex(2));
    while (at < row->n_pieces && row->pieces[at].start >= 0 && !row->pieces[at].range) at++;
    if (at >= row->n_pieces) return 0;
    lua_pushinteger(L, (lua_Integer)at + 1);
    lua_replace(L, lua_upvalueindex(2));
    push_piece(L, handle, &row->pieces[at]);
    return 1;
}

static int row_pieces(lua_State *L)
{
    check_row(L);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pieces_step, 2);
    return 1;
}

static int row_show(lua_State *L)
{
    lua_pushfstring(L, "row %s", check_row(L)->row->key);
    return 1;
}

/* A small file beside the checkpoint, or nil. */
static int sel_file(lua_State *L)
{
    const cf_selection *sel = check_selection(L);
    uint32_t file;
    if (sel->cat->source != cf_host_of(L)->source)
        return luaL_error(L, "files of the first checkpoint alone can be read");
    if (cf_dir_find(&sel->cat->source->dir, luaL_checkstring(L, 2), &file))
        cf_push_file(L, file, NULL);
    else
        lua_pushnil(L);
    return 1;
}

void cf_bind_cat(lua_State *L)
{
    static const luaL_Reg sel_methods[] = {{"role", sel_role},       {"match", sel_match},
                                           {"tensors", sel_tensors}, {"values", sel_values},
                                           {"rename", sel_rename},   {"find", sel_find},
                                           {"file", sel_file},       {NULL, NULL}};
    static const luaL_Reg sel_meta[] = {{"__len", sel_length},
                                        {"__pairs", sel_pairs},
                                        {"__gc", sel_free},
                                        {"__tostring", sel_show},
                                        {NULL, NULL}};
    static const char *const sel_fields[] = {"world", "rank", "format", NULL};
    static const cf_handle selection = {SELECTION, sel_methods, sel_fields, sel_field, sel_meta};

    static const luaL_Reg row_methods[] = {{"pieces", row_pieces}, {NULL, NULL}};
    static const luaL_Reg row_meta[] = {{"__tostring", row_show}, {NULL, NULL}};
    static const char *const row_fields[] = {"key",   "role", "name",  "path", "dtype",
                                             "shape", "view", "value", NULL};
    static const cf_handle row = {ROW, row_methods, row_fields, row_field, row_meta};
    cf_handle_register(L, &selection);
    cf_handle_register(L, &row);
}
