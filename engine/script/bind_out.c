/* out: what `read` fills, rows of the catalogue. Everything is copied into the part of the file
 * that is being read, at once.
 */
#include <string.h>

#include "bind.h"
#include "num.h"

static const char OUT[] = "out";

/* The part that is being filled; one row more raises the script's limits. */
cf_part *cf_check_out(lua_State *L)
{
    luaL_checkudata(L, 1, OUT);
    cf_host *host = cf_host_of(L);
    if (!host->part) luaL_error(L, "out is of use in `read` alone");
    cf_host_count_row(L);
    for (size_t i = 0; i < host->n_pins; i++)
        if (host->pins[i]->file == cf_part_file(host->part))
            cf_part_root(host->part, host->pins[i]->root);
    return host->part;
}

static int done(lua_State *L, bool ok, const cf_err *err)
{
    return ok ? 0 : cf_raise(L, err);
}

/* A view at `at` of a tensor of `shape` (NULL: not said): as many pieces as it is made of. */
static bool put(lua_State *L, int index, cf_part *part, const char *key, size_t length, int ndim,
                const int64_t *shape, int n_at, const int64_t *at, cf_err *err)
{
    const cf_view *leaf = cf_leaf_view(L, index);
    if (leaf) return cf_part_piece(part, key, length, ndim, shape, n_at, at, leaf, err);
    const cf_tensor *t = cf_check_tensor(L, index);
    if (t->sum) return cf_fail(err, CF_L_PLAN, "%s: a sum is no piece of a file", key);
    if (t->ndim != n_at)
        return cf_fail(err, CF_E_TYPE, "%s: a piece of %d dimensions at %d offsets", key, t->ndim,
                       n_at);
    if (!t->numel && shape) return cf_part_declare(part, key, length, t->dtype, ndim, shape, err);
    for (size_t i = 0; i < t->terms[0].count; i++) {
        const cf_tile *tile = &t->terms[0].tiles[i];
        int64_t place[CF_MOST_DIMS];
        for (int d = 0; d < n_at; d++)
            if (!cf_add(at[d], tile->at[d], &place[d]))
                return cf_fail(err, CF_E_OVERFLOW, "%s: a piece beyond 63 bits", key);
        if (!cf_part_piece(part, key, length, ndim, shape, n_at, place, tile->view, err))
            return false;
    }
    return true;
}

static int out_tensor(lua_State *L)
{
    static const int64_t zero[CF_MOST_DIMS];
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    luaL_argexpected(L, cf_is_view(L, 3), 3, "view");
    const cf_view *leaf = cf_leaf_view(L, 3);
    const cf_tensor *t = leaf ? NULL : cf_check_tensor(L, 3);
    const int ndim = leaf ? leaf->ndim : t->ndim;
    cf_err err;
    return done(L,
                put(L, 3, part, key, length, ndim, leaf ? leaf->shape : t->shape, ndim, zero, &err),
                &err);
}

static int out_piece(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    int64_t shape[CF_MOST_DIMS], at[CF_MOST_DIMS];
    const bool declared = lua_isnil(L, 3);
    const int ndim = declared ? 0 : cf_check_shape(L, 3, shape);
    const int n_at = cf_check_shape(L, 4, at);
    luaL_argexpected(L, cf_is_view(L, 5), 5, "view");
    cf_err err;
    return done(L, put(L, 5, part, key, length, ndim, declared ? NULL : shape, n_at, at, &err),
                &err);
}

static int out_range(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    int64_t shape[CF_MOST_DIMS], at[CF_MOST_DIMS], size[CF_MOST_DIMS];
    const int ndim = cf_check_shape(L, 3, shape);
    lua_Integer start = luaL_checkinteger(L, 4);
    luaL_argexpected(L, cf_is_view(L, 5), 5, "view");
    const bool box = !lua_isnoneornil(L, 6);
    if (box) {
        luaL_argcheck(L, cf_check_shape(L, 6, at) == ndim, 6, "as many as the shape has");
        luaL_argcheck(L, cf_check_shape(L, 7, size) == ndim, 7, "as many as the shape has");
    }
    cf_err err = {0};
    const cf_view *leaf = cf_leaf_view(L, 5);
    if (leaf)
        return done(L,
                    cf_part_range(part, key, length, ndim, shape, start, leaf, box ? at : NULL,
                                  box ? size : NULL, &err),
                    &err);
    /* made of several: flattened, each is a range of its own */
    const int64_t line[] = {-1};
    const cf_tensor *t = cf_check_tensor(L, 5);
    if (t->sum) return cf_raise_code(L, CF_L_PLAN, "%s: a sum is no piece of a file", key);
    t = cf_tensor_reshape(cf_view_arena(L), t, line, 1, &err);
    for (size_t i = 0; t && i < t->terms[0].count; i++) {
        const cf_tile *tile = &t->terms[0].tiles[i];
        int64_t from;
        if (!cf_add(start, tile->at[0], &from)) from = -1;
        if (!cf_part_range(part, key, length, ndim, shape, from, tile->view, box ? at : NULL,
                           box ? size : NULL, &err))
            t = NULL;
    }
    return t ? 0 : cf_raise(L, &err);
}

static int out_value(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    if (cf_is_view(L, 3)) return luaL_error(L, "%s: a tensor is no value: use out:tensor", key);
    cf_err err;
    return done(L, cf_part_value(part, key, length, cf_to_node(L, 3), &err), &err);
}

static int out_declare(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    const bool value = lua_isnoneornil(L, 3) && lua_isnoneornil(L, 4);
    const cf_dtype dtype = value ? CF_NO_DTYPE : cf_check_dtype(L, 3);
    int64_t shape[CF_MOST_DIMS];
    const int ndim = value ? 0 : cf_check_shape(L, 4, shape);
    cf_err err;
    return done(L, cf_part_declare(part, key, length, dtype, ndim, shape, &err), &err);
}

static const char *check_role(lua_State *L, int index)
{
    static const char *const roles[] = {"model", "optim", "copy", "rest", NULL};
    return roles[luaL_checkoption(L, index, NULL, roles)];
}

static int out_name(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    const char *role = check_role(L, 3), *name = luaL_checkstring(L, 4);
    cf_err err;
    return done(L, cf_part_name(part, key, length, role, name, &err), &err);
}

static int out_alias(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    cf_err err;
    return done(L, cf_part_alias(part, key, length, luaL_checkstring(L, 3), &err), &err);
}

static int out_path(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    cf_err err;
    return done(L, cf_part_path(part, key, length, cf_check_path(L, 3), &err), &err);
}

static int out_same(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    const char *said = NULL;
    if (!lua_isnoneornil(L, 3)) {
        cf_text *text = cf_scratch(L);
        cf_node_show(text, cf_to_node(L, 3), SIZE_MAX);
        said = text->at;
    }
    cf_err err;
    return done(L, cf_part_same(part, key, length, said, &err), &err);
}

/* A number that files give: what is none is bad data, not a fault of the script. -1: nil. */
static int64_t check_number(lua_State *L, int index, const char *what)
{
    if (lua_isnoneornil(L, index)) return -1;
    int whole;
    const lua_Integer number = lua_tointegerx(L, index, &whole);
    if (!whole || lua_type(L, index) != LUA_TNUMBER)
        cf_raise_code(L, CF_E_TYPE, "the %s is a %s, not a number", what, cf_class_of(L, index));
    if (number < 0 || number > INT32_MAX)
        cf_raise_code(L, CF_E_NUMBER, "the %s is %lld", what, (long long)number);
    return number;
}

static int out_world(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    const int64_t size = check_number(L, 2, "number of ranks"), rank = check_number(L, 3, "rank");
    if (size == 0) return cf_raise_code(L, CF_E_NUMBER, "the number of ranks is 0");
    cf_err err;
    return done(L, cf_part_world(part, size, (int32_t)rank, &err), &err);
}

static int out_rank(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    const int64_t rank = check_number(L, 2, "rank");
    if (rank >= 0) cf_part_rank(part, (int32_t)rank);
    return 0;
}

static int out_note(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    size_t length;
    const char *text = luaL_checklstring(L, 2, &length);
    cf_err err;
    return done(L, cf_part_note(part, text, length, &err), &err);
}

static int out_writers(lua_State *L)
{
    cf_part *part = cf_check_out(L);
    const int64_t count = check_number(L, 2, "number of writers");
    if (count < 1) return cf_raise_code(L, CF_E_NUMBER, "the number of writers is not known or 0");
    cf_err err;
    return done(L, cf_part_writers(part, count, &err), &err);
}

void cf_bind_out(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"tensor", out_tensor},   {"piece", out_piece},     {"range", out_range},
        {"value", out_value},     {"declare", out_declare}, {"name", out_name},
        {"alias", out_alias},     {"same", out_same},       {"world", out_world},
        {"rank", out_rank},       {"items", cf_out_items},  {"note", out_note},
        {"writers", out_writers}, {"path", out_path},       {NULL, NULL}};
    static const cf_handle handle = {OUT, methods, NULL, NULL, NULL};
    cf_handle_register(L, &handle);
}

void cf_push_out(lua_State *L)
{
    cf_new(L, 0, 0, OUT);
}
