/* The safetensors reader: one pass over the header, without a JSON tree.
 *
 * The header is read once into the tree's arena and scanned there. Names are pointers into it;
 * escapes are decoded in place, because a decoded text is never longer than the escaped one. A
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

typedef struct scan {
    char *text; /* the header, `size` bytes of valid UTF-8, then a NUL */
    size_t at, size;
    cf_err *err;
} scan;

enum { HEADER_AT = 8 }; /* the header's first byte in the file */

static int64_t offset_of(const scan *s)
{
    return HEADER_AT + (int64_t)s->at;
}

static bool fail(const scan *s, cf_code code, const char *message)
{
    return cf_fail_at(s->err, code, offset_of(s), "%s", message);
}

/* The next character that is no white space; NUL at the end (or for a NUL, which fits nowhere). */
static char peek(scan *s)
{
    for (;; s->at++) {
        const char c = s->text[s->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    }
}

static bool take(scan *s, char c)
{
    if (peek(s) != c) return false;
    s->at++;
    return true;
}

static bool expect(scan *s, char c)
{
    if (take(s, c)) return true;
    if (s->at == s->size)
        return cf_fail_at(s->err, CF_E_JSON, offset_of(s), "the header ends where '%c' belongs", c);
    return cf_fail_at(s->err, CF_E_JSON, offset_of(s), "'%c' expected", c);
}

static bool hex4(scan *s, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = s->text[s->at], low = (char)(c | 0x20);
        const int digit = c >= '0' && c <= '9'       ? c - '0'
                          : low >= 'a' && low <= 'f' ? low - 'a' + 10
                                                     : -1;
        if (digit < 0) return fail(s, CF_E_JSON, "\\u without four hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static bool unicode_escape(scan *s, char **to)
{
    uint32_t c, low;
    CF_TRY(hex4(s, &c));
    if (c >= 0xd800 && c < 0xe000) {
        if (c >= 0xdc00 || strncmp(s->text + s->at, "\\u", 2) != 0)
            return fail(s, CF_E_UTF8, "half a surrogate pair");
        s->at += 2;
        CF_TRY(hex4(s, &low));
        if (low < 0xdc00 || low > 0xdfff) return fail(s, CF_E_UTF8, "half a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    char *p = *to;
    if (c < 0x80) {
        *p++ = (char)c;
    } else if (c < 0x800) {
        *p++ = (char)(0xc0 | c >> 6);
        *p++ = (char)(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            *p++ = (char)(0xe0 | c >> 12);
        } else {
            *p++ = (char)(0xf0 | c >> 18);
            *p++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *p++ = (char)(0x80 | (c >> 6 & 0x3f));
        *p++ = (char)(0x80 | (c & 0x3f));
    }
    *to = p;
    return true;
}

static bool escape(scan *s, char **to)
{
    static const char FROM[] = "\"\\/bfnrt", INTO[] = "\"\\/\b\f\n\r\t";
    const char c = s->text[s->at];
    const char *known = c ? strchr(FROM, c) : NULL;
    if (c != 'u' && !known) return fail(s, CF_E_JSON, "an unknown escape in a string");
    s->at++;
    if (c == 'u') return unicode_escape(s, to);
    *(*to)++ = INTO[known - FROM];
    return true;
}

static bool string(scan *s, cf_string *out)
{
    CF_TRY(expect(s, '"'));
    char *const from = s->text + s->at, *to = from;
    while (s->text[s->at] != '"') {
        const char c = s->text[s->at];
        if (s->at == s->size) return fail(s, CF_E_JSON, "the header ends within a string");
        if ((unsigned char)c < 0x20) return fail(s, CF_E_JSON, "a control character in a string");
        s->at++;
        if (c == '\\')
            CF_TRY(escape(s, &to));
        else
            *to++ = c;
    }
    s->at++;
    *out = (cf_string){from, (size_t)(to - from)};
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool digits(scan *s)
{
    const size_t from = s->at;
    while (is_digit(s->text[s->at])) s->at++;
    return s->at > from || fail(s, CF_E_JSON, "a digit expected");
}

/* A number or a word, for what is skipped. */
static bool skip_atom(scan *s)
{
    static const char *const WORDS[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        const size_t n = strlen(WORDS[i]);
        if (strncmp(s->text + s->at, WORDS[i], n) != 0) continue;
        s->at += n;
        return true;
    }
    if (!is_digit(s->text[s->at]) && s->text[s->at] != '-')
        return fail(s, CF_E_JSON, "a value expected");
    if (s->text[s->at] == '-') s->at++;
    if (s->text[s->at] == '0')
        s->at++;
    else
        CF_TRY(digits(s));
    if (s->text[s->at] == '.') {
        s->at++;
        CF_TRY(digits(s));
    }
    if ((s->text[s->at] | 0x20) == 'e') {
        s->at++;
        if (s->text[s->at] == '-' || s->text[s->at] == '+') s->at++;
        CF_TRY(digits(s));
    }
    return true;
}

static bool skip(scan *s, int depth)
{
    cf_string ignored;
    const char c = peek(s);
    if (c == '"') return string(s, &ignored);
    if (c != '{' && c != '[') return skip_atom(s);
    if (depth > CF_MOST_DEPTH) return fail(s, CF_E_DEPTH, "JSON nested too deeply");
    const char close = c == '{' ? '}' : ']';
    s->at++;
    if (take(s, close)) return true;
    do {
        if (c == '{') CF_TRY(string(s, &ignored) && expect(s, ':'));
        CF_TRY(skip(s, depth + 1));
    } while (take(s, ','));
    return expect(s, close);
}

/* For a value of the wrong type; one that is no JSON either fails as that. */
static bool wrong_type(scan *s, const char *wanted)
{
    peek(s);
    const int64_t at = offset_of(s);
    CF_TRY(skip(s, 1));
    return cf_fail_at(s->err, CF_E_JSON, at, "%s expected", wanted);
}

/* An integer from 0 to 2^63 - 1, exactly. */
static bool integer(scan *s, int64_t *out)
{
    const char first = peek(s);
    if (first == '-') return fail(s, CF_E_NUMBER, "a negative number");
    if (!is_digit(first)) return wrong_type(s, "an integer");
    const size_t from = s->at;
    uint64_t n = 0;
    for (; is_digit(s->text[s->at]); s->at++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(s->text[s->at] - '0'), &n))
            return fail(s, CF_E_NUMBER, "a number beyond 64 bits");
    const char after = s->text[s->at];
    if (after == '.' || (after | 0x20) == 'e') return fail(s, CF_E_JSON, "an integer expected");
    if (first == '0' && s->at - from > 1) return fail(s, CF_E_JSON, "a number that begins with 0");
    if (n > INT64_MAX) return fail(s, CF_E_OVERFLOW, "a number beyond 63 bits");
    *out = (int64_t)n;
    return true;
}

/* Counts all, stores the first `most`. */
static bool integers(scan *s, int64_t *out, int most, int *count)
{
    if (peek(s) != '[') return wrong_type(s, "a list of integers");
    s->at++;
    *count = 0;
    if (take(s, ']')) return true;
    do {
        int64_t n = 0;
        CF_TRY(integer(s, &n));
        if (*count < most) out[*count] = n;
        ++*count;
    } while (take(s, ','));
    return expect(s, ']');
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

static bool element_type(scan *s, cf_dtype *out)
{
    cf_string name;
    if (peek(s) != '"') return wrong_type(s, "a dtype's name");
    const int64_t at = offset_of(s);
    CF_TRY(string(s, &name));
    *out = cf_dtype_named(name.at, name.length);
    if (cf_dtype_of(*out)->safetensors) return true;
    return cf_fail_at(s->err, CF_E_DTYPE, at, "dtype %.*s is not supported",
                      (int)(name.length < 64 ? name.length : 64), name.at);
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} */
static bool tensor(scan *s, cf_arena *arena, const cf_storage *data, const cf_view **out)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    cf_dtype dtype = CF_NO_DTYPE;
    int64_t shape[CF_MOST_DIMS], range[2] = {0, 0};
    int ndim = 0, ends = 0, seen = 0;
    if (peek(s) != '{') return wrong_type(s, "an object that describes a tensor");
    const int64_t at = offset_of(s);
    s->at++;
    if (!take(s, '}')) {
        do {
            cf_string field;
            CF_TRY(string(s, &field) && expect(s, ':'));
            const int bit = is(field, "dtype")          ? DTYPE
                            : is(field, "shape")        ? SHAPE
                            : is(field, "data_offsets") ? OFFSETS
                                                        : 0;
            if (seen & bit) return fail(s, CF_E_DUP_KEY, "a field of a tensor twice");
            seen |= bit;
            CF_TRY(bit == DTYPE     ? element_type(s, &dtype)
                   : bit == SHAPE   ? integers(s, shape, CF_MOST_DIMS, &ndim)
                   : bit == OFFSETS ? integers(s, range, 2, &ends)
                                    : skip(s, 1));
        } while (take(s, ','));
        CF_TRY(expect(s, '}'));
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

static bool add(scan *s, cf_arena *arena, cf_dict *dict, cf_string name, cf_node *value)
{
    bool replaced;
    cf_node *key = cf_node_text(arena, CF_NODE_STRING, name.at, name.length);
    if (!key || !value) return cf_arena_ok(arena, s->err);
    CF_TRY(cf_dict_set(arena, dict, key, value, &replaced, s->err));
    return !replaced || fail(s, CF_E_DUP_KEY, "a name twice");
}

/* {"<string>": "<string>"}, or null as serde has it */
static bool metadata(scan *s, cf_arena *arena, cf_dict *meta)
{
    if (peek(s) == 'n') return skip(s, 1);
    if (peek(s) != '{') return wrong_type(s, "an object of strings");
    s->at++;
    if (take(s, '}')) return true;
    do {
        cf_string key, value;
        CF_TRY(string(s, &key) && expect(s, ':'));
        if (peek(s) != '"') return wrong_type(s, "a string");
        CF_TRY(string(s, &value));
        CF_TRY(
            add(s, arena, meta, key, cf_node_text(arena, CF_NODE_STRING, value.at, value.length)));
    } while (take(s, ','));
    return expect(s, '}');
}

static bool header(scan *s, cf_arena *arena, const cf_storage *data, cf_dict *tensors,
                   cf_dict *meta)
{
    bool has_meta = false;
    if (peek(s) != '{') return wrong_type(s, "an object");
    s->at++;
    if (take(s, '}')) return true;
    do {
        cf_string name;
        CF_TRY(string(s, &name));
        if (memchr(name.at, '\0', name.length))
            return fail(s, CF_E_UTF8, "a NUL in the name of a tensor");
        CF_TRY(expect(s, ':'));
        if (is(name, "__metadata__")) {
            if (has_meta) return fail(s, CF_E_DUP_KEY, "__metadata__ twice");
            has_meta = true;
            if (!metadata(s, arena, meta)) return in_member(s->err, name);
            continue;
        }
        cf_node *node = cf_node_new(arena, CF_NODE_TENSOR);
        if (!node) return cf_arena_ok(arena, s->err);
        if (!tensor(s, arena, data, &node->view) || !add(s, arena, tensors, name, node))
            return in_member(s->err, name);
    } while (take(s, ','));
    return expect(s, '}');
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

/* Do the ranges tile the data, the `size` bytes from `at` on? */
static bool tiled(cf_arena *arena, const cf_dict *tensors, uint64_t at, uint64_t size, cf_err *err)
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
        cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + size),
                   "the file ends %llu bytes early: its tensors take %llu bytes, %llu are there",
                   (unsigned long long)(end - size), (unsigned long long)end,
                   (unsigned long long)size);
        return in_member(err, cut->key->text);
    }
    return end == size ||
           cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + end), "%llu bytes follow the last tensor",
                      (unsigned long long)(size - end));
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

    scan s = {.text = cf_alloc(r->tree, n + 1), .size = n, .err = err};
    cf_node *tensors = cf_node_new(r->tree, CF_NODE_DICT);
    cf_node *strings = cf_node_new(r->tree, CF_NODE_DICT);
    cf_storage *data = CF_NEW(r->keep, cf_storage);
    if (!s.text || !tensors || !strings) return cf_arena_ok(r->tree, err);
    if (!data) return cf_arena_ok(r->keep, err);
    CF_TRY(cf_span_read(span, HEADER_AT, s.text, n, err));
    s.text[n] = '\0';
    s.at = cf_utf8_valid(s.text, n);
    if (s.at < n) return fail(&s, CF_E_UTF8, "the header is not UTF-8");
    s.at = 0;

    *data = (cf_storage){.place = CF_IN_FILE,
                         .file = r->file,
                         .offset = span->start + HEADER_AT + n,
                         .size = INT64_MAX,
                         .name = ""};
    CF_TRY(header(&s, r->tree, data, tensors->dict, strings->dict));
    peek(&s);
    if (s.at < n) return fail(&s, CF_E_JSON, "more than one JSON value in the header");
    data->size = span->size - HEADER_AT - n;
    CF_TRY(tiled(r->tree, tensors->dict, HEADER_AT + n, data->size, err));
    *root = tensors;
    *meta = strings;
    return true;
}
