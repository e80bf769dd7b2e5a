/* JSON back into values: the way back of json_value.c, CLI.md "Values in JSON".
 *
 * New nodes are made for containers; numbers, strings and the like are the JSON tree's own. A
 * container is entered before its items, so that {"$ref"} finds what encloses it; a reference to
 * what only comes later is no value that was ever written. JSON nests CF_MOST_DEPTH deep at most,
 * and a value takes no more levels than its JSON, so this may recurse; references make graphs that
 * are deeper, which is looked for at the end. A tree that is no JSON (a script may mistake one) is
 * told by its keys and its depth.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "json_atom.h"
#include "json_path.h"
#include "json_scan.h"
#include "pickle.h"
#include "text.h"

typedef struct decoder {
    const cf_json_decoding *from;
    cf_arena *arena;
    cf_node *root;
    int depth;
    cf_map made;  /* JSON container -> its value */
    cf_map names; /* of tensors -> their node */
    cf_err *err;
} decoder;

static bool decode(decoder *d, cf_node *json, const cf_json_step *at, cf_node **out);

/* E_JSON, with the path. */
__attribute__((format(printf, 3, 4))) static void tell(decoder *d, const cf_json_step *at,
                                                       const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    cf_text path = {0};
    cf_json_path(&path, at);
    cf_fail(d->err, CF_E_JSON, "%s%s%s", path.size ? path.at : "", path.size ? ": " : "", message);
    cf_text_free(&path);
}
#define bad(d, at, ...) (tell((d), (at), __VA_ARGS__), cf_false())

static bool made(const decoder *d, const void *node)
{
    return node || cf_arena_ok(d->arena, d->err);
}

static bool expect(decoder *d, const cf_node *json, cf_kind kind, const char *what,
                   const cf_json_step *at)
{
    if (json && json->kind == kind) return true;
    return bad(d, at, "%s expected, not %s %s", what, CF_A(json ? cf_node_class(json) : "nothing"));
}

static cf_json_step step(const cf_json_step *up, const char *key)
{
    return (cf_json_step){up, key, strlen(key)};
}

/* ---- containers */

/* A new node that references to this JSON find from now on. */
static bool enter(decoder *d, const cf_node *json, cf_kind kind, cf_node **out)
{
    bool fresh;
    const void *key = cf_memdup(d->arena, &json, sizeof(const cf_node *));
    uint64_t *place = key ? cf_map_put(&d->made, key, sizeof(const cf_node *), &fresh) : NULL;
    *out = cf_node_new(d->arena, kind);
    if (!place || !*out) return cf_arena_ok(d->arena, d->err);
    *place = (uintptr_t)*out;
    return true;
}

static bool items(decoder *d, const cf_node *json, const cf_json_step *at, cf_list *to)
{
    CF_TRY(expect(d, json, CF_NODE_LIST, "a list", at));
    for (size_t i = 0; i < json->list->count; i++) {
        const cf_json_step here = {at, NULL, i};
        cf_node *item;
        CF_TRY(decode(d, json->list->items[i], &here, &item));
        if (!cf_list_add(d->arena, to, item)) return cf_arena_ok(d->arena, d->err);
    }
    return true;
}

/* [[key, value], ...] */
static bool pairs(decoder *d, const cf_node *json, const cf_json_step *at, cf_dict *to)
{
    CF_TRY(expect(d, json, CF_NODE_LIST, "a list of pairs", at));
    for (size_t i = 0; i < json->list->count; i++) {
        const cf_json_step here = {at, NULL, i}, first = {&here, NULL, 0},
                           second = {&here, NULL, 1};
        const cf_node *pair = json->list->items[i];
        cf_node *key, *value;
        bool twice;
        CF_TRY(expect(d, pair, CF_NODE_LIST, "a pair", &here));
        if (pair->list->count != 2) return bad(d, &here, "a pair of %zu", pair->list->count);
        CF_TRY(decode(d, pair->list->items[0], &first, &key));
        CF_TRY(decode(d, pair->list->items[1], &second, &value));
        CF_TRY(cf_dict_set(d->arena, to, key, value, &twice, d->err));
        if (twice) return bad(d, &first, "a key twice");
    }
    return true;
}

static bool plain(decoder *d, const cf_dict *json, const cf_json_step *at, cf_dict *to)
{
    for (size_t i = 0; i < json->count; i++) {
        const cf_string name = json->pairs[i].key->text;
        const cf_json_step here = {at, name.at, name.length};
        cf_node *value;
        bool twice;
        CF_TRY(decode(d, json->pairs[i].value, &here, &value));
        CF_TRY(cf_dict_set(d->arena, to, json->pairs[i].key, value, &twice, d->err));
    }
    return true;
}

/* "megatron.core.X" -> its module and name. */
static bool class_of(decoder *d, const cf_node *json, const cf_json_step *at, cf_global **out)
{
    CF_TRY(expect(d, json, CF_NODE_STRING, "a name", at));
    char *module = cf_strndup(d->arena, json->text.at, json->text.length);
    cf_global *class = *out = CF_NEW(d->arena, cf_global);
    if (!module || !class) return cf_arena_ok(d->arena, d->err);
    char *dot = strrchr(module, '.');
    if (!dot || dot == module || !dot[1] || strlen(module) != json->text.length)
        return bad(d, at, "'%s' names no class", module);
    *dot = '\0';
    *class = (cf_global){module, dot + 1, cf_global_trust(module, dot + 1)};
    if (class->trust == CF_FORBIDDEN && !d->from->inert)
        return cf_fail(d->err, CF_E_GLOBAL_DENIED, "%s.%s is no name that a checkpoint needs",
                       module, dot + 1);
    return true;
}

/* An object's class and parts; a class alone is a value too. */
static bool object(decoder *d, const cf_node *json, const cf_json_step *at, cf_node **out)
{
    static const char *const PARTS[] = {"args", "state", "items", "pairs"};
    enum { N = 4 };
    const cf_dict *fields = json->dict;
    cf_node *part[N];
    cf_json_step where[N];
    size_t known = 1;
    for (int i = 0; i < N; i++) {
        part[i] = cf_dict_string(fields, PARTS[i]);
        where[i] = step(at, PARTS[i]);
        known += part[i] != NULL;
    }
    const cf_json_step name_at = step(at, "$class");
    cf_global *class;
    CF_TRY(class_of(d, cf_dict_string(fields, "$class"), &name_at, &class));
    const cf_node *size = cf_dict_string(fields, "size");
    if (size && known == 1 && fields->count == 2 && size->kind == CF_NODE_INT &&
        size->integer >= 0 && strcmp(class->name, "UntypedStorage") == 0) {
        cf_storage *storage = CF_NEW(d->arena, cf_storage);
        CF_TRY(made(d, storage) && enter(d, json, CF_NODE_STORAGE, out));
        *storage = (cf_storage){.place = CF_NOWHERE, .size = (uint64_t)size->integer, .name = ""};
        (*out)->storage = storage;
        (*out)->element = CF_U8;
        return true;
    }
    if (known != fields->count) return bad(d, at, "a $class has a part that is not known");
    CF_TRY(enter(d, json, known > 1 ? CF_NODE_OBJECT : CF_NODE_GLOBAL, out));
    if (known == 1) {
        (*out)->global = class;
        return true;
    }
    (*out)->object->class = class;
    cf_parts *o = cf_object_own(d->arena, (*out)->object);
    CF_TRY(made(d, o));
    if (part[0]) {
        o->args = cf_node_new(d->arena, CF_NODE_TUPLE);
        CF_TRY(made(d, o->args) && items(d, part[0], &where[0], o->args->list));
    }
    if (part[1]) CF_TRY(decode(d, part[1], &where[1], &o->state));
    if (part[2]) CF_TRY(items(d, part[2], &where[2], &o->items));
    if (part[3]) CF_TRY(pairs(d, part[3], &where[3], &o->pairs));
    return true;
}

/* ---- {"$ref": "/path"} */

/* What a path's next component, from *p on, leads to; NULL: nothing. */
static const cf_node *follow(const cf_node *json, const char **p, const char *end, char *room)
{
    const cf_node name = {.kind = CF_NODE_STRING, .text.at = room};
    size_t n = 0, number = 0;
    if (**p != '/') return NULL;
    for (++*p; *p < end && **p != '/'; ++*p) {
        char c = **p;
        if (c == '~') {
            if (++*p == end || (**p != '0' && **p != '1')) return NULL;
            c = **p == '0' ? '~' : '/';
        }
        room[n++] = c;
    }
    cf_node key = name;
    key.text.length = n;
    if (json->kind == CF_NODE_DICT) return cf_dict_find(json->dict, &key);
    if (json->kind != CF_NODE_LIST || !n || n > 15) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (room[i] < '0' || room[i] > '9') return NULL;
        number = number * 10 + (size_t)(room[i] - '0');
    }
    return number < json->list->count ? json->list->items[number] : NULL;
}

static bool reference(decoder *d, cf_string path, const cf_json_step *at, cf_node **out)
{
    const char *p = path.at, *end = p + path.length;
    const cf_node *json = d->root;
    uint64_t value;
    char *room = cf_alloc(d->arena, path.length);
    CF_TRY(made(d, room));
    while (json && p < end) json = follow(json, &p, end, room);
    if (!json || !cf_map_get(&d->made, &json, sizeof json, &value))
        return bad(d, at, "there is nothing to refer to at '%.*s'",
                   (int)(path.length < 200 ? path.length : 200), path.at);
    *out = (cf_node *)(uintptr_t)value;
    return true;
}

/* ---- atoms */

static bool real(decoder *d, cf_node *json, const cf_json_step *at, double *out)
{
    cf_node *node;
    CF_TRY(decode(d, json, at, &node) && expect(d, node, CF_NODE_FLOAT, "a float", at));
    *out = node->real;
    return true;
}

static bool complex(decoder *d, const cf_node *json, const cf_json_step *at, double out[2])
{
    const cf_json_step in = step(at, "$complex"), re = {&in, NULL, 0}, im = {&in, NULL, 1};
    const cf_node *two = json->kind == CF_NODE_DICT ? cf_dict_string(json->dict, "$complex") : NULL;
    CF_TRY(expect(d, two, CF_NODE_LIST, "a $complex of two floats", at));
    if (two->list->count != 2) return bad(d, at, "a $complex of %zu", two->list->count);
    return real(d, two->list->items[0], &re, &out[0]) && real(d, two->list->items[1], &im, &out[1]);
}

static bool integer(decoder *d, cf_string digits, const cf_json_step *at, cf_node **out)
{
    if (!cf_json_is_integer(digits)) return bad(d, at, "an $int that is no integer");
    *out = cf_json_integer(d->arena, digits.at, digits.length);
    return made(d, *out);
}

static bool bytes(decoder *d, cf_string text, const cf_json_step *at, cf_node **out)
{
    size_t size;
    char *to = cf_alloc(d->arena, text.length);
    CF_TRY(made(d, to));
    if (!cf_json_base64(text, to, &size)) return bad(d, at, "$bytes that are no base64");
    *out = cf_node_text(d->arena, CF_NODE_BYTES, to, size);
    return made(d, *out);
}

static bool dtype_named(decoder *d, const cf_node *json, const cf_json_step *at, cf_dtype *out)
{
    CF_TRY(expect(d, json, CF_NODE_STRING, "a dtype's name", at));
    *out = cf_dtype_named(json->text.at, json->text.length);
    return *out || bad(d, at, "there is no dtype '%.*s'",
                       (int)(json->text.length < 64 ? json->text.length : 64), json->text.at);
}

/* ---- numpy's scalars */

static bool scalar(decoder *d, const cf_dict *fields, const cf_json_step *at, cf_node **out)
{
    const cf_json_step name_at = step(at, "$scalar"), value_at = step(at, "value");
    cf_node *json = cf_dict_string(fields, "value"), *value;
    cf_dtype dtype;
    CF_TRY(dtype_named(d, cf_dict_string(fields, "$scalar"), &name_at, &dtype));
    const cf_dtype_info *info = cf_dtype_of(dtype);
    if (!json || fields->count != 2 || !info->numpy)
        return bad(d, at, "a $scalar of %s", info->name);
    cf_storage *storage = CF_NEW(d->arena, cf_storage);
    uint8_t *is = cf_alloc(d->arena, info->size);
    CF_TRY(made(d, storage) && made(d, is));
    bool fits;
    double parts[2];
    if (info->class == CF_CLASS_COMPLEX) {
        CF_TRY(complex(d, json, &value_at, parts));
        fits = cf_json_put_real(dtype, parts[0], is) &&
               cf_json_put_real(dtype, parts[1], is + info->swap);
    } else if (info->class == CF_CLASS_FLOATING) {
        CF_TRY(real(d, json, &value_at, parts));
        fits = cf_json_put_real(dtype, parts[0], is);
    } else {
        CF_TRY(decode(d, json, &value_at, &value));
        *is = value->kind == CF_NODE_BOOL && value->integer;
        fits = info->class == CF_CLASS_BOOLEAN
                   ? value->kind == CF_NODE_BOOL
                   : (value->kind == CF_NODE_INT || value->kind == CF_NODE_BIG) &&
                         cf_json_put_integer(dtype, value, is);
    }
    if (!fits) return bad(d, &value_at, "no value of %s", info->name);
    *storage = (cf_storage){.place = CF_IN_MEMORY, .size = info->size, .bytes = is, .name = ""};
    *out = cf_node_new(d->arena, CF_NODE_SCALAR);
    CF_TRY(made(d, *out));
    (*out)->view = cf_view_new(d->arena, storage, dtype, 0, 0, NULL, NULL, d->err);
    return (*out)->view != NULL;
}

/* ---- tensors */

/* {"$tensor": null, "dtype": "BF16", "shape": [2, 3]}: one without data. */
static bool tensor_without(decoder *d, const cf_dict *fields, const cf_json_step *at,
                           const cf_view **out)
{
    const cf_json_step dtype_at = step(at, "dtype"), shape_at = step(at, "shape");
    const cf_node *shape = cf_dict_string(fields, "shape");
    cf_dtype dtype;
    int64_t sizes[CF_MOST_DIMS];
    CF_TRY(dtype_named(d, cf_dict_string(fields, "dtype"), &dtype_at, &dtype));
    CF_TRY(expect(d, shape, CF_NODE_LIST, "a shape", &shape_at));
    if (shape->list->count > CF_MOST_DIMS)
        return bad(d, &shape_at, "%zu dimensions", shape->list->count);
    for (size_t i = 0; i < shape->list->count; i++) {
        CF_TRY(expect(d, shape->list->items[i], CF_NODE_INT, "a size", &shape_at));
        sizes[i] = shape->list->items[i]->integer;
    }
    cf_storage *storage = CF_NEW(d->arena, cf_storage);
    CF_TRY(made(d, storage));
    *storage = (cf_storage){.place = CF_NOWHERE, .size = INT64_MAX, .name = ""};
    *out = cf_view_new(d->arena, storage, dtype, 0, (int)shape->list->count, sizes, NULL, d->err);
    return *out != NULL;
}

static bool tensor(decoder *d, const cf_dict *fields, const cf_json_step *at, cf_node **out)
{
    const cf_node *name = cf_dict_string(fields, "$tensor");
    const cf_view *view;
    bool fresh;
    uint64_t *place = NULL;
    if (name->kind == CF_NODE_NONE && fields->count == 3) {
        CF_TRY(tensor_without(d, fields, at, &view));
    } else {
        CF_TRY(expect(d, name, CF_NODE_STRING, "a tensor's name", at));
        if (fields->count != 1 || !d->from->tensor) return bad(d, at, "a $tensor that cannot be");
        place = cf_map_put(&d->names, name->text.at, name->text.length, &fresh);
        CF_TRY(made(d, place));
        if (!fresh) {
            *out = (cf_node *)(uintptr_t)*place;
            return true;
        }
        CF_TRY(d->from->tensor(d->from->ctx, name->text.at, name->text.length, &view, d->err));
        view = cf_view_copy(d->arena, view);
        CF_TRY(made(d, view));
    }
    *out = cf_node_new(d->arena, CF_NODE_TENSOR);
    CF_TRY(made(d, *out));
    (*out)->view = view;
    if (place) *place = (uintptr_t)*out;
    return true;
}

/* ---- all of it */

/* The key of a dict that begins with `$`; NULL if none does. */
static const cf_pair *marked(const cf_dict *dict)
{
    for (size_t i = 0; i < dict->count; i++) {
        const cf_string key = dict->pairs[i].key->text;
        if (key.length && key.at[0] == '$') return &dict->pairs[i];
    }
    return NULL;
}

typedef enum mark_kind {
    TUPLE,
    SET,
    DICT,
    INT,
    BYTES,
    FLOAT,
    REF,
    DTYPE,
    COMPLEX,
    CLASS,
    SCALAR,
    TENSOR,
    MARKS
} mark_kind;

static mark_kind mark_of(cf_string key)
{
    static const char *const NAMES[MARKS] = {"$tuple",   "$set",   "$dict",   "$int",
                                             "$bytes",   "$float", "$ref",    "$dtype",
                                             "$complex", "$class", "$scalar", "$tensor"};
    int i = 0;
    while (i < MARKS && (strlen(NAMES[i]) != key.length || memcmp(NAMES[i], key.at, key.length)))
        i++;
    return (mark_kind)i;
}

static bool decode_marked(decoder *d, cf_node *json, const cf_pair *pair, const cf_json_step *at,
                          cf_node **out)
{
    const cf_string key = pair->key->text;
    const cf_node *value = pair->value;
    const cf_json_step in = {at, key.at, key.length};
    const mark_kind mark = mark_of(key);
    double parts[2];
    if (mark == MARKS || (mark < CLASS && json->dict->count != 1))
        return bad(d, at, "an object with '%.*s' that is none of ours",
                   (int)(key.length < 64 ? key.length : 64), key.at);
    if (mark >= INT && mark <= REF) CF_TRY(expect(d, value, CF_NODE_STRING, "a string", &in));
    switch (mark) {
    case TUPLE:
    case SET:
        return enter(d, json, mark == SET ? CF_NODE_SET : CF_NODE_TUPLE, out) &&
               items(d, value, &in, (*out)->list);
    case DICT: return enter(d, json, CF_NODE_DICT, out) && pairs(d, value, &in, (*out)->dict);
    case INT: return integer(d, value->text, at, out);
    case BYTES: return bytes(d, value->text, at, out);
    case REF: return reference(d, value->text, at, out);
    case CLASS: return object(d, json, at, out);
    case SCALAR: return scalar(d, json->dict, at, out);
    case TENSOR: return tensor(d, json->dict, at, out);
    default: break;
    }
    *out = cf_node_new(d->arena, mark == FLOAT   ? CF_NODE_FLOAT
                                 : mark == DTYPE ? CF_NODE_DTYPE
                                                 : CF_NODE_COMPLEX);
    CF_TRY(made(d, *out));
    if (mark == DTYPE) return dtype_named(d, value, &in, &(*out)->dtype);
    if (mark == FLOAT)
        return cf_json_odd_real(value->text, &(*out)->real) || bad(d, at, "a $float that is none");
    CF_TRY(complex(d, json, at, parts));
    (*out)->complex.re = parts[0];
    (*out)->complex.im = parts[1];
    return true;
}

static bool decode_dict(decoder *d, cf_node *json, const cf_json_step *at, cf_node **out)
{
    for (size_t i = 0; i < json->dict->count; i++)
        CF_TRY(expect(d, json->dict->pairs[i].key, CF_NODE_STRING, "a name", at));
    const cf_pair *pair = marked(json->dict);
    if (pair) return decode_marked(d, json, pair, at, out);
    return enter(d, json, CF_NODE_DICT, out) && plain(d, json->dict, at, (*out)->dict);
}

static bool decode(decoder *d, cf_node *json, const cf_json_step *at, cf_node **out)
{
    *out = json;
    if (json->kind != CF_NODE_LIST && json->kind != CF_NODE_DICT) return true;
    if (d->depth == CF_MOST_DEPTH)
        return cf_fail(d->err, CF_E_DEPTH, "JSON nested more than %d deep", CF_MOST_DEPTH);
    d->depth++;
    CF_TRY(json->kind == CF_NODE_DICT
               ? decode_dict(d, json, at, out)
               : enter(d, json, CF_NODE_LIST, out) && items(d, json, at, (*out)->list));
    d->depth--;
    return true;
}

bool cf_json_decode(const cf_json_decoding *from, cf_node *json, cf_node **value, cf_err *err)
{
    decoder d = {.from = from, .arena = from->arena, .root = json, .err = err};
    const cf_json_step top = {0};
    cf_map_init(&d.made, d.arena);
    cf_map_init(&d.names, d.arena);
    return decode(&d, json, &top, value) && cf_node_check_depth(*value, err);
}
