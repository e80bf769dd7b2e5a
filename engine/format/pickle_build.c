/* What REDUCE, NEWOBJ and BUILD fold into: Python's own types, and objects of all other classes.
 *
 * Nothing is called. A modelled name with the arguments that real writers give it becomes the value
 * it stands for; every other class becomes an object that keeps arguments and state as they are.
 * Source: copyreg, and __reduce__ of the types in CPython's Lib and Objects.
 */
#include <stdio.h>
#include <string.h>

#include "pickle_vm.h"

#include "text.h"

enum { MOST_PATH = 1 << 16 };

cf_node *cf_vm_arg(const cf_node *args, size_t i, cf_kind kind)
{
    cf_node *arg = i < args->list->count ? args->list->items[i] : NULL;
    return arg && arg->kind == kind ? arg : NULL;
}

bool cf_vm_is(const cf_global *global, const char *module, const char *name)
{
    return strcmp(global->module, module) == 0 && strcmp(global->name, name) == 0;
}

static bool is_text(const cf_node *node, const char *text)
{
    return node && node->text.length == strlen(text) &&
           memcmp(node->text.at, text, node->text.length) == 0;
}

bool cf_vm_bad_args(const cf_global *callee, cf_err *err)
{
    return cf_fail(err, CF_E_TYPE, "%s.%s with arguments that it does not take", callee->module,
                   callee->name);
}

/* Whether a forbidden name is let through (--inert). The first one is kept for a warning. */
static bool let_through(cf_vm *vm, cf_code code, const char *module, const char *name, cf_err *err)
{
    cf_pickle *p = vm->p;
    if (p->inert) {
        if (!p->forbidden[0]) snprintf(p->forbidden, sizeof p->forbidden, "%s.%s", module, name);
        return true;
    }
    if (code == CF_E_GLOBAL_DENIED)
        cf_fail(err, code, "the pickle names %s.%s, which no checkpoint needs", module, name);
    else
        cf_fail(err, code, "the pickle calls %s.%s in a way no checkpoint needs", module, name);
    return cf_err_hint(err, "nothing was executed; --inert reads the tensors all the same");
}

bool cf_vm_global(cf_vm *vm, const char *module, const char *name, cf_node **out, cf_err *err)
{
    const cf_dtype dtype =
        strcmp(module, "torch") == 0 ? cf_dtype_of_torch(name, strlen(name)) : CF_NO_DTYPE;
    cf_node *node = cf_node_new(vm->p->tree, dtype ? CF_NODE_DTYPE : CF_NODE_GLOBAL);
    if (!node) return cf_vm_memory(vm, err);
    *out = node;
    if (dtype) {
        node->dtype = dtype;
        return true;
    }
    cf_name *own = CF_NEW(vm->p->tree, cf_name);
    if (!own) return cf_vm_memory(vm, err);
    own->global = (cf_global){module, name, cf_name_find(module, name, &own->model)};
    node->global = &own->global;
    return own->global.trust != CF_FORBIDDEN ||
           let_through(vm, CF_E_GLOBAL_DENIED, module, name, err);
}

bool cf_vm_object(cf_vm *vm, const cf_global *class, cf_node *args, cf_node **out, cf_err *err)
{
    *out = cf_node_new(vm->p->tree, CF_NODE_OBJECT);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->object->class = class;
    if (!args || !args->list->count) return true;
    cf_parts *parts = cf_object_own(vm->p->tree, (*out)->object);
    if (!parts) return cf_vm_memory(vm, err);
    parts->args = args;
    return true;
}

static bool same_names(const cf_fields *fields, const cf_dict *dict)
{
    if (fields->count != dict->count) return false;
    for (size_t i = 0; i < dict->count; i++)
        if (fields->names[i] != dict->pairs[i].key) return false;
    return true;
}

/* The names of a dict's keys, which a writer takes from its memo: the same nodes again and again.
 * Few sets of names are looked through, so that this stays cheap for whatever is written. */
static const cf_fields *fields_of(cf_vm *vm, cf_name *class, const cf_dict *dict)
{
    enum { MOST = 8 };
    int n = 0;
    for (const cf_fields *f = class->fields; f && n < MOST; f = f->next, n++)
        if (same_names(f, dict)) return f;
    cf_fields *made = cf_alloc(vm->p->tree, sizeof *made + dict->count * sizeof *made->names);
    if (!made) return NULL;
    *made = (cf_fields){.next = class->fields, .count = dict->count};
    for (size_t i = 0; i < dict->count; i++) made->names[i] = dict->pairs[i].key;
    return class->fields = made;
}

/* Can the state become fields: a dict of few strings that nothing else holds, and all there is? */
static bool is_fields(const cf_object *object, const cf_node *state)
{
    if (object->fields || object->parts || state->kind != CF_NODE_DICT || state->memoed)
        return false;
    const cf_dict *dict = state->dict;
    return !dict->index && dict->count && dict->count <= CF_FEW &&
           dict->pairs[0].key->kind == CF_NODE_STRING;
}

bool cf_vm_state(cf_vm *vm, cf_object *object, cf_node *state, cf_err *err)
{
    if (!is_fields(object, state)) {
        cf_parts *parts = cf_object_own(vm->p->tree, object);
        if (!parts) return cf_vm_memory(vm, err);
        parts->state = state;
        return true;
    }
    const cf_dict *dict = state->dict;
    const cf_fields *fields = fields_of(vm, (cf_name *)object->class, dict);
    cf_node **values = cf_alloc(vm->p->tree, dict->count * sizeof *values);
    if (!fields || !values) return cf_vm_memory(vm, err);
    for (size_t i = 0; i < dict->count; i++) values[i] = dict->pairs[i].value;
    object->fields = fields;
    object->values = values;
    return true;
}

bool cf_vm_fields(cf_vm *vm, cf_object *object, cf_node *const *items, size_t n, bool *done,
                  cf_err *err)
{
    const cf_fields *f = ((const cf_name *)object->class)->fields;
    *done = false;
    if (object->fields || object->parts || n % 2) return true;
    for (; f; f = f->next) {
        size_t i = 0;
        while (i < f->count && 2 * i < n && f->names[i] == items[2 * i]) i++;
        if (i == f->count && 2 * i == n) break;
    }
    if (!f) return true;
    cf_node **values = cf_alloc(vm->p->tree, f->count * sizeof *values);
    if (!values) return cf_vm_memory(vm, err);
    for (size_t i = 0; i < f->count; i++) values[i] = items[2 * i + 1];
    object->fields = f;
    object->values = values;
    return *done = true;
}

/* A sequence with copies of some items. */
static bool copy_items(cf_vm *vm, cf_kind kind, cf_node *const *items, size_t n, cf_node **out,
                       cf_err *err)
{
    CF_TRY(cf_vm_spend(vm, n, err));
    *out = cf_node_new(vm->p->tree, kind);
    cf_node **own = cf_memdup(vm->p->tree, items, n * sizeof *items);
    if (!*out || !own) return cf_vm_memory(vm, err);
    *(*out)->list = (cf_list){.items = own, .count = n, .cap = n};
    return true;
}

static bool call_sequence(cf_vm *vm, const cf_global *callee, cf_kind kind, cf_node *args,
                          cf_node **out, cf_err *err)
{
    if (!args->list->count) return copy_items(vm, kind, NULL, 0, out, err);
    cf_node *from = args->list->items[0];
    if (from->kind == kind && kind == CF_NODE_TUPLE) {
        *out = from; /* torch.Size */
        return true;
    }
    if (from->kind != CF_NODE_LIST && from->kind != CF_NODE_TUPLE && from->kind != CF_NODE_SET)
        return cf_vm_bad_args(callee, err);
    return copy_items(vm, kind, from->list->items, from->list->count, out, err);
}

/* OrderedDict(), Counter({...}), defaultdict(list), and Python 2's OrderedDict([[key, value]]). */
static bool call_dict(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out, cf_err *err)
{
    const size_t n = args->list->count;
    cf_node *from = n ? args->list->items[n - 1] : NULL;
    if (from && from->kind == CF_NODE_DICT) {
        *out = from;
        return true;
    }
    *out = cf_node_new(vm->p->tree, CF_NODE_DICT);
    if (!*out) return cf_vm_memory(vm, err);
    if (!from || strcmp(callee->name, "defaultdict") == 0) return true;
    if (from->kind != CF_NODE_LIST) return cf_vm_bad_args(callee, err);
    CF_TRY(cf_vm_spend(vm, from->list->count, err));
    for (size_t i = 0; i < from->list->count; i++) {
        const cf_node *pair = from->list->items[i];
        if ((pair->kind != CF_NODE_LIST && pair->kind != CF_NODE_TUPLE) || pair->list->count != 2)
            return cf_vm_bad_args(callee, err);
        CF_TRY(cf_vm_set(vm, (*out)->dict, pair->list->items[0], pair->list->items[1], err));
    }
    return true;
}

/* bytes of a text whose characters are bytes: protocol 2 has no bytes of its own. */
static bool encode(cf_vm *vm, const cf_global *callee, cf_string text, cf_node **out, cf_err *err)
{
    CF_TRY(cf_vm_spend(vm, text.length, err));
    char *bytes = cf_alloc(vm->p->tree, text.length);
    if (!bytes) return cf_vm_memory(vm, err);
    size_t n = 0;
    for (size_t i = 0; i < text.length; i++, n++) {
        const unsigned char c = (unsigned char)text.at[i];
        if (c > 0xc3) return cf_vm_bad_args(callee, err); /* a character beyond U+00FF */
        bytes[n] = (char)(c < 0x80 ? c : c << 6 | ((unsigned char)text.at[++i] & 0x3f));
    }
    *out = cf_node_text(vm->p->tree, CF_NODE_BYTES, bytes, n);
    return *out || cf_vm_memory(vm, err);
}

static bool call_bytes(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out,
                       cf_err *err)
{
    cf_node *bytes = cf_vm_arg(args, 0, CF_NODE_BYTES);
    const cf_node *text = cf_vm_arg(args, 0, CF_NODE_STRING);
    const cf_node *encoding = cf_vm_arg(args, 1, CF_NODE_STRING);
    if (bytes || !args->list->count) {
        *out = bytes ? bytes : cf_node_text(vm->p->tree, CF_NODE_BYTES, "", 0);
        return *out || cf_vm_memory(vm, err);
    }
    if (text && (is_text(encoding, "latin1") || is_text(encoding, "latin-1")))
        return encode(vm, callee, text->text, out, err);
    return cf_vm_bad_args(callee, err);
}

static bool real_of(const cf_node *args, size_t i, double *out)
{
    const cf_node *real = cf_vm_arg(args, i, CF_NODE_FLOAT);
    const cf_node *integer = cf_vm_arg(args, i, CF_NODE_INT);
    *out = real ? real->real : integer ? (double)integer->integer : 0;
    return real || integer;
}

static bool call_complex(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out,
                         cf_err *err)
{
    double re, im;
    if (!real_of(args, 0, &re) || !real_of(args, 1, &im)) return cf_vm_bad_args(callee, err);
    *out = cf_node_new(vm->p->tree, CF_NODE_COMPLEX);
    if (!*out) return cf_vm_memory(vm, err);
    (*out)->complex.re = re;
    (*out)->complex.im = im;
    return true;
}

/* A path is one string, whatever system it was made on. */
static bool call_path(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out, cf_err *err)
{
    const char slash = strstr(callee->name, "Windows") ? '\\' : '/';
    size_t size = 1, n = 0;
    for (size_t i = 0; i < args->list->count; i++) {
        const cf_node *part = cf_vm_arg(args, i, CF_NODE_STRING);
        if (!part) return cf_vm_bad_args(callee, err);
        size += part->text.length + 1;
        if (size > MOST_PATH)
            return cf_fail(err, CF_E_LIMIT, "a path of more than %d bytes", MOST_PATH);
    }
    CF_TRY(cf_vm_spend(vm, size, err));
    char *at = cf_alloc(vm->p->tree, size);
    if (!at) return cf_vm_memory(vm, err);
    for (size_t i = 0; i < args->list->count; i++) {
        const cf_string *part = &args->list->items[i]->text;
        if (n && at[n - 1] != '/' && at[n - 1] != slash) at[n++] = slash;
        if (part->length) memcpy(at + n, part->at, part->length);
        n += part->length;
    }
    if (!n) at[n++] = '.';
    cf_node *path = cf_node_text(vm->p->tree, CF_NODE_STRING, at, n), *only;
    if (!path) return cf_vm_memory(vm, err);
    return copy_items(vm, CF_NODE_TUPLE, &path, 1, &only, err) &&
           cf_vm_object(vm, callee, only, out, err);
}

/* FULL_SHARD: how enum members are written; for a third party's class any public name. */
static bool is_member(const cf_global *class, cf_string name)
{
    const cf_family family = cf_name_family(class->module);
    if (class->trust == CF_FORBIDDEN || (family != CF_TORCH && family != CF_OTHERS)) return false;
    for (size_t i = 0; i < name.length; i++) {
        const char c = name.at[i];
        const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        const bool inner = c == '_' || (c >= '0' && c <= '9');
        if (!upper && !(inner && i) && !(lower && family == CF_OTHERS)) return false;
    }
    return name.length > 0;
}

/* The class `name` in a class, if a pickle may name it. */
static bool inner_class(cf_vm *vm, const cf_global *class, cf_string name, cf_node **out,
                        cf_err *err)
{
    char path[256];
    cf_model model;
    *out = NULL;
    const int n = snprintf(path, sizeof path, "%s.%.*s", class->name, (int)name.length, name.at);
    if (n < 0 || (size_t)n >= sizeof path || strlen(path) != (size_t)n ||
        cf_name_find(class->module, path, &model) == CF_FORBIDDEN)
        return true;
    const char *own = cf_strndup(vm->p->tree, path, (size_t)n);
    return own ? cf_vm_global(vm, class->module, own, out, err) : cf_vm_memory(vm, err);
}

/* What getattr gave of a third party's class is a member of an enum until it is called or asked for
 * an attribute: then it was a class in a class, as protocols 2 and 3 write those. */
static bool as_class(cf_vm *vm, cf_node *node, cf_err *err)
{
    const cf_parts *parts = node->kind == CF_NODE_OBJECT ? cf_object_parts(node->object) : NULL;
    if (!parts || !parts->args || parts->state || node->object->class->trust == CF_FORBIDDEN)
        return true;
    const cf_node *name = cf_vm_arg(parts->args, 0, CF_NODE_STRING);
    cf_node *class;
    if (!name || parts->args->list->count != 1) return true;
    CF_TRY(inner_class(vm, node->object->class, name->text, &class, err));
    if (!class) return true;
    node->kind = CF_NODE_GLOBAL;
    node->global = class->global;
    return true;
}

/* Protocols 2 and 3 write a nested class, and Python 3.11.0 to 3.11.3 an enum member, as an
 * attribute. */
static bool call_getattr(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out,
                         cf_err *err)
{
    cf_node *name = cf_vm_arg(args, 1, CF_NODE_STRING);
    if (name && args->list->count == 2) {
        CF_TRY(as_class(vm, args->list->items[0], err));
        const cf_node *owner = cf_vm_arg(args, 0, CF_NODE_GLOBAL);
        const cf_global *class = owner ? owner->global : NULL;
        cf_node *only;
        if (class && is_member(class, name->text))
            return copy_items(vm, CF_NODE_TUPLE, &name, 1, &only, err) &&
                   cf_vm_object(vm, class, only, out, err);
        *out = NULL;
        if (class && class->trust != CF_FORBIDDEN && cf_name_family(class->module) == CF_TORCH)
            CF_TRY(inner_class(vm, class, name->text, out, err));
        if (*out) return true;
    }
    if (!let_through(vm, CF_E_CALL_DENIED, callee->module, callee->name, err)) return false;
    cf_name *own = CF_NEW(vm->p->tree, cf_name);
    if (!own) return cf_vm_memory(vm, err);
    own->global = (cf_global){callee->module, callee->name, CF_FORBIDDEN};
    return cf_vm_object(vm, &own->global, args, out, err);
}

/* Python 3.11.0 to 3.11.3 write two flags as or_(one, other). */
static bool call_flags(cf_vm *vm, const cf_global *callee, cf_node *args, cf_node **out,
                       cf_err *err)
{
    bool fits = args->list->count == 2;
    for (size_t i = 0; fits && i < 2; i++) {
        const cf_node *flag = args->list->items[i];
        const cf_global *class = flag->kind == CF_NODE_OBJECT ? flag->object->class : NULL;
        const cf_family family = class ? cf_name_family(class->module) : CF_PYTHON;
        fits = class ? family == CF_TORCH || family == CF_OTHERS || class->trust == CF_FORBIDDEN ||
                           strcmp(class->name, callee->name) == 0
                     : i && (flag->kind == CF_NODE_INT || flag->kind == CF_NODE_BIG);
    }
    return (fits || let_through(vm, CF_E_CALL_DENIED, callee->module, callee->name, err)) &&
           cf_vm_object(vm, callee, args, out, err);
}

/* copyreg._reconstructor(class, base, state) and __newobj__(class, *args). */
static bool call_class(cf_vm *vm, const cf_name *callee, cf_node *args, cf_node **out, cf_err *err)
{
    const cf_node *class = cf_vm_arg(args, 0, CF_NODE_GLOBAL);
    if (!class) return cf_vm_bad_args(&callee->global, err);
    size_t from = 1;
    if (callee->model == CF_CALL_RECONSTRUCTOR) {
        if (args->list->count != 3) return cf_vm_bad_args(&callee->global, err);
        from = cf_vm_arg(args, 2, CF_NODE_NONE) ? 3 : 2;
    }
    cf_node *rest;
    return copy_items(vm, CF_NODE_TUPLE, args->list->items + from, args->list->count - from, &rest,
                      err) &&
           cf_vm_object(vm, class->global, rest, out, err);
}

/* typing.Optional[int] is written as getitem(typing.Union, (int, type(None))). */
static bool call_typing(cf_vm *vm, const cf_name *callee, cf_node *args, cf_node **out, cf_err *err)
{
    const cf_node *owner = cf_vm_arg(args, 0, CF_NODE_GLOBAL);
    const bool fits = callee->model == CF_CALL_TYPE
                          ? args->list->count == 1 && cf_vm_arg(args, 0, CF_NODE_NONE)
                          : owner && strcmp(owner->global->module, "typing") == 0;
    const cf_global *g = &callee->global;
    return (fits || let_through(vm, CF_E_CALL_DENIED, g->module, g->name, err)) &&
           cf_vm_object(vm, g, args, out, err);
}

bool cf_vm_call(cf_vm *vm, cf_node *callee, cf_node *args, cf_node **out, cf_err *err)
{
    if (callee->kind == CF_NODE_OBJECT && callee->object->class->trust == CF_FORBIDDEN)
        return cf_vm_object(vm, callee->object->class, args, out, err);
    CF_TRY(as_class(vm, callee, err));
    if (callee->kind != CF_NODE_GLOBAL)
        return cf_fail(err, CF_E_CALL_DENIED, "a call of %s %s, which is no class",
                       CF_A(cf_node_class(callee)));
    const cf_name *name = (const cf_name *)callee->global;
    const cf_global *g = callee->global;
    switch (name->model) {
    case CF_CALL_OBJECT: return cf_vm_object(vm, g, args, out, err);
    case CF_CALL_DICT: return call_dict(vm, g, args, out, err);
    case CF_CALL_LIST: return call_sequence(vm, g, CF_NODE_LIST, args, out, err);
    case CF_CALL_TUPLE: return call_sequence(vm, g, CF_NODE_TUPLE, args, out, err);
    case CF_CALL_SET: return call_sequence(vm, g, CF_NODE_SET, args, out, err);
    case CF_CALL_BYTES:
    case CF_CALL_ENCODE: return call_bytes(vm, g, args, out, err);
    case CF_CALL_COMPLEX: return call_complex(vm, g, args, out, err);
    case CF_CALL_PATH: return call_path(vm, g, args, out, err);
    case CF_CALL_GETATTR: return call_getattr(vm, g, args, out, err);
    case CF_CALL_GETITEM:
    case CF_CALL_TYPE: return call_typing(vm, name, args, out, err);
    case CF_CALL_FLAGS: return call_flags(vm, g, args, out, err);
    case CF_CALL_RECONSTRUCTOR:
    case CF_CALL_NEWOBJ: return call_class(vm, name, args, out, err);
    case CF_CALL_ARRAY:
    case CF_CALL_FROMBUFFER:
    case CF_CALL_SCALAR: return cf_vm_numpy(vm, name, args, out, err);
    default: return cf_vm_torch(vm, name, args, out, err);
    }
}

/* The state of an object with slots is (None or its dict, its slots): one dict for us. */
bool cf_vm_fold_state(cf_vm *vm, cf_node *state, cf_node **out, cf_err *err)
{
    *out = state;
    if (state->kind != CF_NODE_TUPLE || state->list->count != 2) return true;
    cf_node *own = state->list->items[0], *slots = state->list->items[1];
    if (slots->kind != CF_NODE_DICT) return true;
    if (own->kind == CF_NODE_NONE || (own->kind == CF_NODE_DICT && !own->dict->count)) {
        *out = slots;
        return true;
    }
    if (own->kind != CF_NODE_DICT) return true;
    CF_TRY(cf_vm_spend(vm, own->dict->count + slots->dict->count, err));
    *out = cf_node_new(vm->p->tree, CF_NODE_DICT);
    if (!*out) return cf_vm_memory(vm, err);
    const cf_dict *both[2] = {own->dict, slots->dict};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->count; i++)
            CF_TRY(
                cf_vm_set(vm, (*out)->dict, both[k]->pairs[i].key, both[k]->pairs[i].value, err));
    return true;
}

/* What holds elements and nothing else. */
static bool is_array(const cf_global *class)
{
    return strcmp(class->module, "numpy") == 0 &&
           (strcmp(class->name, "ndarray") == 0 || strcmp(class->name, "matrix") == 0 ||
            strcmp(class->name, "memmap") == 0);
}

bool cf_vm_build(cf_vm *vm, cf_node *target, cf_node *state, cf_err *err)
{
    cf_node *own = state;
    CF_TRY(cf_vm_fold_state(vm, state, &state, err));
    switch (target->kind) {
    case CF_NODE_OBJECT:
        CF_TRY(cf_vm_state(vm, target->object, state, err));
        if (target->object->fields && state == own) vm->spare_dict = state; /* nobody else's */
        return !is_array(target->object->class) || cf_vm_array(vm, target, state, err);
    case CF_NODE_DICT: /* OrderedDict's attributes: _metadata of a state dict */
        return state->kind == CF_NODE_DICT ||
               cf_fail(err, CF_E_TYPE, "%s %s as state of a dict", CF_A(cf_node_class(state)));
    case CF_NODE_TENSOR: /* attributes of a Parameter; but in torch, a tuple calls Tensor.set_ */
        return state->kind == CF_NODE_DICT ||
               cf_fail(err, CF_E_CALL_DENIED, "%s %s as state of a tensor",
                       CF_A(cf_node_class(state)));
    default: return cf_fail(err, CF_E_TYPE, "a state for %s %s", CF_A(cf_node_class(target)));
    }
}
