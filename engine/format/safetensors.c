/* The safetensors reader: one pass over the header, without a JSON tree.
 *
 * The header is read once into the tree's arena and scanned there; names are pointers into it. A
 * tensor costs its two nodes, its view and its place in the dict. JSON is taken as serde_json
 * takes it (the reference reader): strict, with unknown fields skipped and white space around the
 * object. Whether the ranges tile the data is known only at the end; until then the storage passes
 * for an endless one.
 *
 * Source: huggingface/safetensors safetensors/src/tensor.rs (read_metadata, Metadata::validate);
 * RFC 8259.
 */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "json_scan.h"

enum { HEADER_AT = 8 }; /* the header's first byte in the file */

/* For a value of the wrong type; one that is no JSON either fails as that. */
static bool wrong_type(cf_scan *s, const char *wanted)
{
    cf_scan_peek(s);
    const int64_t at = cf_scan_offset(s);
    CF_TRY(cf_scan_skip(s, 1));
    return cf_fail_at(s->err, CF_E_JSON, at, "%s expected", wanted);
}

/* An integer from 0 to 2^63 - 1, exactly. */
static bool integer(cf_scan *s, int64_t *out)
{
    const char first = cf_scan_peek(s);
    if (first == '-') return cf_scan_fail(s, CF_E_NUMBER, "a negative number");
    if (first < '0' || first > '9') return wrong_type(s, "an integer");
    cf_string digits;
    bool whole;
    uint64_t n = 0;
    CF_TRY(cf_scan_number(s, &digits, &whole));
    if (!whole) return cf_scan_fail(s, CF_E_JSON, "an integer expected");
    for (size_t i = 0; i < digits.length; i++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(digits.at[i] - '0'), &n))
            return cf_scan_fail(s, CF_E_NUMBER, "a number beyond 64 bits");
    if (n > INT64_MAX) return cf_scan_fail(s, CF_E_OVERFLOW, "a number beyond 63 bits");
    *out = (int64_t)n;
    return true;
}

/* Counts all, stores the first `most`. */
static bool integers(cf_scan *s, int64_t *out, int most, int *count)
{
    if (cf_scan_peek(s) != '[') return wrong_type(s, "a list of integers");
    s->at++;
    *count = 0;
    if (cf_scan_take(s, ']')) return true;
    do {
        int64_t n = 0;
        CF_TRY(integer(s, &n));
        if (*count < most) out[*count] = n;
        ++*count;
    } while (cf_scan_take(s, ','));
    return cf_scan_expect(s, ']');
}

static bool is(cf_string text, const char *name)
{
    return text.length == strlen(name) && memcmp(text.at, name, text.length) == 0;
}

static bool in_member(cf_err *err, cf_string name)
{
    char text[sizeof err->member];
    snprintf(text, sizeof text, "%.*s", (int)name.length, name.at);
    return cf_err_in_member(err, text);
}

static bool element_type(cf_scan *s, cf_dtype *out)
{
    cf_string name;
    if (cf_scan_peek(s) != '"') return wrong_type(s, "a dtype's name");
    const int64_t at = cf_scan_offset(s);
    CF_TRY(cf_scan_string(s, &name));
    *out = cf_dtype_named(name.at, name.length);
    if (cf_dtype_of(*out)->safetensors) return true;
    return cf_fail_at(s->err, CF_E_DTYPE, at, "dtype %.*s is not supported",
                      (int)(name.length < 64 ? name.length : 64), name.at);
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} */
static bool tensor(cf_scan *s, cf_arena *arena, const cf_storage *data, const cf_view **out)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    cf_dtype dtype = CF_NO_DTYPE;
    int64_t shape[CF_MOST_DIMS], range[2] = {0, 0};
    int ndim = 0, ends = 0, seen = 0;
    if (cf_scan_peek(s) != '{') return wrong_type(s, "an object that describes a tensor");
    const int64_t at = cf_scan_offset(s);
    s->at++;
    if (!cf_scan_take(s, '}')) {
        do {
            cf_string field;
            CF_TRY(cf_scan_string(s, &field) && cf_scan_expect(s, ':'));
            const int bit = is(field, "dtype")          ? DTYPE
                            : is(field, "shape")        ? SHAPE
                            : is(field, "data_offsets") ? OFFSETS
                                                        : 0;
            if (seen & bit) return cf_scan_fail(s, CF_E_DUP_KEY, "a field of a tensor twice");
            seen |= bit;
            CF_TRY(bit == DTYPE     ? element_type(s, &dtype)
                   : bit == SHAPE   ? integers(s, shape, CF_MOST_DIMS, &ndim)
                   : bit == OFFSETS ? integers(s, range, 2, &ends)
                                    : cf_scan_skip(s, 1));
        } while (cf_scan_take(s, ','));
        CF_TRY(cf_scan_expect(s, '}'));
    }
    if (seen != ALL)
        return cf_fail_at(s->err, CF_E_JSON, at, "no %s",
                          !(seen & DTYPE)   ? "dtype"
                          : !(seen & SHAPE) ? "shape"
                                            : "data_offsets");
    if (ends != 2) return cf_fail_at(s->err, CF_E_JSON, at, "%d data_offsets, 2 are needed", ends);
    if (range[1] < range[0])
        return cf_fail_at(s->err, CF_E_LAYOUT, at, "data_offsets end at %lld, before they begin",
                          (long long)range[1]);
    *out = cf_view_new(arena, data, dtype, (uint64_t)range[0], ndim, shape, NULL, s->err);
    if (!*out) {
        if (s->err->offset < 0) s->err->offset = at;
        return false;
    }
    const int64_t bytes = (*out)->numel * cf_dtype_size(dtype);
    if (bytes != range[1] - range[0]) {
        char what[256];
        return cf_fail_at(s->err, CF_E_LAYOUT, at, "%s takes %lld bytes, data_offsets hold %lld",
                          cf_view_text(dtype, ndim, shape, what, sizeof what), (long long)bytes,
                          (long long)(range[1] - range[0]));
    }
    return true;
}

static bool add(cf_scan *s, cf_arena *arena, cf_dict *dict, cf_string name, cf_node *value)
{
    bool replaced;
    cf_node *key = cf_node_text(arena, CF_NODE_STRING, name.at, name.length);
    if (!key || !value) return cf_arena_ok(arena, s->err);
    CF_TRY(cf_dict_set(arena, dict, key, value, &replaced, s->err));
    return !replaced || cf_scan_fail(s, CF_E_DUP_KEY, "a name twice");
}

/* {"<string>": "<string>"}, or null as serde has it */
static bool metadata(cf_scan *s, cf_arena *arena, cf_dict *meta)
{
    if (cf_scan_peek(s) == 'n') return cf_scan_skip(s, 1);
    if (cf_scan_peek(s) != '{') return wrong_type(s, "an object of strings");
    s->at++;
    if (cf_scan_take(s, '}')) return true;
    do {
        cf_string key, value;
        CF_TRY(cf_scan_string(s, &key) && cf_scan_expect(s, ':'));
        if (cf_scan_peek(s) != '"') return wrong_type(s, "a string");
        CF_TRY(cf_scan_string(s, &value));
        CF_TRY(
            add(s, arena, meta, key, cf_node_text(arena, CF_NODE_STRING, value.at, value.length)));
    } while (cf_scan_take(s, ','));
    return cf_scan_expect(s, '}');
}

static bool header(cf_scan *s, cf_arena *arena, const cf_storage *data, cf_dict *tensors,
                   cf_dict *meta)
{
    bool has_meta = false;
    if (cf_scan_peek(s) != '{') return wrong_type(s, "an object");
    s->at++;
    if (cf_scan_take(s, '}')) return true;
    do {
        cf_string name;
        CF_TRY(cf_scan_string(s, &name));
        if (memchr(name.at, '\0', name.length))
            return cf_scan_fail(s, CF_E_UTF8, "a NUL in the name of a tensor");
        CF_TRY(cf_scan_expect(s, ':'));
        if (is(name, "__metadata__")) {
            if (has_meta) return cf_scan_fail(s, CF_E_DUP_KEY, "__metadata__ twice");
            has_meta = true;
            if (!metadata(s, arena, meta)) return in_member(s->err, name);
            continue;
        }
        cf_node *node = cf_node_new(arena, CF_NODE_TENSOR);
        if (!node) return cf_arena_ok(arena, s->err);
        if (!tensor(s, arena, data, &node->view) || !add(s, arena, tensors, name, node))
            return in_member(s->err, name);
    } while (cf_scan_take(s, ','));
    return cf_scan_expect(s, '}');
}

static uint64_t end_of(const cf_pair *pair)
{
    const cf_view *v = pair->value->view;
    return v->offset + (uint64_t)(v->numel * cf_dtype_size(v->dtype));
}

/* By begin, empty ranges first, then as in the header. */
static int by_begin(const void *left, const void *right)
{
    const cf_pair *a = *(const cf_pair *const *)left, *b = *(const cf_pair *const *)right;
    const uint64_t i = a->value->view->offset, j = b->value->view->offset;
    if (i != j) return i < j ? -1 : 1;
    const int order = (end_of(a) > i) - (end_of(b) > j);
    return order ? order : a < b ? -1 : 1;
}

/* Do the ranges tile the data, the `size` bytes from `at` on? short_of: all that is wrong is that
 * the file ends early. */
static bool tiled(cf_arena *arena, const cf_dict *tensors, uint64_t at, uint64_t size,
                  bool open_end, bool *short_of, cf_err *err)
{
    const size_t count = tensors->count;
    const cf_pair **order = CF_NEWS(arena, const cf_pair *, count);
    if (!order) return cf_arena_ok(arena, err);
    bool sorted = true;
    for (size_t i = 0; i < count; i++) {
        order[i] = &tensors->pairs[i];
        sorted = sorted && (i == 0 || by_begin(&order[i - 1], &order[i]) < 0);
    }
    if (!sorted) qsort(order, count, sizeof *order, by_begin);
    uint64_t end = 0;
    const cf_pair *cut = NULL;
    for (size_t i = 0; i < count; i++) {
        const uint64_t begin = order[i]->value->view->offset;
        if (begin != end) {
            cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + (begin < end ? begin : end)),
                       begin < end
                           ? "begins at byte %llu of the data, within the tensor before it, "
                             "which ends at %llu"
                           : "begins at byte %llu of the data, but the bytes from %llu on "
                             "belong to no tensor",
                       (unsigned long long)begin, (unsigned long long)end);
            return in_member(err, order[i]->key->text);
        }
        end = end_of(order[i]);
        if (end > size && !cut) cut = order[i];
    }
    if (cut) {
        *short_of = true;
        cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + size),
                   "the file ends %llu bytes early: its tensors take %llu bytes, %llu are there",
                   (unsigned long long)(end - size), (unsigned long long)end,
                   (unsigned long long)size);
        return in_member(err, cut->key->text);
    }
    return end == size || open_end ||
           cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + end), "%llu bytes follow the last tensor",
                      (unsigned long long)(size - end));
}

/* What does not lie wholly in the file any more lies nowhere. */
static bool lose(cf_reading *r, cf_dict *tensors, const cf_storage *data, cf_err *err)
{
    cf_storage *nowhere = CF_NEW(r->keep, cf_storage);
    if (!nowhere) return cf_arena_ok(r->keep, err);
    *nowhere = (cf_storage){.place = CF_NOWHERE, .file = r->file, .size = INT64_MAX, .name = ""};
    for (size_t i = 0; i < tensors->count; i++) {
        cf_node *node = tensors->pairs[i].value;
        if (end_of(&tensors->pairs[i]) <= data->size) continue;
        cf_view *view = cf_memdup(r->tree, node->view, sizeof *view);
        if (!view) return cf_arena_ok(r->tree, err);
        view->storage = nowhere;
        node->view = view;
    }
    return true;
}

/* What ckptflow wrote as pairs of real numbers is complex again: {"<name>": "C128"}. */
static bool unpair(cf_reading *r, cf_dict *tensors, cf_string said, cf_err *err)
{
    cf_node *names;
    CF_TRY(cf_json_read(said.at, said.length, r->tree, &names, err));
    for (size_t i = 0; names->kind == CF_NODE_DICT && i < names->dict->count; i++) {
        const cf_node *dtype = names->dict->pairs[i].value;
        cf_node *node = cf_dict_find(tensors, names->dict->pairs[i].key);
        const cf_view *pairs = node ? node->view : NULL;
        const cf_dtype complex = dtype->kind != CF_NODE_STRING ? CF_NO_DTYPE
                                 : is(dtype->text, "C128")     ? CF_C128
                                 : is(dtype->text, "C32")      ? CF_C32
                                                               : CF_NO_DTYPE;
        if (!pairs || !complex || pairs->dtype != (complex == CF_C128 ? CF_F64 : CF_F16) ||
            !pairs->ndim || pairs->shape[pairs->ndim - 1] != 2) {
            cf_fail(err, CF_E_DTYPE, "ckptflow.dtype says what cannot be");
            return in_member(err, names->dict->pairs[i].key->text);
        }
        node->view = cf_view_new(r->tree, pairs->storage, complex, pairs->offset, pairs->ndim - 1,
                                 pairs->shape, NULL, err);
        CF_TRY(node->view);
    }
    return true;
}

/* What a file often is when its first 8 bytes are no length. */
static bool bad_size(const cf_span *span, uint64_t n, cf_err *err)
{
    static const char LFS[] = "version https://git-lfs";
    char first[sizeof LFS - 1] = "";
    const size_t some = span->size < sizeof first ? (size_t)span->size : sizeof first;
    CF_TRY(cf_span_read(span, 0, first, some, err));
    cf_fail_at(err, CF_E_HEADER_SIZE, 0,
               "a header of %llu bytes in a file of %llu; safetensors allows %d",
               (unsigned long long)n, (unsigned long long)span->size, CF_ST_MOST_HEADER);
    if (memcmp(first, LFS, sizeof first) == 0)
        cf_err_hint(err, "this is a pointer of git-lfs, not the file itself: git lfs pull");
    else if (first[0] == '<' && n > span->size)
        cf_err_hint(err, "this is a web page, not a checkpoint: the download went wrong");
    return false;
}

bool cf_safetensors_read(const cf_span *span, cf_reading *r, cf_node **root, cf_node **meta,
                         cf_err *err)
{
    uint8_t length[HEADER_AT];
    CF_TRY(cf_span_read(span, 0, length, sizeof length, err));
    const uint64_t n = cf_le64(length);
    if (n < 2 || n > CF_ST_MOST_HEADER || n > span->size - HEADER_AT) return bad_size(span, n, err);

    cf_scan s;
    char *text = cf_alloc(r->tree, n + 1);
    cf_node *tensors = cf_node_new(r->tree, CF_NODE_DICT);
    cf_node *strings = cf_node_new(r->tree, CF_NODE_DICT);
    cf_storage *data = CF_NEW(r->keep, cf_storage);
    if (!text || !tensors || !strings) return cf_arena_ok(r->tree, err);
    if (!data) return cf_arena_ok(r->keep, err);
    CF_TRY(cf_span_read(span, HEADER_AT, text, n, err));
    text[n] = '\0';
    CF_TRY(cf_scan_begin(&s, text, n, HEADER_AT, err));

    *data = (cf_storage){.place = CF_IN_FILE,
                         .file = r->file,
                         .offset = span->start + HEADER_AT + n,
                         .size = INT64_MAX,
                         .name = ""};
    CF_TRY(header(&s, r->tree, data, tensors->dict, strings->dict) && cf_scan_end(&s));
    data->size = span->size - HEADER_AT - n;
    bool cut = false;
    if (!tiled(r->tree, tensors->dict, HEADER_AT + n, data->size, r->open_end, &cut, err)) {
        if (!cut || !r->cut) return false;
        *r->cut = *err;
        CF_TRY(lose(r, tensors->dict, data, err));
    }
    const cf_node *said = cf_dict_string(strings->dict, "ckptflow.dtype");
    if (said) CF_TRY(unpair(r, tensors->dict, said->text, err));
    *root = tensors;
    *meta = strings;
    return true;
}
