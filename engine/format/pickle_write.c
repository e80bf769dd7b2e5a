#include "pickle_write.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 1000, MOST_LONG = 255 };

static void fault(cf_pickler *p, cf_code code, const char *what)
{
    if (!p->err.code) cf_err_set(&p->err, code, "%s", what);
}

static void op(cf_pickler *p, char code)
{
    cf_text_add(p->out, &code, 1);
}

/* An opcode and `size` bytes of a number, little-endian. */
static void op_number(cf_pickler *p, char code, uint64_t value, int size)
{
    char bytes[9] = {code};
    for (int i = 0; i < size; i++) bytes[1 + i] = (char)(value >> 8 * i);
    cf_text_add(p->out, bytes, 1 + (size_t)size);
}

void cf_pickler_init(cf_pickler *p, cf_text *out)
{
    *p = (cf_pickler){.out = out};
    cf_arena_init(&p->arena, 0);
    cf_map_init(&p->known, &p->arena);
    cf_text_add(out, "\x80\x02", 2);
}

void cf_pickler_free(cf_pickler *p)
{
    cf_arena_free(&p->arena);
}

bool cf_pickler_end(cf_pickler *p, cf_err *err)
{
    op(p, '.');
    if (p->err.code) {
        *err = p->err;
        return false;
    }
    return cf_arena_ok(&p->arena, err) && cf_text_ok(p->out, err);
}

/* ---- the memo ----------------------------------------------------------------------------------
 */

uint32_t cf_pickle_put(cf_pickler *p)
{
    op_number(p, p->memo < 256 ? 'q' : 'r', p->memo, p->memo < 256 ? 1 : 4);
    if (p->memo == UINT32_MAX) fault(p, CF_E_LIMIT, "a pickle of more than 2^32 shared values");
    return p->memo++;
}

void cf_pickle_get(cf_pickler *p, uint32_t number)
{
    op_number(p, number < 256 ? 'h' : 'j', number, number < 256 ? 1 : 4);
}

/* Is it in the memo? Then it is fetched, else it shall be pushed and put at the next number. The
 * key is copied only when it is new. */
static bool fetched(cf_pickler *p, const char *key, size_t length)
{
    uint64_t number;
    if (cf_map_get(&p->known, key, length, &number)) {
        cf_pickle_get(p, (uint32_t)(number - 1));
        return true;
    }
    bool fresh;
    const char *own = cf_strndup(&p->arena, key, length);
    uint64_t *place = own ? cf_map_put(&p->known, own, length, &fresh) : NULL;
    if (place) *place = (uint64_t)p->memo + 1;
    return false;
}

/* ---- atoms -------------------------------------------------------------------------------------
 */

void cf_pickle_none(cf_pickler *p)
{
    op(p, 'N');
}

void cf_pickle_bool(cf_pickler *p, bool value)
{
    op(p, value ? '\x88' : '\x89');
}

/* The fewest bytes of two's complement. */
static void long1(cf_pickler *p, const uint8_t *bytes, size_t size)
{
    while (size > 1 && ((bytes[size - 1] == 0 && !(bytes[size - 2] & 0x80)) ||
                        (bytes[size - 1] == 0xff && (bytes[size - 2] & 0x80))))
        size--;
    if (size > MOST_LONG) {
        fault(p, CF_E_NUMBER, "an integer of more than 255 bytes");
        return;
    }
    op_number(p, '\x8a', size, 1);
    cf_text_add(p->out, bytes, size);
}

void cf_pickle_int(cf_pickler *p, int64_t value)
{
    if (value >= 0 && value < 256) {
        op_number(p, 'K', (uint64_t)value, 1);
    } else if (value >= 0 && value < 65536) {
        op_number(p, 'M', (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        op_number(p, 'J', (uint64_t)value, 4);
    } else {
        uint8_t bytes[8];
        for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)value >> 8 * i);
        long1(p, bytes, sizeof bytes);
    }
}

void cf_pickle_big(cf_pickler *p, const char *digits, size_t length)
{
    uint8_t bytes[MOST_LONG + 2] = {0};
    const bool minus = length && digits[0] == '-';
    if (length > CF_PICKLE_DIGITS) {
        fault(p, CF_E_NUMBER, "an integer of more than 600 digits");
        return;
    }
    for (size_t i = minus; i < length; i++) {
        unsigned carry = (unsigned)(digits[i] - '0');
        for (size_t k = 0; k < sizeof bytes; k++) {
            carry += bytes[k] * 10u;
            bytes[k] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    for (unsigned k = 0, carry = 1; minus && k < sizeof bytes; k++) {
        carry += (uint8_t)~bytes[k];
        bytes[k] = (uint8_t)carry;
        carry >>= 8;
    }
    long1(p, bytes, sizeof bytes);
}

void cf_pickle_float(cf_pickler *p, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    op_number(p, 'G', __builtin_bswap64(bits), 8);
}

void cf_pickle_complex(cf_pickler *p, double re, double im)
{
    cf_pickle_global(p, "__builtin__", "complex");
    cf_pickle_float(p, re);
    cf_pickle_float(p, im);
    cf_pickle_tuple_end(p, 2);
    cf_pickle_reduce(p);
}

void cf_pickle_string(cf_pickler *p, const char *at, size_t length)
{
    if (length > UINT32_MAX) {
        fault(p, CF_E_LIMIT, "a text of more than 4 GiB");
        return;
    }
    op_number(p, 'X', length, 4);
    cf_text_add(p->out, at, length);
}

void cf_pickle_word(cf_pickler *p, const char *at, size_t length)
{
    char key[256] = {0}; /* what begins with NUL is no name of a global */
    if (length >= sizeof key) {
        cf_pickle_string(p, at, length);
        return;
    }
    memcpy(key + 1, at, length);
    if (fetched(p, key, length + 1)) return;
    cf_pickle_string(p, at, length);
    cf_pickle_put(p);
}

void cf_pickle_text(cf_pickler *p, const char *word)
{
    cf_pickle_word(p, word, strlen(word));
}

/* bytes are encode(text, 'latin1'), as CPython has it for protocol 2 (but for empty ones, which it
 * makes with bytes(): weights_only knows no such class). */
void cf_pickle_bytes(cf_pickler *p, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    size_t high = 0;
    for (size_t i = 0; i < length; i++) high += from[i] >> 7;
    if (length + high > UINT32_MAX) {
        fault(p, CF_E_LIMIT, "bytes of more than 4 GiB");
        return;
    }
    cf_pickle_global(p, "_codecs", "encode");
    op_number(p, 'X', length + high, 4);
    for (size_t i = 0; i < length;) {
        char piece[512];
        size_t n = 0;
        for (; i < length && n < sizeof piece - 1; i++) {
            if (from[i] & 0x80) piece[n++] = (char)(0xc0 | from[i] >> 6);
            piece[n++] = (char)(from[i] & 0x80 ? 0x80 | (from[i] & 0x3f) : from[i]);
        }
        cf_text_add(p->out, piece, n);
    }
    cf_pickle_text(p, "latin1");
    cf_pickle_tuple_end(p, 2);
    cf_pickle_reduce(p);
}

void cf_pickle_global(cf_pickler *p, const char *module, const char *name)
{
    char key[512];
    const int n = snprintf(key, sizeof key, "%s\n%s\n", module, name);
    if (n >= (int)sizeof key) {
        fault(p, CF_E_LIMIT, "a name of a class of more than 500 bytes");
        return;
    }
    if (fetched(p, key, (size_t)n)) return;
    op(p, 'c');
    cf_text_add(p->out, key, (size_t)n);
    cf_pickle_put(p);
}

/* ---- containers --------------------------------------------------------------------------------
 */

void cf_pickle_tuple(cf_pickler *p, size_t n)
{
    if (n > 3) op(p, '(');
}

void cf_pickle_tuple_end(cf_pickler *p, size_t n)
{
    static const char CODES[] = {')', '\x85', '\x86', '\x87'};
    op(p, n > 3 ? 't' : CODES[n]);
}

void cf_pickle_list(cf_pickler *p)
{
    op(p, ']');
}

void cf_pickle_dict(cf_pickler *p)
{
    op(p, '}');
}

cf_filling cf_pickle_fill_list(size_t count)
{
    return (cf_filling){.left = count, .one = 'a', .many = 'e'};
}

cf_filling cf_pickle_fill_dict(size_t count)
{
    return (cf_filling){.left = count, .one = 's', .many = 'u'};
}

void cf_pickle_item(cf_pickler *p, cf_filling *f)
{
    if (f->batch == BATCH) cf_pickle_filled(p, f);
    if (!f->batch) {
        f->marked = f->left > 1;
        if (f->marked) op(p, '(');
    }
    f->batch++;
    f->left--;
}

void cf_pickle_filled(cf_pickler *p, cf_filling *f)
{
    if (f->batch) op(p, f->marked ? f->many : f->one);
    f->batch = 0;
}

/* ---- objects -----------------------------------------------------------------------------------
 */

void cf_pickle_reduce(cf_pickler *p)
{
    op(p, 'R');
}

void cf_pickle_new(cf_pickler *p)
{
    op(p, '\x81');
}

void cf_pickle_build(cf_pickler *p)
{
    op(p, 'b');
}

void cf_pickle_persid(cf_pickler *p)
{
    op(p, 'Q');
}

void cf_pickle_object(cf_pickler *p, const char *module, const char *name)
{
    cf_pickle_global(p, module, name);
    cf_pickle_tuple_end(p, 0);
    cf_pickle_new(p);
}

void cf_pickle_ordered(cf_pickler *p)
{
    cf_pickle_global(p, "collections", "OrderedDict");
    cf_pickle_tuple_end(p, 0);
    cf_pickle_reduce(p);
}

/* ---- torch -------------------------------------------------------------------------------------
 */

void cf_pickle_dtype(cf_pickler *p, cf_dtype dtype)
{
    cf_pickle_global(p, "torch", cf_dtype_of(dtype)->torch);
}

static void numbers(cf_pickler *p, int ndim, const int64_t *list)
{
    cf_pickle_tuple(p, (size_t)ndim);
    for (int d = 0; d < ndim; d++) cf_pickle_int(p, list[d]);
    cf_pickle_tuple_end(p, (size_t)ndim);
}

void cf_pickle_size(cf_pickler *p, int ndim, const int64_t *shape)
{
    cf_pickle_global(p, "torch", "Size");
    numbers(p, ndim, shape);
    cf_pickle_tuple_end(p, 1);
    cf_pickle_reduce(p);
}

/* Strides of row-major order as torch has them: a dimension of size 0 counts as 1. */
static void strides(cf_pickler *p, const cf_pickle_view *v)
{
    int64_t list[256], n = 1;
    if (v->stride) {
        numbers(p, v->ndim, v->stride);
        return;
    }
    for (int d = v->ndim - 1; d >= 0; d--) {
        list[d] = n;
        if (v->shape[d] > 1 && __builtin_mul_overflow(n, v->shape[d], &n)) n = INT64_MAX;
    }
    numbers(p, v->ndim, list);
}

/* ('storage', torch.FloatStorage, '0', 'cpu', elements); dtypes that never had a storage class say
 * UntypedStorage and bytes. */
static void storage(cf_pickler *p, const cf_pickle_view *v, const char *typed)
{
    char text[32];
    cf_pickle_tuple(p, 5);
    cf_pickle_text(p, "storage");
    if (typed) {
        snprintf(text, sizeof text, "%sStorage", typed);
        cf_pickle_global(p, "torch", text);
    } else {
        cf_pickle_global(p, "torch.storage", "UntypedStorage");
    }
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)v->key);
    cf_pickle_string(p, text, (size_t)n);
    cf_pickle_text(p, "cpu");
    cf_pickle_int(p, typed ? v->numel : v->numel * cf_dtype_size(v->dtype));
    cf_pickle_tuple_end(p, 5);
    cf_pickle_persid(p);
}

void cf_pickle_tensor(cf_pickler *p, const cf_pickle_view *v)
{
    const char *typed = cf_dtype_storage(v->dtype);
    const size_t n = typed ? 6 : 7;
    cf_pickle_global(p, "torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    cf_pickle_tuple(p, n);
    storage(p, v, typed);
    cf_pickle_int(p, v->offset);
    numbers(p, v->ndim, v->shape);
    strides(p, v);
    cf_pickle_bool(p, false); /* requires_grad */
    cf_pickle_ordered(p);     /* hooks: each tensor its own, for it may be filled later */
    if (!typed) cf_pickle_dtype(p, v->dtype);
    cf_pickle_tuple_end(p, n);
    cf_pickle_reduce(p);
}
