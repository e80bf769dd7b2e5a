/* One value as JSON: CLI.md, "Values in JSON".
 *
 * Written straight into text, in one walk. Every list, dict, tuple, set and object that was
 * written is remembered with its place, as a chain of steps up to the root; met again, it becomes
 * {"$ref": path}, and only then the path is spelt out (RFC 6901). So a value whose parts are shared
 * a thousandfold stays small, but for long texts and paths that are repeated: those are bounded by
 * MOST. Floats have 15 digits, and up to 17 where they would not read back equal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "json_path.h"

enum {
    MOST = 1 << 30,
    STEP = 2,
    /* JSON levels that one value takes by itself: {"$dict": [[{"$complex": [ */
    OWN = 5
};

typedef struct place {
    cf_json_step step;
    int depth;
    const cf_node *node;
} place;

typedef struct writer {
    cf_text *out;
    size_t start;
    int indent; /* of the line; negative: all on one line */
    cf_json_tensors *tensors;
    cf_arena arena; /* places, names */
    cf_map seen;    /* &node -> its place; of tensors, their number */
    cf_err *err;
} writer;

static bool put(writer *w, const cf_node *node, place at);

/* --- layout */

static void begin(writer *w, char c)
{
    cf_text_add(w->out, &c, 1);
    if (w->indent >= 0) w->indent += STEP;
}

static void next(writer *w, bool first)
{
    if (!first) cf_text_str(w->out, w->indent < 0 ? ", " : ",");
    if (w->indent >= 0) cf_text_printf(w->out, "\n%*s", w->indent, "");
}

static void end(writer *w, char c, bool empty)
{
    if (w->indent >= 0) {
        w->indent -= STEP;
        if (!empty) cf_text_printf(w->out, "\n%*s", w->indent, "");
    }
    cf_text_add(w->out, &c, 1);
}

/* --- places */

static place step(const place *up, const char *key, size_t number)
{
    return (place){.step = {&up->step, key, number}, .depth = up->depth + 1};
}

/* A place that outlives the walk, for steps below it. */
static const place *keep(writer *w, place at)
{
    return cf_memdup(&w->arena, &at, sizeof at);
}

static bool remember(writer *w, const place *at, uint64_t value)
{
    bool fresh;
    uint64_t *slot = at ? cf_map_put(&w->seen, &at->node, sizeof at->node, &fresh) : NULL;
    if (!slot) return cf_arena_ok(&w->arena, w->err);
    *slot = value;
    return true;
}

void cf_json_path(cf_text *out, const cf_json_step *at)
{
    if (!at->up) return;
    cf_json_path(out, at->up);
    cf_text_add(out, "/", 1);
    if (!at->key) {
        cf_text_printf(out, "%zu", at->number);
        return;
    }
    for (size_t i = 0; i < at->number; i++) {
        const char c = at->key[i];
        if (c == '~' || c == '/')
            cf_text_add(out, c == '~' ? "~0" : "~1", 2);
        else
            cf_text_add(out, &c, 1);
    }
}

static bool reference(writer *w, const place *at)
{
    cf_text path = {0};
    cf_json_path(&path, &at->step);
    cf_text_str(w->out, "{\"$ref\": ");
    cf_text_json(w->out, path.at ? path.at : "", path.size);
    cf_text_str(w->out, "}");
    const bool ok = cf_text_ok(&path, w->err);
    cf_text_free(&path);
    return ok;
}

/* --- atoms */

static void add_real(cf_text *out, double value)
{
    char digits[32];
    if (value != value || value - value != 0) {
        cf_text_printf(out, "{\"$float\": \"%s\"}",
                       value != value ? "nan"
                       : value > 0    ? "inf"
                                      : "-inf");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    cf_text_printf(out, strpbrk(digits, ".e") ? "%s" : "%s.0", digits);
}

static void add_complex(cf_text *out, double re, double im)
{
    cf_text_str(out, "{\"$complex\": [");
    add_real(out, re);
    cf_text_str(out, ", ");
    add_real(out, im);
    cf_text_str(out, "]}");
}

static void add_bytes(cf_text *out, cf_string bytes)
{
    static const char SIGN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)bytes.at;
    cf_text_str(out, "{\"$bytes\": \"");
    for (size_t i = 0; i < bytes.length; i += 3) {
        const size_t left = bytes.length - i;
        const uint32_t b = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        const char four[] = {SIGN[b >> 18], SIGN[b >> 12 & 63], left > 1 ? SIGN[b >> 6 & 63] : '=',
                             left > 2 ? SIGN[b & 63] : '='};
        cf_text_add(out, four, sizeof four);
    }
    cf_text_str(out, "\"}");
}

static bool add_class(writer *w, const cf_global *class)
{
    const size_t size = strlen(class->module) + strlen(class->name) + 2;
    char *name = cf_alloc(&w->arena, size);
    if (!name) return cf_arena_ok(&w->arena, w->err);
    snprintf(name, size, "%s.%s", class->module, class->name);
    cf_text_str(w->out, "{\"$class\": ");
    cf_text_json(w->out, name, size - 1);
    return true;
}

static double half(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 0) return (sign ? -0x1p-24 : 0x1p-24) * fraction;
    const uint32_t wide = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* The one element of a numpy scalar. numpy has no other types than these. */
static bool scalar(writer *w, const cf_view *view)
{
    const cf_dtype_info *info = cf_dtype_of(view->dtype);
    union {
        uint8_t bytes[16];
        uint64_t u64;
        uint32_t u32;
        uint16_t u16;
        uint8_t u8;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        double f64[2];
        float f32[2];
    } is = {{0}};
    if (view->numel != 1 || view->storage->place != CF_IN_MEMORY || !info->numpy)
        return cf_fail(w->err, CF_E_TYPE, "a scalar of type %s that has no value", info->name);
    const size_t last = view->storage->big_endian ? info->swap - 1 : 0;
    for (size_t i = 0; i < info->size; i++)
        is.bytes[i ^ last] = view->storage->bytes[view->offset + i];

    cf_text *out = w->out;
    cf_text_printf(out, "{\"$scalar\": \"%s\", \"value\": ", info->name);
    switch (view->dtype) {
    case CF_F64: add_real(out, is.f64[0]); break;
    case CF_F32: add_real(out, is.f32[0]); break;
    case CF_F16: add_real(out, half(is.u16)); break;
    case CF_C128: add_complex(out, is.f64[0], is.f64[1]); break;
    case CF_C64: add_complex(out, is.f32[0], is.f32[1]); break;
    case CF_I64: cf_text_printf(out, "%lld", (long long)is.i64); break;
    case CF_I32: cf_text_printf(out, "%d", is.i32); break;
    case CF_I16: cf_text_printf(out, "%d", is.i16); break;
    case CF_I8: cf_text_printf(out, "%d", is.i8); break;
    case CF_U32: cf_text_printf(out, "%u", is.u32); break;
    case CF_U16: cf_text_printf(out, "%u", is.u16); break;
    case CF_U8: cf_text_printf(out, "%u", is.u8); break;
    case CF_U64: /* JSON readers of 64 bits have a sign bit among them */
        cf_text_printf(out, is.i64 < 0 ? "{\"$int\": \"%llu\"}" : "%llu",
                       (unsigned long long)is.u64);
        break;
    default: cf_text_str(out, is.u8 ? "true" : "false"); break;
    }
    cf_text_str(out, "}");
    return true;
}

/* {"$tensor": "key#1"}, one name for one node; {"$tensor": null, ...} where none is stored. */
static bool tensor(writer *w, const cf_node *node)
{
    const cf_view *view = node->view;
    if (!w->tensors || view->storage->place == CF_NOWHERE) {
        cf_text_printf(w->out, "{\"$tensor\": null, \"dtype\": \"%s\", \"shape\": [",
                       cf_dtype_of(view->dtype)->name);
        for (int d = 0; d < view->ndim; d++)
            cf_text_printf(w->out, d ? ", %lld" : "%lld", (long long)view->shape[d]);
        cf_text_str(w->out, "]}");
        return true;
    }
    cf_json_tensors *t = w->tensors;
    uint64_t at;
    if (!cf_map_get(&w->seen, &node, sizeof node, &at)) {
        at = t->count;
        cf_text name = {0};
        cf_text_printf(&name, "%s#%zu", t->key, t->count + 1);
        struct cf_json_tensor *item = CF_PUSH(t->arena, t->items, t->count, t->cap);
        if (item) *item = (struct cf_json_tensor){cf_strndup(t->arena, name.at, name.size), view};
        const bool named = cf_text_ok(&name, w->err);
        cf_text_free(&name);
        CF_TRY(named && cf_arena_ok(t->arena, w->err));
        CF_TRY(remember(w, keep(w, (place){.node = node}), at));
    }
    const char *name = t->items[at].name;
    cf_text_str(w->out, "{\"$tensor\": ");
    cf_text_json(w->out, name, strlen(name));
    cf_text_str(w->out, "}");
    return true;
}

/* --- containers */

static bool is_container(const cf_node *node)
{
    return (node->kind >= CF_NODE_LIST && node->kind <= CF_NODE_DICT) ||
           node->kind == CF_NODE_OBJECT;
}

static bool is_empty(const cf_node *node)
{
    return node->kind == CF_NODE_DICT     ? node->dict->count == 0
           : node->kind == CF_NODE_OBJECT ? false
                                          : node->list->count == 0;
}

/* [...], on one line where nothing in it is a container. */
static bool list(writer *w, const cf_list *items, const place *at)
{
    const int indent = w->indent;
    bool flat = true;
    for (size_t i = 0; i < items->count && flat; i++) flat = !is_container(items->items[i]);
    if (flat) w->indent = -1;
    begin(w, '[');
    for (size_t i = 0; i < items->count; i++) {
        next(w, i == 0);
        CF_TRY(put(w, items->items[i], step(at, NULL, i)));
    }
    end(w, ']', items->count == 0);
    w->indent = indent;
    return true;
}

/* [[key, value], ...] */
static bool pairs(writer *w, const cf_dict *dict, const place *at)
{
    begin(w, '[');
    for (size_t i = 0; i < dict->count; i++) {
        const place *pair = keep(w, step(at, NULL, i));
        if (!pair) return cf_arena_ok(&w->arena, w->err);
        next(w, i == 0);
        cf_text_str(w->out, "[");
        CF_TRY(put(w, dict->pairs[i].key, step(pair, NULL, 0)));
        cf_text_str(w->out, ", ");
        CF_TRY(put(w, dict->pairs[i].value, step(pair, NULL, 1)));
        cf_text_str(w->out, "]");
    }
    end(w, ']', dict->count == 0);
    return true;
}

/* JSON has this dict: all keys are strings, and none looks like ours. */
static bool is_plain(const cf_dict *dict)
{
    for (size_t i = 0; i < dict->count; i++) {
        const cf_node *name = dict->pairs[i].key;
        if (name->kind != CF_NODE_STRING || (name->text.length && name->text.at[0] == '$'))
            return false;
    }
    return true;
}

static bool plain(writer *w, const cf_dict *dict, const place *at)
{
    begin(w, '{');
    for (size_t i = 0; i < dict->count; i++) {
        const cf_string name = dict->pairs[i].key->text;
        next(w, i == 0);
        cf_text_json(w->out, name.at, name.length);
        cf_text_str(w->out, ": ");
        CF_TRY(put(w, dict->pairs[i].value, step(at, name.at, name.length)));
    }
    end(w, '}', dict->count == 0);
    return true;
}

/* Begins a field whose value is a bare list, and gives its place. */
static const place *field(writer *w, const place *at, const char *name, bool first)
{
    cf_text_printf(w->out, first ? "{\"%s\": " : ", \"%s\": ", name);
    return keep(w, step(at, name, strlen(name)));
}

static bool wrapped(writer *w, const char *name, const cf_list *items, const place *at)
{
    const place *in = field(w, at, name, true);
    CF_TRY(in ? list(w, items, in) : cf_arena_ok(&w->arena, w->err));
    cf_text_str(w->out, "}");
    return true;
}

static bool wrapped_pairs(writer *w, const cf_dict *dict, const place *at)
{
    const place *in = field(w, at, "$dict", true);
    CF_TRY(in ? pairs(w, dict, in) : cf_arena_ok(&w->arena, w->err));
    cf_text_str(w->out, "}");
    return true;
}

/* An object without any part has empty args: without them it would be its class. */
static bool object(writer *w, const cf_object *o, const place *at)
{
    static const cf_list NONE = {0};
    const place *in;
    CF_TRY(add_class(w, o->class));
    const cf_parts *parts = cf_object_parts(o);
    cf_record room;
    if (parts->args || !(o->fields || parts->state || parts->items.count || parts->pairs.count)) {
        in = field(w, at, "args", false);
        CF_TRY(in ? list(w, parts->args ? parts->args->list : &NONE, in)
                  : cf_arena_ok(&w->arena, w->err));
    }
    if (o->fields) {
        const cf_dict *dict = cf_object_dict(o, &room);
        in = field(w, at, "state", false);
        if (!in) return cf_arena_ok(&w->arena, w->err);
        CF_TRY(is_plain(dict) ? plain(w, dict, in) : wrapped_pairs(w, dict, in));
    } else if (parts->state) {
        cf_text_str(w->out, ", \"state\": ");
        CF_TRY(put(w, parts->state, step(at, "state", strlen("state"))));
    }
    if (parts->items.count) {
        in = field(w, at, "items", false);
        CF_TRY(in ? list(w, &parts->items, in) : cf_arena_ok(&w->arena, w->err));
    }
    if (parts->pairs.count) {
        in = field(w, at, "pairs", false);
        CF_TRY(in ? pairs(w, &parts->pairs, in) : cf_arena_ok(&w->arena, w->err));
    }
    cf_text_str(w->out, "}");
    return true;
}

static bool container(writer *w, const cf_node *node, place at)
{
    uint64_t before;
    if (cf_map_get(&w->seen, &node, sizeof node, &before))
        return reference(w, (const place *)(uintptr_t)before);
    at.node = node;
    const place *here = keep(w, at);
    if (!here || !(is_empty(node) || node->plain))
        CF_TRY(remember(w, here, (uint64_t)(uintptr_t)here));
    switch (node->kind) {
    case CF_NODE_LIST: return list(w, node->list, here);
    case CF_NODE_TUPLE: return wrapped(w, "$tuple", node->list, here);
    case CF_NODE_SET: return wrapped(w, "$set", node->list, here);
    case CF_NODE_DICT:
        return is_plain(node->dict) ? plain(w, node->dict, here)
                                    : wrapped_pairs(w, node->dict, here);
    default: return object(w, node->object, here);
    }
}

/* A storage without a tensor over it is a tensor of all of it. */
static bool bare_storage(writer *w, const cf_node *node)
{
    const cf_storage *storage = node->storage;
    if (!w->tensors || storage->place == CF_NOWHERE || storage->place == CF_IN_ITEM) {
        cf_text_printf(w->out, "{\"$class\": \"torch.UntypedStorage\", \"size\": %llu}",
                       (unsigned long long)storage->size);
        return true;
    }
    cf_arena *arena = w->tensors->arena;
    const cf_dtype dtype = node->element ? node->element : CF_U8;
    const int64_t numel = (int64_t)storage->size / cf_dtype_size(dtype);
    cf_node *all = cf_node_new(arena, CF_NODE_TENSOR);
    if (!all) return cf_arena_ok(arena, w->err);
    all->view = cf_view_new(arena, storage, dtype, 0, 1, &numel, NULL, w->err);
    return all->view && tensor(w, all);
}

static bool atom(writer *w, const cf_node *node)
{
    cf_text *out = w->out;
    switch (node->kind) {
    case CF_NODE_BOOL: cf_text_str(out, node->integer ? "true" : "false"); break;
    case CF_NODE_INT: cf_text_printf(out, "%lld", (long long)node->integer); break;
    case CF_NODE_BIG:
        cf_text_str(out, "{\"$int\": ");
        cf_text_json(out, node->text.at, node->text.length);
        cf_text_str(out, "}");
        break;
    case CF_NODE_FLOAT: add_real(out, node->real); break;
    case CF_NODE_COMPLEX: add_complex(out, node->complex.re, node->complex.im); break;
    case CF_NODE_STRING: cf_text_json(out, node->text.at, node->text.length); break;
    case CF_NODE_BYTES: add_bytes(out, node->text); break;
    case CF_NODE_GLOBAL:
        CF_TRY(add_class(w, node->global));
        cf_text_str(out, "}");
        break;
    case CF_NODE_DTYPE:
        cf_text_printf(out, "{\"$dtype\": \"%s\"}", cf_dtype_of(node->dtype)->name);
        break;
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY: return tensor(w, node);
    case CF_NODE_SCALAR: return scalar(w, node->view);
    case CF_NODE_STORAGE: return bare_storage(w, node);
    default: cf_text_str(out, "null"); break;
    }
    return true;
}

static bool put(writer *w, const cf_node *node, place at)
{
    CF_TRY(cf_text_ok(w->out, w->err));
    if (w->out->size - w->start > MOST)
        return cf_fail(w->err, CF_E_LIMIT, "a value takes more than %d bytes as JSON", MOST);
    if (!is_container(node)) return atom(w, node);
    if (at.depth > CF_MOST_DEPTH - OWN)
        return cf_fail(w->err, CF_E_DEPTH, "a value nested too deeply for JSON of %d levels",
                       CF_MOST_DEPTH);
    return container(w, node, at);
}

bool cf_json_value(cf_text *out, const cf_node *value, int indent, cf_json_tensors *tensors,
                   cf_err *err)
{
    writer w = {.out = out, .start = out->size, .indent = indent, .tensors = tensors, .err = err};
    cf_arena_init(&w.arena, MOST);
    cf_map_init(&w.seen, &w.arena);
    const bool ok = put(&w, value, (place){0}) && cf_text_ok(out, err);
    cf_arena_free(&w.arena);
    return ok;
}
