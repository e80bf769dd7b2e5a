#include "view.h"

#include <stdio.h>
#include <string.h>

#include "num.h"

static bool check(const cf_storage *storage, cf_dtype dtype, uint64_t offset, int ndim,
                  const int64_t *shape, const int64_t *stride, int64_t *numel, cf_err *err)
{
    const int64_t size = cf_dtype_size(dtype);
    int64_t n, bytes;
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0 || (stride && stride[d] < 0))
            return cf_fail(err, CF_E_NUMBER, "a negative size or stride");
    if (!cf_numel(shape, ndim, &n) || !cf_mul(n, size, &bytes))
        return cf_fail(err, CF_E_OVERFLOW, "the sizes of a tensor multiply beyond 63 bits");
    *numel = n;
    if (n == 0) return true;
    int64_t last = 0; /* the last element, counted from the first */
    if (!stride) {
        last = n - 1;
    } else {
        for (int d = 0; d < ndim; d++) {
            int64_t reach;
            if (!cf_mul(shape[d] - 1, stride[d], &reach) || !cf_add(last, reach, &last))
                return cf_fail(err, CF_E_OVERFLOW, "the strides of a tensor reach beyond 63 bits");
        }
    }
    int64_t end;
    if (offset > INT64_MAX || !cf_mul(last + 1, size, &end) || !cf_add(end, (int64_t)offset, &end))
        return cf_fail(err, CF_E_OVERFLOW, "a tensor ends beyond 63 bits");
    if ((uint64_t)end > storage->size)
        return cf_fail(err, CF_E_BOUNDS, "a view ends at byte %lld of a storage of %llu",
                       (long long)end, (unsigned long long)storage->size);
    return true;
}

const cf_view *cf_view_new(cf_arena *arena, const cf_storage *storage, cf_dtype dtype,
                           uint64_t offset, int ndim, const int64_t *shape, const int64_t *stride,
                           cf_err *err)
{
    if (ndim > CF_MOST_DIMS) {
        cf_fail(err, CF_E_LIMIT, "a tensor of %d dimensions, at most %d", ndim, CF_MOST_DIMS);
        return NULL;
    }
    int64_t numel = 0;
    if (!check(storage, dtype, offset, ndim, shape, stride, &numel, err)) return NULL;
    cf_view *v = CF_NEW(arena, cf_view);
    int64_t *dims = cf_alloc(arena, 2 * (size_t)ndim * sizeof *dims);
    if (!v || !dims) {
        cf_arena_ok(arena, err);
        return NULL;
    }
    int64_t next = 1; /* row-major; the numbers of a view without elements mean nothing */
    for (int d = ndim - 1; d >= 0; d--) {
        dims[d] = shape[d];
        dims[ndim + d] = stride ? stride[d] : next;
        if (numel) next *= shape[d];
    }
    *v = (cf_view){.storage = storage,
                   .offset = offset,
                   .numel = numel,
                   .dtype = dtype,
                   .stored = dtype,
                   .ndim = (uint8_t)ndim,
                   .shape = dims,
                   .stride = dims + ndim};
    return v;
}

const cf_view *cf_view_copy(cf_arena *arena, const cf_view *view)
{
    cf_view *v = cf_memdup(arena, view, sizeof *view);
    int64_t *dims = cf_alloc(arena, 2 * view->ndim * sizeof *dims);
    if (!v || !dims) return NULL;
    if (view->ndim) {
        memcpy(dims, view->shape, view->ndim * sizeof *dims);
        memcpy(dims + view->ndim, view->stride, view->ndim * sizeof *dims);
    }
    v->shape = dims;
    v->stride = dims + view->ndim;
    return v;
}

bool cf_view_dense(const cf_view *view)
{
    int64_t next = 1;
    for (int d = view->ndim - 1; d >= 0 && view->numel; d--) {
        if (view->shape[d] != 1 && view->stride[d] != next) return false;
        next *= view->shape[d];
    }
    return true;
}

const char *cf_view_text(cf_dtype dtype, int ndim, const int64_t *shape, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s[", cf_dtype_of(dtype)->name);
    for (int d = 0; d < ndim && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, d ? ", %lld" : "%lld", (long long)shape[d]);
    if (n < size) snprintf(out + n, size - n, "]");
    return out;
}
