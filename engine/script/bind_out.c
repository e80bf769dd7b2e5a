/* out: what `read` fills, rows of the catalogue. Everything is copied into the part of the file
 * that is being read, at once.
 */
#include <string.h>

#include "bind.h"

static const char OUT[] = "out";

/* The part that is being filled; one row more raises the script's limits. */
static cf_part *check_out(lua_State *L)
{
    luaL_checkudata(L, 1, OUT);
    cf_host *host = cf_host_of(L);
    if (!host->part) luaL_error(L, "out is of use in `read` alone");
    host->rows++;
    return host->part;
}

static int done(lua_State *L, bool ok, const cf_err *err)
{
    return ok ? 0 : cf_raise(L, err);
}

static int out_tensor(lua_State *L)
{
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    cf_err err;
    return done(L, cf_part_tensor(part, key, length, cf_check_view(L, 3), &err), &err);
}

static int out_piece(lua_State *L)
{
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    int64_t shape[CF_MOST_DIMS], at[CF_MOST_DIMS];
    const bool declared = lua_isnil(L, 3);
    const int ndim = declared ? 0 : cf_check_shape(L, 3, shape);
    const int n_at = cf_check_shape(L, 4, at);
    cf_err err;
    return done(L,
                cf_part_piece(part, key, length, ndim, declared ? NULL : shape, n_at, at,
                              cf_check_view(L, 5), &err),
                &err);
}

static int out_range(lua_State *L)
{
    check_out(L);
    return cf_raise_code(L, CF_L_PLAN,
                         "%s: out:range (a stretch of a flat tensor) is not in this version",
                         luaL_checkstring(L, 2));
}

static int out_value(lua_State *L)
{
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    if (cf_test_view(L, 3)) return luaL_error(L, "%s: a tensor is no value: use out:tensor", key);
    cf_err err;
    return done(L, cf_part_value(part, key, length, cf_to_node(L, 3), &err), &err);
}

static int out_declare(lua_State *L)
{
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    const cf_dtype dtype = cf_check_dtype(L, 3);
    int64_t shape[CF_MOST_DIMS];
    const int ndim = cf_check_shape(L, 4, shape);
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
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    const char *role = check_role(L, 3), *name = luaL_checkstring(L, 4);
    cf_err err;
    return done(L, cf_part_name(part, key, length, role, name, &err), &err);
}

static int out_alias(lua_State *L)
{
    cf_part *part = check_out(L);
    size_t length;
    const char *key = luaL_checklstring(L, 2, &length);
    cf_err err;
    return done(L, cf_part_alias(part, key, length, luaL_checkstring(L, 3), &err), &err);
}

static int out_same(lua_State *L)
{
    cf_part *part = check_out(L);
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
    cf_part *part = check_out(L);
    const int64_t size = check_number(L, 2, "number of ranks"), rank = check_number(L, 3, "rank");
    if (size == 0) return cf_raise_code(L, CF_E_NUMBER, "the number of ranks is 0");
    cf_err err;
    return done(L, cf_part_world(part, size, (int32_t)rank, &err), &err);
}

void cf_bind_out(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"tensor", out_tensor},   {"piece", out_piece}, {"range", out_range}, {"value", out_value},
        {"declare", out_declare}, {"name", out_name},   {"alias", out_alias}, {"same", out_same},
        {"world", out_world},     {NULL, NULL}};
    static const cf_handle handle = {OUT, methods, NULL, NULL, NULL};
    cf_handle_register(L, &handle);
}

void cf_push_out(lua_State *L)
{
    cf_new(L, 0, 0, OUT);
}
