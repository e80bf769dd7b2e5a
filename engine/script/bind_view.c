/* view: dtype, shape and where the elements are. Everything that Lua does with one makes another
 * and reads nothing. The userdata holds the cf_view and its sizes and strides; storages outlive
 * every state.
 */
#include <string.h>

#include "bind.h"
#include "num.h"

static const char VIEW[] = "view";

typedef struct view_handle {
    cf_view view;
    int64_t dims[]; /* ndim sizes, then ndim strides */
} view_handle;

/* A view of `ndim` dimensions that is otherwise like another; its dims are for the caller to set.
 */
static view_handle *new_view(lua_State *L, const cf_view *like, int ndim)
{
    view_handle *handle = cf_new(L, sizeof *handle + 2 * (size_t)ndim * sizeof(int64_t), 0, VIEW);
    handle->view = *like;
    handle->view.ndim = (uint8_t)ndim;
    handle->view.shape = handle->dims;
    handle->view.stride = handle->dims + ndim;
    return handle;
}

static view_handle *copy_view(lua_State *L, const cf_view *view)
{
    view_handle *handle = new_view(L, view, view->ndim);
    for (int d = 0; d < view->ndim; d++) {
        handle->dims[d] = view->shape[d];
        handle->dims[view->ndim + d] = view->stride[d];
    }
    return handle;
}

void cf_push_view(lua_State *L, const cf_view *view)
{
    copy_view(L, view);
}

const cf_view *cf_test_view(lua_State *L, int index)
{
    const view_handle *handle = luaL_testudata(L, index, VIEW);
    return handle ? &handle->view : NULL;
}

const cf_view *cf_check_view(lua_State *L, int index)
{
    return &((const view_handle *)luaL_checkudata(L, index, VIEW))->view;
}

void cf_push_sizes(lua_State *L, int count, const int64_t *sizes)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, sizes[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static const char *text(const cf_view *view, char out[256])
{
    return cf_view_text(view->dtype, view->ndim, view->shape, out, 256);
}

static bool field(lua_State *L, const char *key)
{
    const cf_view *view = cf_check_view(L, 1);
    if (strcmp(key, "dtype") == 0)
        lua_pushstring(L, cf_dtype_of(view->dtype)->name);
    else if (strcmp(key, "shape") == 0)
        cf_push_sizes(L, view->ndim, view->shape);
    else if (strcmp(key, "numel") == 0)
        lua_pushinteger(L, view->numel);
    else
        return false;
    return true;
}

/* ---- slice, split */

/* A dimension, from 0; the first one if it is not given. */
static int check_dim(lua_State *L, int index, const cf_view *view)
{
    const lua_Integer dim = luaL_optinteger(L, index, 0);
    char shown[256];
    if (dim < 0 || dim >= view->ndim)
        cf_raise_code(L, CF_E_BOUNDS, "dimension %lld of a view %s", (long long)dim,
                      text(view, shown));
    return (int)dim;
}

static void push_slice(lua_State *L, const cf_view *view, int64_t from, int64_t to, int dim)
{
    char shown[256];
    if (from < 0 || from > to || to > view->shape[dim])
        cf_raise_code(L, CF_E_BOUNDS, "elements %lld to %lld of dimension %d of a view %s",
                      (long long)from, (long long)to, dim, text(view, shown));
    view_handle *part = copy_view(L, view);
    part->dims[dim] = to - from;
    /* fits: the shape is below that of a view that was checked */
    cf_numel(part->dims, view->ndim, &part->view.numel);
    if (part->view.numel > 0)
        part->view.offset += (uint64_t)(from * view->stride[dim] * cf_dtype_size(view->dtype));
}

static int view_slice(lua_State *L)
{
    const cf_view *view = cf_check_view(L, 1);
    const lua_Integer from = luaL_checkinteger(L, 2), to = luaL_checkinteger(L, 3);
    push_slice(L, view, from, to, check_dim(L, 4, view));
    return 1;
}

static int view_split(lua_State *L)
{
    const cf_view *view = cf_check_view(L, 1);
    const int dim = check_dim(L, 3, view);
    luaL_argexpected(L, lua_istable(L, 2) || cf_test_node(L, 2), 2, "list");
    const int parts = (int)luaL_len(L, 2);
    luaL_checkstack(L, parts < 0 ? 0 : parts, "too many parts");
    int64_t at = 0;
    for (int i = 1; i <= parts; i++) {
        lua_geti(L, 2, i);
        const int64_t size = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
        int64_t end;
        if (!cf_add(at, size, &end)) end = -1;
        push_slice(L, view, at, end, dim);
        at = end;
    }
    if (at != view->shape[dim])
        return cf_raise_code(L, CF_E_LAYOUT,
                             "parts of %lld elements together, the dimension has %lld",
                             (long long)at, (long long)view->shape[dim]);
    return parts;
}

/* ---- reshape, permute */

/* Strides for another shape of the same elements, if they lie so that there are any. numpy's rule:
 * old dimensions that are row-major among themselves may be joined, and cut anew. */
static bool restride(const cf_view *view, int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t size[CF_MOST_DIMS], step[CF_MOST_DIMS];
    int old = 0;
    for (int d = 0; d < view->ndim; d++) {
        if (view->shape[d] == 1) continue;
        size[old] = view->shape[d];
        step[old++] = view->stride[d];
    }
    int n = 0, o = 0;
    while (n < ndim && o < old) {
        int n_end = n + 1, o_end = o + 1;
        int64_t new_run = shape[n], old_run = size[o];
        while (new_run != old_run) {
            if (new_run < old_run)
                new_run *= shape[n_end++];
            else
                old_run *= size[o_end++];
        }
        for (int d = o; d < o_end - 1; d++)
            if (step[d] != size[d + 1] * step[d + 1]) return false;
        stride[n_end - 1] = step[o_end - 1];
        for (int d = n_end - 1; d > n; d--) stride[d - 1] = stride[d] * shape[d];
        n = n_end;
        o = o_end;
    }
    for (; n < ndim; n++) stride[n] = 1; /* dimensions of 1 */
    return true;
}

static void dense_strides(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        if (shape[d] > 0) step *= shape[d];
    }
}

/* Puts what is left where the shape says -1. */
static void fill_shape(lua_State *L, const cf_view *view, int ndim, int64_t *shape)
{
    int open = -1;
    int64_t numel = 1;
    char shown[256];
    for (int d = 0; d < ndim; d++)
        if (shape[d] == -1 && open < 0) {
            open = d;
            shape[d] = 1;
        }
    bool fits = cf_numel(shape, ndim, &numel);
    if (fits && open >= 0) {
        fits = numel > 0 && view->numel % numel == 0;
        if (fits) shape[open] = view->numel / numel;
    } else if (fits) {
        fits = numel == view->numel;
    }
    if (!fits)
        cf_raise_code(L, CF_E_LAYOUT, "a view %s cannot have that shape: it has %lld elements",
                      text(view, shown), (long long)view->numel);
}

static int view_reshape(lua_State *L)
{
    const cf_view *view = cf_check_view(L, 1);
    int64_t shape[CF_MOST_DIMS];
    char shown[256];
    const int ndim = cf_check_shape(L, 2, shape);
    fill_shape(L, view, ndim, shape);
    view_handle *made = new_view(L, view, ndim);
    for (int d = 0; d < ndim; d++) made->dims[d] = shape[d];
    if (view->numel == 0)
        dense_strides(ndim, shape, made->dims + ndim);
    else if (!restride(view, ndim, shape, made->dims + ndim))
        return cf_raise_code(L, CF_L_PLAN,
                             "reshape of a view %s whose elements do not lie in that order is not "
                             "in this version",
                             text(view, shown));
    return 1;
}

static int view_permute(lua_State *L)
{
    const cf_view *view = cf_check_view(L, 1);
    int64_t dims[CF_MOST_DIMS];
    uint64_t seen = 0;
    const int count = cf_check_shape(L, 2, dims);
    luaL_argcheck(L, count == view->ndim, 2, "every dimension once, from 0");
    view_handle *made = new_view(L, view, count);
    for (int d = 0; d < count; d++) {
        luaL_argcheck(L, dims[d] >= 0 && dims[d] < count && !(seen >> dims[d] & 1), 2,
                      "every dimension once, from 0");
        seen |= (uint64_t)1 << dims[d];
        made->dims[d] = view->shape[dims[d]];
        made->dims[count + d] = view->stride[dims[d]];
    }
    return 1;
}

/* ---- cast */

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
    const cf_view *view = cf_check_view(L, 1);
    const bool keep = strcmp(luaL_checkstring(L, 2), "keep") == 0;
    if (!keep && cf_check_dtype(L, 2) != view->dtype)
        return cf_raise_code(L, CF_L_PLAN, "cast from %s to %s is not in this version",
                             cf_dtype_of(view->dtype)->name, lua_tostring(L, 2));
    lua_settop(L, 1);
    return 1;
}

static int view_show(lua_State *L)
{
    char shown[256];
    lua_pushstring(L, text(cf_check_view(L, 1), shown));
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
