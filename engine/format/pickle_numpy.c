/* numpy's arrays, scalars and dtypes.
 *
 * An array of plain elements becomes a view of a copy of its bytes, which outlives the pickle; a
 * scalar likewise. dtypes of other kinds (objects, texts, dates, records) leave the object as it
 * is. Source: numpy/_core/src/multiarray/methods.c (array_setstate), descriptor.c
 * (arraydescr_setstate), numpy/_core/numeric.py (_frombuffer).
 */
#include <string.h>

#include "num.h"
#include "pickle_vm.h"

/* A numpy.dtype('f4', False, True) with the state (3, '<', None, None, None, -1, -1, 0). */
static cf_dtype plain_dtype(const cf_node *node, bool *big_endian)
{
    *big_endian = false;
    const cf_parts *parts =
        node && node->kind == CF_NODE_OBJECT ? cf_object_parts(node->object) : NULL;
    if (!parts || !parts->args || !cf_vm_is(node->object->class, "numpy", "dtype"))
        return CF_NO_DTYPE;
    const cf_node *name = cf_vm_arg(parts->args, 0, CF_NODE_STRING);
    const cf_node *state = parts->state;
    const cf_node *order =
        state && state->kind == CF_NODE_TUPLE ? cf_vm_arg(state, 1, CF_NODE_STRING) : NULL;
    if (!name || !name->text.length) return CF_NO_DTYPE;
    const char *at = name->text.at;
    size_t length = name->text.length;
    *big_endian = order && order->text.length == 1 && *order->text.at == '>';
    if (memchr("<>|=", *at, 4)) {
        *big_endian = *big_endian || *at == '>';
        at++;
        length--;
    }
    return cf_dtype_of_numpy(at, length);
}

/* The bytes of a bytes object; Python 2 wrote a str. */
static const cf_string *raw(const cf_node *node)
{
    return node && (node->kind == CF_NODE_BYTES || node->kind == CF_NODE_STRING) ? &node->text
                                                                                 : NULL;
}

static const cf_view *make_view(cf_vm *vm, const cf_string *bytes, cf_dtype dtype, bool big_endian,
                                const cf_node *sizes, bool fortran, cf_err *err)
{
    int64_t shape[CF_MOST_DIMS], stride[CF_MOST_DIMS], numel, size;
    int ndim = 0;
    if (sizes && !cf_vm_sizes(sizes, shape, &ndim, err)) return NULL;
    if (!cf_numel(shape, ndim, &numel) || !cf_mul(numel, cf_dtype_size(dtype), &size) ||
        (uint64_t)size != bytes->length) {
        cf_fail(err, CF_E_BOUNDS, "an array whose shape does not fit its %zu bytes", bytes->length);
        return NULL;
    }
    if (!cf_vm_spend(vm, bytes->length, err)) return NULL;
    cf_storage *storage = CF_NEW(vm->p->keep, cf_storage);
    const uint8_t *own = cf_memdup(vm->p->keep, bytes->at, bytes->length);
    if (!storage || !own) {
        cf_vm_memory(vm, err);
        return NULL;
    }
    *storage = (cf_storage){.place = CF_IN_MEMORY,
                            .size = bytes->length,
                            .bytes = own,
                            .name = "",
                            .has_crc = vm->p->checked, /* that of the whole pickle */
                            .big_endian = big_endian};
    for (int64_t d = 0, next = 1; d < ndim; d++) {
        stride[d] = next; /* the first dimension is the innermost */
        if (numel) next *= shape[d];
    }
    return cf_view_new(vm->p->tree, storage, dtype, 0, ndim, shape, fortran ? stride : NULL, err);
}

/* (version, shape, dtype, fortran order, bytes or a list of objects) */
bool cf_vm_array(cf_vm *vm, cf_node *target, cf_node *state, cf_err *err)
{
    if (state->kind != CF_NODE_TUPLE || state->list->count != 5)
        return cf_fail(err, CF_E_TYPE, "an array's state that is no tuple of five");
    cf_node *const *items = state->list->items;
    const cf_string *bytes = raw(items[4]);
    bool big_endian;
    const cf_dtype dtype = plain_dtype(items[2], &big_endian);
    const bool fortran =
        (items[3]->kind == CF_NODE_BOOL || items[3]->kind == CF_NODE_INT) && items[3]->integer;
    if (!bytes || !dtype) return true;
    const cf_view *view = make_view(vm, bytes, dtype, big_endian, items[1], fortran, err);
    if (!view) return false;
    target->kind = CF_NODE_ARRAY;
    target->view = view;
    return true;
}

/* scalar(dtype, bytes) */
static bool make_scalar(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    bool big_endian;
    const cf_dtype dtype = plain_dtype(cf_vm_arg(args, 0, CF_NODE_OBJECT), &big_endian);
    const cf_string *bytes = args->list->count == 2 ? raw(args->list->items[1]) : NULL;
    if (!dtype || !bytes) return cf_vm_object(vm, &name->global, args, out, err);
    const cf_view *view = make_view(vm, bytes, dtype, big_endian, NULL, false, err);
    if (!view) return false;
    *out = cf_node_new(vm->p->tree, CF_NODE_SCALAR);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->view = view;
    return true;
}

/* _frombuffer(bytes, dtype, shape, order) */
static bool from_buffer(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    const cf_node *order = cf_vm_arg(args, 3, CF_NODE_STRING);
    const cf_string *bytes = raw(cf_vm_arg(args, 0, CF_NODE_BYTES));
    bool big_endian;
    const cf_dtype dtype = plain_dtype(cf_vm_arg(args, 1, CF_NODE_OBJECT), &big_endian);
    if (!order || args->list->count != 4) return cf_vm_bad_args(&name->global, err);
    if (!dtype || !bytes) return cf_vm_object(vm, &name->global, args, out, err);
    const bool fortran = order->text.length == 1 && *order->text.at == 'F';
    const cf_view *view =
        make_view(vm, bytes, dtype, big_endian, args->list->items[2], fortran, err);
    if (!view) return false;
    *out = cf_node_new(vm->p->tree, CF_NODE_ARRAY);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->view = view;
    return true;
}

bool cf_vm_numpy(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    if (name->model == CF_CALL_SCALAR) return make_scalar(vm, name, args, out, err);
    if (name->model == CF_CALL_FROMBUFFER) return from_buffer(vm, name, args, out, err);
    const cf_node *class =
        cf_vm_arg(args, 0, CF_NODE_GLOBAL); /* _reconstruct(ndarray, (0,), b'b') */
    return class ? cf_vm_object(vm, class->global, args, out, err)
                 : cf_vm_bad_args(&name->global, err);
}
