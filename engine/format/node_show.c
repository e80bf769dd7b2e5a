/* Nodes as one line of text for people, and numpy scalars as plain numbers.
 *
 * The text is Python's where Python has one: {'a': (1, 2.5)}. What cannot be written that way is
 * named: tensor(F32[2, 3]), megatron.core.X(args){state}. Every part adds text, so the bound on
 * the text also bounds the walk through shared nodes; a container within itself is "...".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

typedef struct cf_shower {
    cf_text *text;
    size_t end;
    int depth;
    const cf_node *path[CF_MOST_DEPTH];
} cf_shower;

static bool full(const cf_shower *s)
{
    return s->text->failed || s->text->size >= s->end;
}

/* 'a', with what would end or forge it escaped. */
static void show_quoted(cf_shower *s, cf_string string)
{
    cf_text_str(s->text, "'");
    for (size_t i = 0; i < string.length && !full(s);) {
        const char *at = string.at + i;
        const size_t left = string.length - i;
        size_t n = 1;
        if (*at == '\'' || *at == '\\') {
            cf_text_printf(s->text, "\\%c", *at);
        } else {
            while (n < left && n < s->end - s->text->size && at[n] != '\'' && at[n] != '\\') n++;
            while (n < left && ((unsigned char)at[n] & 0xc0) == 0x80) n++; /* whole characters */
            cf_text_shown(s->text, at, n);
        }
        i += n;
    }
    cf_text_str(s->text, "'");
}

static void show_bytes(cf_shower *s, cf_string bytes)
{
    cf_text_str(s->text, "b'");
    for (size_t i = 0; i < bytes.length && !full(s); i++) {
        const unsigned char c = (unsigned char)bytes.at[i];
        if (c < 0x20 || c > 0x7e || c == '\'' || c == '\\')
            cf_text_printf(s->text, "\\x%02x", c);
        else
            cf_text_add(s->text, &c, 1);
    }
    cf_text_str(s->text, "'");
}

/* The shortest digits that read back equal. */
static void show_real(cf_shower *s, double real)
{
    char digits[40];
    if (!isfinite(real)) {
        cf_text_str(s->text, isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, real);
        if (strtod(digits, NULL) == real) break;
    }
    cf_text_str(s->text, digits);
    if (!strpbrk(digits, ".e")) cf_text_str(s->text, ".0");
}

static void show(cf_shower *s, const cf_node *node);

static void show_list(cf_shower *s, const cf_list *list, const char *open, const char *close)
{
    cf_text_str(s->text, open);
    for (size_t i = 0; i < list->count && !full(s); i++) {
        if (i) cf_text_str(s->text, ", ");
        show(s, list->items[i]);
    }
    if (list->count == 1 && *open == '(') cf_text_str(s->text, ",");
    cf_text_str(s->text, close);
}

static void show_dict(cf_shower *s, const cf_dict *dict)
{
    cf_text_str(s->text, "{");
    for (size_t i = 0; i < dict->count && !full(s); i++) {
        if (i) cf_text_str(s->text, ", ");
        show(s, dict->pairs[i].key);
        cf_text_str(s->text, ": ");
        show(s, dict->pairs[i].value);
    }
    cf_text_str(s->text, "}");
}

static void show_global(cf_shower *s, const cf_global *global)
{
    cf_text_shown(s->text, global->module, strlen(global->module));
    cf_text_str(s->text, ".");
    cf_text_shown(s->text, global->name, strlen(global->name));
}

static void show_object(cf_shower *s, const cf_object *object)
{
    const cf_parts *parts = cf_object_parts(object);
    cf_record room;
    show_global(s, object->class);
    if (parts->args && parts->args->list->count) show(s, parts->args);
    if (object->fields) {
        show_dict(s, cf_object_dict(object, &room));
    } else if (parts->state && parts->state->kind == CF_NODE_DICT) {
        show(s, parts->state);
    } else if (parts->state) {
        cf_text_str(s->text, "<");
        show(s, parts->state);
        cf_text_str(s->text, ">");
    }
    if (parts->items.count) show_list(s, &parts->items, "[", "]");
    if (parts->pairs.count) show_dict(s, &parts->pairs);
}

static void show_view(cf_shower *s, const char *what, const cf_view *view)
{
    char type[CF_MOST_DIMS * 22 + 32];
    cf_view_text(view->dtype, view->ndim, view->shape, type, sizeof type);
    cf_text_printf(s->text, "%s(%s)", what, type);
}

static void show_scalar(cf_shower *s, const cf_node *node)
{
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    const cf_node *number = cf_node_number(&scratch, node);
    cf_text_printf(s->text, "%s(", cf_node_class(node));
    if (number) show(s, number);
    cf_text_str(s->text, ")");
    cf_arena_free(&scratch);
}

static void show_value(cf_shower *s, const cf_node *node)
{
    switch (node->kind) {
    case CF_NODE_NONE: cf_text_str(s->text, "None"); break;
    case CF_NODE_BOOL: cf_text_str(s->text, node->integer ? "True" : "False"); break;
    case CF_NODE_INT: cf_text_printf(s->text, "%" PRId64, node->integer); break;
    case CF_NODE_BIG: cf_text_add(s->text, node->text.at, node->text.length); break;
    case CF_NODE_FLOAT: show_real(s, node->real); break;
    case CF_NODE_COMPLEX:
        cf_text_str(s->text, "complex(");
        show_real(s, node->complex.re);
        cf_text_str(s->text, ", ");
        show_real(s, node->complex.im);
        cf_text_str(s->text, ")");
        break;
    case CF_NODE_STRING: show_quoted(s, node->text); break;
    case CF_NODE_BYTES: show_bytes(s, node->text); break;
    case CF_NODE_LIST: show_list(s, node->list, "[", "]"); break;
    case CF_NODE_TUPLE: show_list(s, node->list, "(", ")"); break;
    case CF_NODE_SET:
        if (node->list->count)
            show_list(s, node->list, "{", "}");
        else
            cf_text_str(s->text, "set()");
        break;
    case CF_NODE_DICT: show_dict(s, node->dict); break;
    case CF_NODE_OBJECT: show_object(s, node->object); break;
    case CF_NODE_GLOBAL: show_global(s, node->global); break;
    case CF_NODE_DTYPE: cf_text_printf(s->text, "torch.%s", cf_dtype_of(node->dtype)->torch); break;
    case CF_NODE_TENSOR: show_view(s, "tensor", node->view); break;
    case CF_NODE_ARRAY: show_view(s, "ndarray", node->view); break;
    case CF_NODE_SCALAR: show_scalar(s, node); break;
    case CF_NODE_STORAGE:
        if (node->storage->place == CF_IN_ITEM)
            cf_text_printf(s->text, "an item of %" PRIu64 " bytes, unread", node->storage->packed);
        else
            cf_text_printf(s->text, "storage(%" PRIu64 " bytes)", node->storage->size);
        break;
    }
}

static void show(cf_shower *s, const cf_node *node)
{
    bool inside = s->depth == CF_MOST_DEPTH;
    for (int i = 0; i < s->depth && !inside; i++) inside = s->path[i] == node;
    if (inside) {
        cf_text_str(s->text, "...");
        return;
    }
    s->path[s->depth++] = node;
    show_value(s, node);
    s->depth--;
}

void cf_node_show(cf_text *text, const cf_node *node, size_t most)
{
    cf_shower s = {.text = text, .end = text->size + most};
    show(&s, node);
    if (text->size > s.end) cf_text_str(text, "...");
}

/* The bytes of a view's first element, little-endian. */
static bool first_element(const cf_view *view, unsigned char out[16])
{
    const cf_dtype_info *info = cf_dtype_of(view->dtype);
    if (view->storage->place != CF_IN_MEMORY || view->numel < 1) return false;
    const unsigned char *bytes = view->storage->bytes + view->offset;
    for (int i = 0; i < info->size; i++) {
        const int swapped = i / info->swap * info->swap + info->swap - 1 - i % info->swap;
        out[view->storage->big_endian ? swapped : i] = bytes[i];
    }
    return true;
}

static double real_of_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? fraction ? NAN : INFINITY
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(fraction + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

cf_node *cf_node_number(cf_arena *arena, const cf_node *scalar)
{
    unsigned char at[16] = {0};
    if (scalar->kind != CF_NODE_SCALAR || !first_element(scalar->view, at)) return NULL;
    cf_node *node = cf_node_new(arena, CF_NODE_INT);
    if (!node) return NULL;
    union {
        double f64;
        float f32[2];
        double c128[2];
        uint64_t u64;
        uint32_t u32;
        uint16_t u16;
        int32_t i32;
        int16_t i16;
        int8_t i8;
    } n;
    memcpy(&n, at, sizeof n);
    switch (scalar->view->dtype) {
    case CF_F64: *node = (cf_node){.kind = CF_NODE_FLOAT, .real = n.f64}; break;
    case CF_F32: *node = (cf_node){.kind = CF_NODE_FLOAT, .real = n.f32[0]}; break;
    case CF_F16: *node = (cf_node){.kind = CF_NODE_FLOAT, .real = real_of_half(n.u16)}; break;
    case CF_C128:
        *node = (cf_node){.kind = CF_NODE_COMPLEX, .complex = {n.c128[0], n.c128[1]}};
        break;
    case CF_C64: *node = (cf_node){.kind = CF_NODE_COMPLEX, .complex = {n.f32[0], n.f32[1]}}; break;
    case CF_I64: node->integer = (int64_t)n.u64; break;
    case CF_I32: node->integer = n.i32; break;
    case CF_I16: node->integer = n.i16; break;
    case CF_I8: node->integer = n.i8; break;
    case CF_U32: node->integer = n.u32; break;
    case CF_U16: node->integer = n.u16; break;
    case CF_U8: node->integer = at[0]; break;
    case CF_BOOL: *node = (cf_node){.kind = CF_NODE_BOOL, .integer = at[0] != 0}; break;
    case CF_U64:
        node->integer = (int64_t)n.u64;
        if (n.u64 > INT64_MAX) {
            char digits[24];
            const int length = snprintf(digits, sizeof digits, "%" PRIu64, n.u64);
            const char *text = cf_strndup(arena, digits, (size_t)length);
            if (!text) return NULL;
            *node = (cf_node){.kind = CF_NODE_BIG, .text = {text, (size_t)length}};
        }
        break;
    default: return NULL;
    }
    return node;
}
