/* See npy.h. */
#include "npy.h"

#include <stdio.h>
#include <string.h>

#include "num.h"

/* The header while it is read; a failure is kept, so that readers need no checks between. */
typedef struct literal {
    const char *at, *end, *begin;
    uint64_t offset; /* of begin in the file */
    cf_err *err;
} literal;

static bool fail(const literal *s, const char *what)
{
    return cf_fail_at(s->err, CF_E_LAYOUT, (int64_t)(s->offset + (uint64_t)(s->at - s->begin)),
                      "%s expected in numpy's header", what);
}

static char peek(literal *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t')) s->at++;
    return s->at < s->end ? *s->at : '\0';
}

static bool take(literal *s, char c)
{
    if (peek(s) != c) return false;
    s->at++;
    return true;
}

/* 'text' or "text", without escapes: names of fields that need them are no tensor's. */
static bool quoted(literal *s, cf_string *out)
{
    const char quote = peek(s);
    if (quote != '\'' && quote != '"') return fail(s, "a text");
    const char *from = s->at + 1;
    const char *to = memchr(from, quote, (size_t)(s->end - from));
    if (!to || memchr(from, '\\', (size_t)(to - from))) return fail(s, "a text");
    *out = (cf_string){from, (size_t)(to - from)};
    s->at = to + 1;
    return true;
}

static bool is(cf_string text, const char *name)
{
    return text.length == strlen(name) && memcmp(text.at, name, text.length) == 0;
}

static bool word(literal *s, const char *name)
{
    const size_t n = strlen(name);
    peek(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, name, n) != 0) return false;
    s->at += n;
    return true;
}

/* Python 2 wrote long integers as 12L. */
static bool size_of(literal *s, int64_t *out)
{
    const char first = peek(s);
    if (first == '-') return cf_fail(s->err, CF_E_NUMBER, "a negative size in numpy's shape");
    if (first < '0' || first > '9') return fail(s, "a size");
    for (*out = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (!cf_mul(*out, 10, out) || !cf_add(*out, *s->at - '0', out))
            return cf_fail(s->err, CF_E_OVERFLOW, "a size beyond 63 bits in numpy's shape");
    if (s->at < s->end && *s->at == 'L') s->at++;
    return true;
}

/* (), (3,), (3, 4), (3, 4,) */
static bool shape_of(literal *s, cf_npy *out)
{
    if (!take(s, '(')) return fail(s, "a tuple of sizes");
    for (out->ndim = 0; !take(s, ')');) {
        if (out->ndim == CF_MOST_DIMS)
            return cf_fail(s->err, CF_E_LIMIT, "an array of more than %d dimensions", CF_MOST_DIMS);
        CF_TRY(size_of(s, &out->shape[out->ndim++]));
        const bool comma = take(s, ',');
        if (!comma && (out->ndim == 1 || peek(s) != ')')) return fail(s, "a comma"); /* (3) is 3 */
    }
    return true;
}

/* How long the bracket at `at` is, with what it holds, shown up to `most`. */
static int bracket(const char *at, const char *end, int most)
{
    int depth = 0, n = 0;
    while (at + n < end && n < most) {
        const char c = at[n++];
        depth += (c == '[' || c == '(' || c == '{') - (c == ']' || c == ')' || c == '}');
        if (!depth) break;
    }
    return n;
}

/* '<f4'. Anything but a text is a record: its fields are shown as they are written. */
static bool descr_of(literal *s, cf_npy *out)
{
    const char first = peek(s);
    if (first == '[' || first == '(' || first == '{') {
        cf_err_set(s->err, CF_E_DTYPE, "a numpy array of records, not a tensor: %.*s",
                   bracket(s->at, s->end, 80), s->at);
        return cf_err_hint(s->err, "save each field as an array of its own");
    }
    cf_string text;
    CF_TRY(quoted(s, &text));
    cf_string type = text;
    if (type.length && memchr("<>|=", *type.at, 4)) {
        out->big_endian = *type.at == '>';
        type = (cf_string){type.at + 1, type.length - 1};
    }
    out->dtype = cf_dtype_of_numpy(type.at, type.length);
    if (out->dtype) return true;
    if (is(type, "O"))
        return cf_fail(s->err, CF_E_MAGIC, "a numpy array of Python objects, which is a pickle");
    cf_err_set(s->err, CF_E_DTYPE, "a numpy array of type %.*s, which is no tensor's",
               (int)cf_min((int64_t)text.length, 32), text.at);
    if (is(type, "V2")) cf_err_hint(s->err, "bfloat16 is saved so; cast it to float32 first");
    return false;
}

static bool dict_of(literal *s, cf_npy *out)
{
    enum { DESCR = 1, FORTRAN = 2, SHAPE = 4 };
    int seen = 0;
    if (!take(s, '{')) return fail(s, "a dict");
    while (!take(s, '}')) {
        cf_string key;
        CF_TRY(quoted(s, &key));
        const int which = is(key, "descr")           ? DESCR
                          : is(key, "fortran_order") ? FORTRAN
                          : is(key, "shape")         ? SHAPE
                                                     : 0;
        if (!which || (seen & which)) return fail(s, "descr, fortran_order and shape, each once,");
        seen |= which;
        if (!take(s, ':')) return fail(s, "a colon");
        if (which == DESCR) {
            CF_TRY(descr_of(s, out));
        } else if (which == SHAPE) {
            CF_TRY(shape_of(s, out));
        } else {
            out->fortran = word(s, "True");
            if (!out->fortran && !word(s, "False")) return fail(s, "True or False");
        }
        if (!take(s, ',') && peek(s) != '}') return fail(s, "a comma");
    }
    if (seen != (DESCR | FORTRAN | SHAPE)) return fail(s, "descr, fortran_order and shape");
    return peek(s) == '\0' && s->at == s->end ? true : fail(s, "nothing more");
}

bool cf_npy_header(const uint8_t *bytes, size_t have, uint64_t whole, cf_npy *out, cf_err *err)
{
    *out = (cf_npy){.dtype = CF_NO_DTYPE};
    if (!cf_npy_magic(bytes, have)) return cf_fail(err, CF_E_MAGIC, "no numpy array");
    if (have < CF_NPY_MAGIC + 2) return cf_fail(err, CF_E_TRUNCATED, "ends in numpy's header");
    const int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return cf_fail(err, CF_E_MAGIC, "numpy's format %d.%d is not known", major, minor);
    const size_t head = CF_NPY_MAGIC + 2 + (major == 1 ? 2 : 4);
    if (have < head) return cf_fail(err, CF_E_TRUNCATED, "ends in numpy's header");
    const uint64_t length = major == 1 ? cf_le16(bytes + 8) : cf_le32(bytes + 8);
    if (length > CF_NPY_MOST - head)
        return cf_fail(err, CF_E_LIMIT, "a numpy header of %llu bytes", (unsigned long long)length);
    if (have < head + length)
        return cf_fail(err, CF_E_TRUNCATED, "ends in numpy's header of %llu bytes",
                       (unsigned long long)length);
    literal s = {.at = (const char *)bytes + head, .offset = head, .err = err};
    s.begin = s.at;
    s.end = s.at + length;
    CF_TRY(dict_of(&s, out));
    int64_t numel, size;
    if (!cf_numel(out->shape, out->ndim, &numel) ||
        !cf_mul(numel, cf_dtype_size(out->dtype), &size))
        return cf_fail(err, CF_E_OVERFLOW, "a numpy array whose size does not fit in 63 bits");
    out->data = head + length;
    out->size = (uint64_t)size;
    const uint64_t left = whole - out->data;
    if (left < out->size)
        return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)out->data,
                          "a numpy array of %llu bytes, %llu are there",
                          (unsigned long long)out->size, (unsigned long long)left);
    if (left > out->size)
        return cf_fail_at(err, CF_E_TRAILING, (int64_t)(out->data + out->size),
                          "%llu bytes behind the numpy array",
                          (unsigned long long)(left - out->size));
    return true;
}

bool cf_npy_head(cf_text *out, cf_dtype dtype, int ndim, const int64_t *shape, cf_err *err)
{
    enum { ALIGN = 64, GROWTH = 21 }; /* room for a first size of as many digits */
    const cf_dtype_info *info = cf_dtype_of(dtype);
    if (!info->numpy) return cf_fail(err, CF_E_DTYPE, "numpy has no %s", info->name);
    cf_text dict = {0};
    cf_text_printf(&dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                   info->size > 1 ? '<' : '|', info->numpy);
    for (int d = 0; d < ndim; d++)
        cf_text_printf(&dict, d ? ", %lld" : "%lld", (long long)shape[d]);
    cf_text_str(&dict, ndim == 1 ? ",), }" : "), }");
    const int first = ndim ? snprintf(NULL, 0, "%lld", (long long)shape[0]) : GROWTH;
    cf_text_printf(&dict, "%*s", GROWTH - first, "");
    /* numpy always pads: by 1 to 64 bytes before the newline */
    const size_t head = CF_NPY_MAGIC + 4, bare = head + dict.size + 1;
    cf_text_printf(&dict, "%*s\n", (int)(ALIGN - bare % ALIGN), "");
    const uint8_t version[4] = {1, 0, (uint8_t)dict.size, (uint8_t)(dict.size >> 8)};
    cf_text_add(out, "\x93NUMPY", CF_NPY_MAGIC);
    cf_text_add(out, version, sizeof version);
    cf_text_add(out, dict.at, dict.size);
    const bool ok = cf_text_ok(&dict, err) && cf_text_ok(out, err);
    cf_text_free(&dict);
    return ok;
}

cf_node *cf_npy_node(const cf_npy *npy, const cf_storage *storage, uint64_t offset, cf_reading *r,
                     cf_err *err)
{
    int64_t stride[CF_MOST_DIMS], next = 1;
    for (int d = 0; d < npy->ndim; d++) { /* Fortran's: the first dimension is the innermost */
        stride[d] = next;
        if (npy->size) next *= npy->shape[d];
    }
    cf_node *node = cf_node_new(r->tree, CF_NODE_TENSOR);
    if (!node) {
        cf_arena_ok(r->tree, err);
        return NULL;
    }
    node->view = cf_view_new(r->tree, storage, npy->dtype, offset, npy->ndim, npy->shape,
                             npy->fortran ? stride : NULL, err);
    return node->view ? node : NULL;
}

bool cf_npy_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err)
{
    const size_t have = (size_t)cf_min((int64_t)span->size, CF_NPY_MOST);
    uint8_t *head = cf_alloc(r->tree, have);
    cf_storage *storage = CF_NEW(r->keep, cf_storage);
    if (!head || !storage) return cf_arena_ok(r->tree, err) && cf_arena_ok(r->keep, err);
    cf_npy npy;
    CF_TRY(cf_span_read(span, 0, head, have, err) &&
           cf_npy_header(head, have, span->size, &npy, err));
    *storage = (cf_storage){.place = span->fd < 0 ? CF_IN_MEMORY : CF_IN_FILE,
                            .file = r->file,
                            .offset = span->start + npy.data,
                            .bytes = span->fd < 0 ? span->bytes + npy.data : NULL,
                            .size = npy.size,
                            .name = "",
                            .big_endian = npy.big_endian};
    *root = cf_npy_node(&npy, storage, 0, r, err);
    return *root != NULL;
}
