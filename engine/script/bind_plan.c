/* plan: what a recipe records. Nothing is written here; cf_plan checks and keeps it.
 */
#include <stdlib.h>
#include <string.h>

#include "bind.h"

static const char PLAN[] = "plan";

static cf_plan *check_plan(lua_State *L)
{
    luaL_checkudata(L, 1, PLAN);
    cf_plan *plan = cf_host_of(L)->plan;
    if (!plan) luaL_error(L, "plan is of use in `plan` alone");
    return plan;
}

/* ---- write: what */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cf_entry *)a)->name, ((const cf_entry *)b)->name);
}

/* The entries of a table name -> view or row, for JSON and torch files also values, by name, in a
 * userdata that is pushed. */
static cf_entry *table_entries(lua_State *L, int index, bool values, size_t *count)
{
    size_t most = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) most++;
    cf_entry *entries = lua_newuserdatauv(L, most * sizeof *entries, 0);
    *count = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "plan:write: a name is a %s", luaL_typename(L, -2));
        cf_entry *entry = &entries[(*count)++];
        *entry = (cf_entry){.name = lua_tostring(L, -2)}; /* the table holds it */
        entry->row = cf_test_row(L, -1);
        entry->tensor = entry->row ? NULL : cf_test_tensor(L, lua_gettop(L));
        if (entry->row || entry->tensor) continue;
        if (!values)
            luaL_error(L, "plan:write: %s is a %s, not a view or a row", entry->name,
                       cf_class_of(L, lua_gettop(L)));
        entry->value = cf_to_node(L, lua_gettop(L));
    }
    qsort(entries, *count, sizeof *entries, by_name);
    return entries;
}

/* The entries of a selection, of a table, or of a list of both; what was made for them is pushed.
 */
static const cf_entry *any_entries(lua_State *L, int index, bool values, size_t *count)
{
    const cf_selection *sel = cf_test_selection(L, index);
    if (sel) {
        *count = sel->count;
        return sel->entries;
    }
    luaL_argexpected(L, lua_istable(L, index), index, "selection or table");
    const lua_Integer parts = luaL_len(L, index);
    if (parts == 0) return table_entries(L, index, values, count);
    *count = 0;
    cf_entry *all = NULL;
    for (lua_Integer i = 1; i <= parts; i++) { /* the stack keeps every part */
        size_t more;
        luaL_checkstack(L, 8, NULL);
        lua_geti(L, index, i);
        const int part = lua_gettop(L);
        if (lua_istable(L, part) && luaL_len(L, part) > 0)
            luaL_error(L, "plan:write: a list in a list of selections");
        const cf_entry *some = any_entries(L, part, values, &more);
        cf_entry *longer = lua_newuserdatauv(L, (*count + more + 1) * sizeof *longer, 0);
        if (*count) memcpy(longer, all, *count * sizeof *longer);
        if (more) memcpy(longer + *count, some, more * sizeof *longer);
        *count += more;
        all = longer;
    }
    return all;
}

/* ---- write: options */

/* "5GB", "512 MiB", or a number of bytes. */
static uint64_t check_size(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TNUMBER) {
        const lua_Integer n = luaL_checkinteger(L, index);
        if (n > 0) return (uint64_t)n;
    }
    const char *text = luaL_checkstring(L, index);
    uint64_t bytes = 0;
    if (!cf_size_parse(text, &bytes))
        cf_raise_code(L, CF_E_USAGE, "'%s' is no size, as 5GB or 512MiB", text);
    return bytes;
}

/* The pairs of safetensors' metadata, by name; pushes what holds them. */
static void check_meta(lua_State *L, int index, cf_write_options *options)
{
    luaL_checktype(L, index, LUA_TTABLE);
    size_t most = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) most++;
    const char **pairs = lua_newuserdatauv(L, 2 * most * sizeof *pairs, 0);
    lua_newtable(L); /* keeps the texts of numbers */
    const int texts = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || !lua_isstring(L, -1))
            luaL_error(L, "plan:write: meta holds names and texts");
        pairs[2 * options->n_meta] = lua_tostring(L, -2);
        lua_pushvalue(L, -1);
        pairs[2 * options->n_meta++ + 1] = lua_tostring(L, -1);
        lua_rawseti(L, texts, (lua_Integer)options->n_meta);
    }
    qsort(pairs, options->n_meta, 2 * sizeof *pairs, by_name);
    options->meta = pairs;
}

/* Options that the API has. */
static const char *const write_options[] = {
    "as", "max_shard_size", "meta", "dtype", "keep_dtype", "nest", "ranks", "policy", NULL};

/* A list of globs; pushes what holds it. The table holds the texts. */
static void check_globs(lua_State *L, int index, cf_write_options *options)
{
    luaL_checktype(L, index, LUA_TTABLE);
    options->n_keep = (size_t)luaL_len(L, index);
    const char **globs = lua_newuserdatauv(L, (options->n_keep + 1) * sizeof *globs, 0);
    for (size_t i = 0; i < options->n_keep; i++) {
        if (lua_geti(L, index, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "plan:write: keep_dtype is a list of texts");
        globs[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    options->keep_dtype = globs;
}

static void check_options(lua_State *L, int index, cf_write_options *options)
{
    if (lua_isnoneornil(L, index)) return;
    luaL_checktype(L, index, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int i = 0;
        while (write_options[i] && strcmp(write_options[i], name) != 0) i++;
        if (!write_options[i])
            luaL_error(L, "plan:write has no option '%s'%s", name,
                       cf_push_guess(L, name, write_options));
    }
    if (lua_getfield(L, index, "as") != LUA_TNIL) options->as = luaL_checkstring(L, -1);
    if (lua_getfield(L, index, "max_shard_size") != LUA_TNIL)
        options->max_shard_size = check_size(L, lua_gettop(L));
    if (lua_getfield(L, index, "meta") != LUA_TNIL) check_meta(L, lua_gettop(L), options);
    if (lua_getfield(L, index, "dtype") != LUA_TNIL) {
        options->keep = strcmp(luaL_checkstring(L, -1), "keep") == 0;
        if (!options->keep) options->dtype = cf_check_dtype(L, lua_gettop(L));
    }
    if (lua_getfield(L, index, "keep_dtype") != LUA_TNIL) check_globs(L, lua_gettop(L), options);
}

/* The entries with the path that the function `nest` of the options gives to each name; pushes what
 * holds them. */
static const cf_entry *nest_entries(lua_State *L, int options, const cf_entry *from, size_t count)
{
    cf_entry *entries = lua_newuserdatauv(L, (count + 1) * sizeof *entries, 0);
    lua_getfield(L, options, "nest");
    luaL_checktype(L, -1, LUA_TFUNCTION);
    const int nest = lua_gettop(L);
    for (size_t i = 0; i < count; i++) {
        entries[i] = from[i];
        lua_pushvalue(L, nest);
        lua_pushstring(L, from[i].name);
        lua_call(L, 1, 1);
        if (!lua_istable(L, -1))
            luaL_error(L, "plan:write: nest('%s') is a %s, not a list of keys", from[i].name,
                       luaL_typename(L, -1));
        entries[i].path = cf_check_path(L, lua_gettop(L));
        lua_settop(L, nest);
    }
    return entries;
}

/* Who keeps what of a dcp write: the policy is asked at once, in this state. */
static void ask_policy(lua_State *L, int index, cf_plan *plan)
{
    size_t count;
    int32_t ranks;
    cf_held *held = cf_plan_held(plan, &count, &ranks);
    if (lua_isnoneornil(L, index) || lua_getfield(L, index, "policy") == LUA_TNIL) return;
    if (!cf_is_policy(L, -1))
        luaL_error(L, "plan:write: policy is a %s, not what an option of type policy gives",
                   cf_class_of(L, lua_gettop(L)));
    if (count) cf_policy_walk(L, -1, held, count, ranks, NULL);
}

/* ranks and policy are of dcp alone. */
static void check_dcp_options(lua_State *L, int index, const char *path, cf_write_options *options)
{
    static const char *const own[] = {"ranks", "policy"};
    if (lua_isnoneornil(L, index)) return;
    const bool dcp = options->as && strcmp(options->as, "dcp") == 0;
    for (int i = 0; i < 2; i++)
        if (lua_getfield(L, index, own[i]) != LUA_TNIL && !dcp)
            cf_raise_code(L, CF_L_PLAN, "%s: the option '%s' of plan:write is of as = \"dcp\"",
                          path, own[i]);
    if (lua_getfield(L, index, "ranks") == LUA_TNIL) return;
    int whole;
    const lua_Integer ranks = lua_tointegerx(L, -1, &whole);
    if (!whole || ranks < 1 || ranks > 1 << 16)
        cf_raise_code(L, lua_isnumber(L, -1) ? CF_E_USAGE : CF_L_PLAN,
                      "ranks is a number from 1 to %d, not %s", 1 << 16,
                      luaL_tolstring(L, -1, NULL));
    options->ranks = (int32_t)ranks;
}

static int plan_write(lua_State *L)
{
    cf_plan *plan = check_plan(L);
    const char *path = luaL_checkstring(L, 2);
    lua_settop(L, 4);
    size_t count;
    cf_write_options options = {0};
    check_options(L, 4, &options);
    const bool values = cf_plan_holds_values(path, options.as);
    const cf_entry *entries = any_entries(L, 3, values, &count);
    if (!lua_isnoneornil(L, 4)) {
        options.nest = lua_getfield(L, 4, "nest") != LUA_TNIL;
        if (options.nest) entries = nest_entries(L, 4, entries, count);
    }
    check_dcp_options(L, 4, path, &options);
    cf_err err;
    const int64_t paused = cf_host_pause();
    const bool ok = cf_plan_write(plan, path, entries, count, &options, &err);
    cf_host_resume_after(cf_host_of(L), paused, count);
    if (!ok) return cf_raise(L, &err);
    if (count) ask_policy(L, 4, plan); /* nothing is not written */
    return 0;
}

/* ---- the rest */

static int plan_drop(lua_State *L)
{
    cf_plan *plan = check_plan(L);
    const cf_selection *sel = cf_test_selection(L, 2);
    cf_row *row = cf_test_row(L, 2);
    luaL_argexpected(L, sel || row, 2, "selection or row");
    luaL_checkstring(L, 3); /* why: for whoever reads the recipe */
    if (row) cf_plan_drop(plan, row);
    for (size_t i = 0; sel && i < sel->count; i++) cf_plan_drop(plan, sel->entries[i].row);
    return 0;
}

static int plan_copy(lua_State *L)
{
    cf_plan *plan = check_plan(L);
    const int last = lua_gettop(L);
    cf_err err;
    for (int i = 2; i <= last; i++)
        if (!cf_plan_copy(plan, luaL_checkstring(L, i), &err)) return cf_raise(L, &err);
    return 0;
}

static int plan_note(lua_State *L)
{
    cf_plan *plan = check_plan(L);
    cf_text_printf(&plan->notes, "%s\n", luaL_checkstring(L, 2));
    return 0;
}

/* replace(node, path, value) */
static int plan_replace(lua_State *L)
{
    check_plan(L);
    const cf_node *node = cf_test_node(L, 2);
    luaL_argexpected(L, node != NULL, 2, "node");
    cf_arena *arena = cf_view_arena(L);
    const cf_path *path = cf_check_path(L, 3);
    const cf_node *value = cf_node_copy(arena, cf_to_node(L, 4)); /* texts are Lua's */
    cf_err err;
    if (!value && !cf_arena_ok(arena, &err)) return cf_raise(L, &err);
    node = cf_path_replace(arena, node, path, value, &err);
    if (!node) return cf_raise(L, &err);
    cf_push_node(L, node, false);
    return 1;
}

static int plan_refuse(lua_State *L)
{
    check_plan(L);
    return cf_refuse(L, CF_L_PLAN, NULL);
}

/* A list of views, in memory of this call. */
static const cf_tensor **check_views(lua_State *L, int index, size_t *count)
{
    luaL_checktype(L, index, LUA_TTABLE);
    *count = (size_t)luaL_len(L, index);
    cf_arena *arena = cf_view_arena(L);
    const cf_tensor **list = CF_NEWS(arena, const cf_tensor *, *count + 1);
    cf_err err;
    if (!list) {
        cf_arena_ok(arena, &err);
        cf_raise(L, &err);
    }
    for (size_t i = 0; i < *count; i++) {
        lua_geti(L, index, (lua_Integer)i + 1);
        list[i] = cf_test_tensor(L, lua_gettop(L));
        if (!list[i])
            luaL_error(L, "element %d of the list is a %s, not a view", (int)i + 1,
                       cf_class_of(L, lua_gettop(L)));
        lua_pop(L, 1);
    }
    return list;
}

static int plan_concat(lua_State *L)
{
    check_plan(L);
    size_t count;
    const cf_tensor **list = check_views(L, 2, &count);
    const lua_Integer dim = luaL_optinteger(L, 3, 0);
    cf_err err;
    return cf_push_tensor(L,
                          cf_tensor_concat(cf_view_arena(L), list, count,
                                           dim < 0 || dim > CF_MOST_DIMS ? -1 : (int)dim, &err),
                          &err);
}

static int plan_sum(lua_State *L)
{
    check_plan(L);
    size_t count;
    const cf_tensor **list = check_views(L, 2, &count);
    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_argcheck(L, (size_t)luaL_len(L, 3) == count, 3, "a weight for each view");
    double *weights = CF_NEWS(cf_view_arena(L), double, count + 1);
    cf_err err;
    for (size_t i = 0; weights && i < count; i++) {
        lua_geti(L, 3, (lua_Integer)i + 1);
        weights[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    if (!weights) {
        cf_arena_ok(cf_view_arena(L), &err);
        return cf_raise(L, &err);
    }
    return cf_push_tensor(L, cf_tensor_sum(cf_view_arena(L), list, weights, count, &err), &err);
}

/* Zeros: one row of them, or a part of one, lies in memory; the strides of the rest are 0. */
static int plan_zeros(lua_State *L)
{
    enum { MOST_ROW = 1 << 16 };
    const cf_plan *plan = check_plan(L);
    const cf_dtype dtype = cf_check_dtype(L, 2);
    int64_t shape[CF_MOST_DIMS], stride[CF_MOST_DIMS] = {0};
    const int ndim = cf_check_shape(L, 3, shape);
    int64_t row = cf_dtype_size(dtype);
    if (ndim && shape[ndim - 1] > 0 && shape[ndim - 1] <= MOST_ROW / row) {
        stride[ndim - 1] = 1;
        row *= shape[ndim - 1];
    }
    cf_arena *arena = cf_view_arena(L);
    cf_storage *storage = CF_NEW(arena, cf_storage);
    const uint8_t *bytes = cf_calloc(arena, 1, (size_t)row);
    cf_err err;
    if (!storage || !bytes) {
        cf_arena_ok(&plan->arena, &err);
        return cf_raise(L, &err);
    }
    *storage =
        (cf_storage){.place = CF_IN_MEMORY, .size = (uint64_t)row, .bytes = bytes, .name = ""};
    const cf_view *view = cf_view_new(arena, storage, dtype, 0, ndim, shape, stride, &err);
    if (!view) return cf_raise(L, &err);
    cf_push_view(L, view);
    return 1;
}

void cf_bind_plan(lua_State *L)
{
    static const luaL_Reg methods[] = {{"write", plan_write},     {"drop", plan_drop},
                                       {"copy", plan_copy},       {"refuse", plan_refuse},
                                       {"concat", plan_concat},   {"sum", plan_sum},
                                       {"note", plan_note},       {"zeros", plan_zeros},
                                       {"replace", plan_replace}, {NULL, NULL}};
    static const cf_handle handle = {PLAN, methods, NULL, NULL, NULL};
    cf_handle_register(L, &handle);
}

void cf_push_plan(lua_State *L)
{
    cf_new(L, 0, 0, PLAN);
}
