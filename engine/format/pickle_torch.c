/* Persistent ids and the rebuild functions of torch: storages and tensors.
 *
 * A tensor's pickle is a call of a rebuild function with a storage, an offset, sizes and strides in
 * elements, each of them checked here or by cf_view_new before the view exists.
 * Source: torch/_utils.py, torch/_tensor.py (_rebuild_from_type_v2), torch/serialization.py
 * (persistent_load, persistent_id of torch before 1.6: ids with a view).
 */
#include <string.h>

#include "num.h"
#include "pickle_vm.h"
#include "text.h"

static bool is_text(const cf_node *node, const char *text)
{
    return node->kind == CF_NODE_STRING && node->text.length == strlen(text) &&
           memcmp(node->text.at, text, node->text.length) == 0;
}

static bool whole_number(const cf_node *node, int64_t *out, cf_code kind, cf_err *err)
{
    if (node->kind == CF_NODE_BIG)
        return cf_fail(err, CF_E_NUMBER, "a size or offset beyond 64 bits");
    if (node->kind != CF_NODE_INT)
        return cf_fail(err, kind, "a size or offset that is %s %s", CF_A(cf_node_class(node)));
    *out = node->integer;
    return true;
}

/* (key, first element, elements) of a storage that is a part of another. */
static bool read_part(const cf_node *part, cf_persid *id, cf_err *err)
{
    if (part->kind == CF_NODE_NONE) return true;
    if (part->kind != CF_NODE_TUPLE || part->list->count != 3 ||
        !cf_vm_arg(part, 0, CF_NODE_STRING))
        return cf_fail(err, CF_E_PERSID, "a persistent id whose view is no (key, offset, size)");
    id->has_view = true;
    id->view_key = part->list->items[0]->text;
    return whole_number(part->list->items[1], &id->view_offset, CF_E_PERSID, err) &&
           whole_number(part->list->items[2], &id->view_numel, CF_E_PERSID, err);
}

static bool read_id(const cf_node *node, cf_persid *id, cf_err *err)
{
    const size_t n = node->list->count;
    const cf_node *class = cf_vm_arg(node, 1, CF_NODE_GLOBAL);
    const cf_node *key = cf_vm_arg(node, 2, CF_NODE_STRING);
    const cf_node *location = cf_vm_arg(node, 3, CF_NODE_STRING);
    int64_t size;
    if ((n != 5 && n != 6) || !class || !key || !location)
        return cf_fail(err, CF_E_PERSID,
                       "a persistent id that is no ('storage', class, key, location, elements)");
    const char *name = class->global->name;
    id->untyped = strcmp(name, "UntypedStorage") == 0;
    id->dtype = id->untyped ? CF_U8 : cf_dtype_of_storage(name, strlen(name));
    if (cf_name_family(class->global->module) != CF_TORCH || !id->dtype)
        return cf_fail(err, CF_E_DTYPE, "%s.%s is no storage of a known dtype",
                       class->global->module, name);
    id->key = key->text;
    id->location = location->text;
    CF_TRY(whole_number(node->list->items[4], &id->numel, CF_E_PERSID, err));
    if (id->numel < 0) return cf_fail(err, CF_E_NUMBER, "a storage of less than no elements");
    if (!cf_mul(id->numel, cf_dtype_size(id->dtype), &size))
        return cf_fail(err, CF_E_OVERFLOW, "a storage of more than 2^63 bytes");
    return n == 5 || read_part(node->list->items[5], id, err);
}

bool cf_vm_storage(cf_vm *vm, const cf_node *id, cf_node **out, cf_err *err)
{
    if (!vm->p->storage) return cf_fail(err, CF_E_PERSID, "a persistent id where none can be");
    if (id->kind != CF_NODE_TUPLE || !id->list->count)
        return cf_fail(err, CF_E_PERSID, "a persistent id that is %s %s", CF_A(cf_node_class(id)));
    /* Old torch kept the source of a pickled module: ('module', class, file, source). */
    if (is_text(id->list->items[0], "module") && id->list->count == 4 &&
        cf_vm_arg(id, 1, CF_NODE_GLOBAL)) {
        *out = id->list->items[1];
        return true;
    }
    if (!is_text(id->list->items[0], "storage"))
        return cf_fail(err, CF_E_PERSID, "a persistent id that is no storage");
    cf_persid own = {0};
    const cf_storage *storage;
    CF_TRY(read_id(id, &own, err));
    CF_TRY(vm->p->storage(vm->p->ctx, &own, &storage, err));
    *out = cf_node_new(vm->p->tree, CF_NODE_STORAGE);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->storage = storage;
    (*out)->element = own.dtype;
    return true;
}

bool cf_vm_sizes(const cf_node *node, int64_t out[CF_MOST_DIMS], int *n, cf_err *err)
{
    if (node->kind != CF_NODE_TUPLE && node->kind != CF_NODE_LIST)
        return cf_fail(err, CF_E_TYPE, "sizes or strides that are %s %s",
                       CF_A(cf_node_class(node)));
    if (node->list->count > CF_MOST_DIMS)
        return cf_fail(err, CF_E_LIMIT, "a tensor of %zu dimensions, at most %d", node->list->count,
                       CF_MOST_DIMS);
    *n = (int)node->list->count;
    for (int d = 0; d < *n; d++)
        CF_TRY(whole_number(node->list->items[d], &out[d], CF_E_TYPE, err));
    return true;
}

static bool flag(const cf_node *flags, const char *name)
{
    const cf_node *value =
        flags && flags->kind == CF_NODE_DICT ? cf_dict_string(flags->dict, name) : NULL;
    return value && value->kind == CF_NODE_BOOL && value->integer;
}

/* A view of `storage` from element `offset` on. */
static bool make_tensor(cf_vm *vm, const cf_storage *storage, cf_dtype dtype, int64_t offset,
                        const cf_node *sizes, const cf_node *strides, const cf_node *flags,
                        cf_node **out, cf_err *err)
{
    int64_t shape[CF_MOST_DIMS], stride[CF_MOST_DIMS], at = 0, numel;
    int ndim, also;
    CF_TRY(cf_vm_sizes(sizes, shape, &ndim, err) && cf_vm_sizes(strides, stride, &also, err));
    if (ndim != also)
        return cf_fail(err, CF_E_TYPE, "a tensor of %d sizes and %d strides", ndim, also);
    const bool none = cf_numel(shape, ndim, &numel) && !numel; /* lies anywhere */
    if (!none && (offset < 0 || !cf_mul(offset, cf_dtype_size(dtype), &at)))
        return cf_fail(err, CF_E_BOUNDS, "a tensor begins at element %lld of its storage",
                       (long long)offset);
    const cf_view *view =
        cf_view_new(vm->p->tree, storage, dtype, (uint64_t)at, ndim, shape, stride, err);
    if (!view) return false;
    const bool conj = flag(flags, "conj"), neg = flag(flags, "neg");
    if (conj && cf_dtype_of(dtype)->class != CF_CLASS_COMPLEX)
        return cf_fail(err, CF_E_TYPE, "a conjugate of real numbers");
    if (conj || neg) {
        cf_view *own = cf_memdup(vm->p->tree, view, sizeof *view);
        if (!own) return cf_vm_memory(vm, err);
        own->conj = conj;
        own->neg = neg;
        view = own;
    }
    *out = cf_node_new(vm->p->tree, CF_NODE_TENSOR);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->view = view;
    return true;
}

/* _rebuild_tensor(storage, offset, sizes, strides)
 * _rebuild_tensor_v2(..., requires_grad, hooks [, flags])
 * _rebuild_tensor_v3(..., requires_grad, hooks, dtype [, flags]) */
static bool rebuild_tensor(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out,
                           cf_err *err)
{
    cf_node *const *items = args->list->items;
    const size_t n = args->list->count;
    const bool v3 = name->model == CF_CALL_TENSOR_V3;
    const cf_node *storage = cf_vm_arg(args, 0, CF_NODE_STORAGE);
    const cf_node *dtype = cf_vm_arg(args, 6, CF_NODE_DTYPE);
    const cf_node *unknown = v3 ? cf_vm_arg(args, 6, CF_NODE_GLOBAL) : NULL;
    if (storage && unknown && strcmp(unknown->global->module, "torch") == 0)
        return cf_fail(err, CF_E_DTYPE, "torch.%s is no dtype of a known layout",
                       unknown->global->name);
    if (!storage || n < 4 || n > (v3 ? 8 : 7) || (v3 && !dtype))
        return cf_vm_bad_args(&name->global, err);
    int64_t offset;
    CF_TRY(whole_number(items[1], &offset, CF_E_TYPE, err));
    const size_t flags = v3 ? 7 : 6;
    return make_tensor(vm, storage->storage, v3 ? dtype->dtype : storage->element, offset, items[2],
                       items[3], n > flags ? items[flags] : NULL, out, err);
}

/* _rebuild_meta_tensor_no_storage(dtype, sizes, strides, requires_grad): a tensor without data. */
static bool rebuild_meta(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    const cf_node *dtype = cf_vm_arg(args, 0, CF_NODE_DTYPE);
    if (!dtype || args->list->count < 3) return cf_vm_bad_args(&name->global, err);
    cf_storage *storage = CF_NEW(vm->p->keep, cf_storage);
    if (!storage) return cf_vm_memory(vm, err);
    *storage = (cf_storage){.place = CF_NOWHERE, .name = "", .size = INT64_MAX};
    CF_TRY(make_tensor(vm, storage, dtype->dtype, 0, args->list->items[1], args->list->items[2],
                       NULL, out, err));
    storage->size = (uint64_t)((*out)->view->numel * cf_dtype_size(dtype->dtype));
    return true;
}

/* _rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, requires_grad), and the same from
 * an array, which for want of bfloat16 has its numbers as float32: of devices whose backend has no
 * storages (privateuseone, XLA). */
static bool rebuild_from_device(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out,
                                cf_err *err)
{
    const cf_node *dtype = cf_vm_arg(args, 1, CF_NODE_DTYPE);
    cf_node *data = args->list->count ? args->list->items[0] : NULL;
    if (!dtype || (data->kind != CF_NODE_TENSOR && data->kind != CF_NODE_ARRAY))
        return cf_vm_bad_args(&name->global, err);
    const bool same = data->view->dtype == dtype->dtype;
    if (!same && !(dtype->dtype == CF_BF16 && data->view->dtype == CF_F32))
        return cf_vm_bad_args(&name->global, err);
    cf_view *own = same ? NULL : cf_memdup(vm->p->tree, data->view, sizeof *own);
    *out = cf_node_new(vm->p->tree, CF_NODE_TENSOR);
    if (!*out || (!same && !own)) return cf_vm_memory(vm, err);
    if (own) own->dtype = dtype->dtype;
    (*out)->view = same ? data->view : own;
    return true;
}

/* Parameter(data, ...): the tensor, or what wraps it. */
static bool rebuild_parameter(const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    *out = cf_vm_arg(args, 0, CF_NODE_TENSOR);
    if (!*out) *out = cf_vm_arg(args, 0, CF_NODE_OBJECT);
    return *out || cf_vm_bad_args(&name->global, err);
}

/* _rebuild_from_type_v2(function, class, args, state): for a wrapper (ShardedTensor, DTensor) an
 * object of the class, else what the function rebuilds; the attributes of a tensor are dropped. */
static bool rebuild_from_type(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out,
                              cf_err *err)
{
    cf_node *function = cf_vm_arg(args, 0, CF_NODE_GLOBAL);
    const cf_node *class = cf_vm_arg(args, 1, CF_NODE_GLOBAL);
    cf_node *inner = cf_vm_arg(args, 2, CF_NODE_TUPLE);
    if (!function || !class || !inner || args->list->count != 4)
        return cf_vm_bad_args(&name->global, err);
    cf_node *state;
    CF_TRY(cf_vm_fold_state(vm, args->list->items[3], &state, err));
    switch (((const cf_name *)function->global)->model) {
    case CF_CALL_WRAPPER:
        CF_TRY(cf_vm_object(vm, class->global, inner, out, err));
        return cf_vm_state(vm, (*out)->object, state, err);
    case CF_CALL_TENSOR:
    case CF_CALL_TENSOR_V3:
    case CF_CALL_META:
    case CF_CALL_FROM_DEVICE:
    case CF_CALL_PARAMETER:
    case CF_CALL_OBJECT: /* never another _rebuild_from_type: no recursion */
        CF_TRY(cf_vm_call(vm, function, inner, out, err));
        return (*out)->kind != CF_NODE_OBJECT || cf_vm_build(vm, *out, state, err);
    default:
        return cf_fail(err, CF_E_CALL_DENIED, "%s.%s rebuilds no tensor", function->global->module,
                       function->global->name);
    }
}

/* _get_layout('torch.strided') is the name itself. */
static bool get_layout(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    static const char PREFIX[] = "torch.";
    const size_t prefix = sizeof PREFIX - 1;
    const cf_node *text = cf_vm_arg(args, 0, CF_NODE_STRING);
    if (!text || text->text.length <= prefix || memchr(text->text.at, '\0', text->text.length) ||
        memcmp(text->text.at, PREFIX, prefix) != 0)
        return cf_vm_bad_args(&name->global, err);
    const char *layout =
        cf_strndup(vm->p->tree, text->text.at + prefix, text->text.length - prefix);
    return layout ? cf_vm_global(vm, "torch", layout, out, err) : cf_vm_memory(vm, err);
}

bool cf_vm_torch(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err)
{
    switch (name->model) {
    case CF_CALL_TENSOR:
    case CF_CALL_TENSOR_V3: return rebuild_tensor(vm, name, args, out, err);
    case CF_CALL_META: return rebuild_meta(vm, name, args, out, err);
    case CF_CALL_FROM_DEVICE: return rebuild_from_device(vm, name, args, out, err);
    case CF_CALL_PARAMETER: return rebuild_parameter(name, args, out, err);
    case CF_CALL_FROM_TYPE: return rebuild_from_type(vm, name, args, out, err);
    case CF_CALL_LAYOUT: return get_layout(vm, name, args, out, err);
    case CF_CALL_WRAPPER:
        return cf_vm_arg(args, 0, CF_NODE_GLOBAL)
                   ? cf_vm_object(vm, args->list->items[0]->global, args, out, err)
                   : cf_vm_bad_args(&name->global, err);
    default: /* CF_CALL_FIRST */
        if (!args->list->count) return cf_vm_bad_args(&name->global, err);
        *out = args->list->items[0];
        return true;
    }
}
