/* view: dtype, shape and where the elements are. Everything that Lua does with one makes another
 * and reads nothing (flow/tensor.h). A handle lives as long as the call it was made in: what it
 * points to is of a tree, of the catalogue, or of the call's own arena.
 */
#include <string.h>

#include "bind.h"
#include "num.h"

static const char VIEW[] = "view";

/* Most views come out of a file and are filed as they are: they become tensors when they must. */
typedef struct view_handle {
    uint32_t call;
    const cf_view *leaf;     /* NULL: tensor */
    const cf_tensor *tensor; /* NULL: leaf */
} view_handle;

static view_handle *new_handle(lua_State *L)
{
    view_handle *handle = cf_new(L, sizeof *handle, 0, VIEW);
    handle->call = cf_host_of(L)->call;
    return handle;
}

void cf_push_view(lua_State *L, const cf_view *view)
{
    new_handle(L)->leaf = view;
}

/* The result of an operation; NULL raises its error. */
int cf_push_tensor(lua_State *L, const cf_tensor *tensor, const cf_err *err)
{
    if (!tensor) return cf_raise(L, err);
    new_handle(L)->tensor = tensor;
    return 1;
}

static view_handle *live(lua_State *L, view_handle *handle)
{
    if (handle->call != cf_host_of(L)->call)
        luaL_error(L, "a view outlived the call it was made in");
    return handle;
}

bool cf_is_view(lua_State *L, int index)
{
    return luaL_testudata(L, index, VIEW) != NULL;
}

static view_handle *check_handle(lua_State *L, int index)
{
    return live(L, luaL_checkudata(L, index, VIEW));
}

const cf_tensor *cf_check_tensor(lua_State *L, int index)
{
    view_handle *handle = check_handle(L, index);
    if (handle->tensor) return handle->tensor;
    cf_err err;
    handle->tensor = cf_tensor_of_view(cf_view_arena(L), handle->leaf, NULL, &err);
    if (!handle->tensor) cf_raise(L, &err);
    return handle->tensor;
}

const cf_tensor *cf_test_tensor(lua_State *L, int index)
{
    return cf_is_view(L, index) ? cf_check_tensor(L, index) : NULL;
}

const cf_view *cf_leaf_view(lua_State *L, int index)
{
    const view_handle *handle = check_handle(L, index);
    if (handle->leaf) return handle->leaf;
    const cf_tensor *t = handle->tensor;
    const cf_tile *tile = t->terms[0].count == 1 && !t->sum ? t->terms[0].tiles : NULL;
    return tile && tile->view->numel == t->numel ? tile->view : NULL;
}

void cf_push_sizes(lua_State *L, int count, const int64_t *sizes)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, sizes[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static bool field(lua_State *L, const char *key)
{
    const view_handle *handle = check_handle(L, 1);
    const cf_view *v = handle->leaf;
    const cf_tensor *t = handle->tensor;
    if (strcmp(key, "dtype") == 0)
        lua_pushstring(L, cf_dtype_of(v ? v->dtype : t->dtype)->name);
    else if (strcmp(key, "shape") == 0)
        cf_push_sizes(L, v ? v->ndim : t->ndim, v ? v->shape : t->shape);
    else if (strcmp(key, "numel") == 0)
        lua_pushinteger(L, v ? v->numel : t->numel);
    else
        return false;
    return true;
}

/* ---- operations */

static int check_dim(lua_State *L, int index)
{
    const lua_Integer dim = luaL_optinteger(L, index, 0);
    return dim < 0 || dim >= CF_MOST_DIMS ? CF_MOST_DIMS : (int)dim;
}

static int view_slice(lua_State *L)
{
    const cf_tensor *t = cf_check_tensor(L, 1);
    const lua_Integer from = luaL_checkinteger(L, 2), to = luaL_checkinteger(L, 3);
    const int dim = check_dim(L, 4);
    cf_err err;
    return cf_push_tensor(L, cf_tensor_slice(cf_view_arena(L), t, from, to, dim, &err), &err);
}

static int view_split(lua_State *L)
{
    const cf_tensor *t = cf_check_tensor(L, 1);
    const int dim = check_dim(L, 3);
    luaL_argexpected(L, lua_istable(L, 2) || cf_test_node(L, 2), 2, "list");
    const lua_Integer parts = luaL_len(L, 2);
    luaL_argcheck(L, parts >= 0 && parts < 100000, 2, "too many parts");
    luaL_checkstack(L, (int)parts + 4, "too many parts");
    int64_t at = 0;
    for (lua_Integer i = 1; i <= parts; i++) {
        lua_geti(L, 2, i);
        const int64_t size = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
        int64_t end;
        cf_err err;
        if (!cf_add(at, size, &end)) end = -1;
        cf_push_tensor(L, cf_tensor_slice(cf_view_arena(L), t, at, end, dim, &err), &err);
        at = end;
    }
    const int64_t all = dim < t->ndim ? t->shape[dim] : 0;
    if (at != all)
        return cf_raise_code(L, CF_E_LAYOUT,
                             "parts of %lld elements together, the dimension has %lld",
                             (long long)at, (long long)all);
    return (int)parts;
}

static int view_reshape(lua_State *L)
{
    const cf_tensor *t = cf_check_tensor(L, 1);
    int64_t shape[CF_MOST_DIMS];
    const int ndim = cf_check_shape(L, 2, shape);
    cf_err err;
    return cf_push_tensor(L, cf_tensor_reshape(cf_view_arena(L), t, shape, ndim, &err), &err);
}

static int view_permute(lua_State *L)
{
    const cf_tensor *t = cf_check_tensor(L, 1);
    int64_t dims[CF_MOST_DIMS];
    const int count = cf_check_shape(L, 2, dims);
    cf_err err;
    return cf_push_tensor(L, cf_tensor_permute(cf_view_arena(L), t, dims, count, &err), &err);
}

cf_dtype cf_check_dtype(lua_State *L, int index)
{
    size_t length;
    const char *name = luaL_checklstring(L, index, &length);
    const cf_dtype dtype = cf_dtype_named(name, length);
    if (dtype != CF_NO_DTYPE) return dtype;
    const char *names[CF_DTYPES];
    for (int d = 1; d < CF_DTYPES; d++) names[d - 1] = cf_dtype_of(d)->name;
    names[CF_DTYPES - 1] = NULL;
    luaL_error(L, "there is no dtype '%s'%s", name, cf_push_guess(L, name, names));
    return CF_NO_DTYPE;
}

static int view_cast(lua_State *L)
{
    const cf_tensor *t = cf_check_tensor(L, 1);
    if (strcmp(luaL_checkstring(L, 2), "keep") == 0) {
        lua_settop(L, 1);
        return 1;
    }
    const cf_dtype dtype = cf_check_dtype(L, 2);
    cf_err err;
    if (dtype == t->dtype) {
        lua_settop(L, 1);
        return 1;
    }
    return cf_push_tensor(L, cf_tensor_cast(cf_view_arena(L), t, dtype, &err), &err);
}

static int view_show(lua_State *L)
{
    const view_handle *handle = luaL_checkudata(L, 1, VIEW);
    char shown[256] = "a view of a call that is over";
    if (handle->call == cf_host_of(L)->call) {
        const cf_tensor *t = cf_check_tensor(L, 1);
        cf_view_text(t->dtype, t->ndim, t->shape, shown, sizeof shown);
    }
    lua_pushstring(L, shown);
    return 1;
}

void cf_bind_view(lua_State *L)
{
    static const luaL_Reg methods[] = {{"slice", view_slice},     {"split", view_split},
                                       {"reshape", view_reshape}, {"permute", view_permute},
                                       {"cast", view_cast},       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__tostring", view_show}, {NULL, NULL}};
    static const char *const fields[] = {"dtype", "shape", "numel", NULL};
    static const cf_handle handle = {VIEW, methods, fields, field, meta};
    cf_handle_register(L, &handle);
}
