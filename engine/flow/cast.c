#include "cast.h"

#include <math.h>
#include <string.h>

/* A floating format: exponent bits, stored significand bits, bias, what its top exponent means. */
typedef struct format {
    int bits, exponent, fraction, bias;
    bool infinity; /* the top exponent holds infinity and NaN; else only NaN (all bits set) */
    bool fnuz;     /* no negative zero: its place is the NaN */
} format;

static const format FORMATS[CF_DTYPES] = {
    [CF_F64] = {64, 11, 52, 1023, true, false},   [CF_F32] = {32, 8, 23, 127, true, false},
    [CF_F16] = {16, 5, 10, 15, true, false},      [CF_BF16] = {16, 8, 7, 127, true, false},
    [CF_F8_E4M3] = {8, 4, 3, 7, false, false},    [CF_F8_E5M2] = {8, 5, 2, 15, true, false},
    [CF_F8_E4M3FNUZ] = {8, 4, 3, 8, false, true}, [CF_F8_E5M2FNUZ] = {8, 5, 2, 16, false, true},
};

static bool is_float(cf_dtype d)
{
    return FORMATS[d].bits != 0;
}

/* Scales of MX formats: a power of two alone. They are read, never made. */
static double scale(uint8_t bits)
{
    return bits == 0xff ? NAN : ldexp(1, bits - 127);
}

static bool is_whole(cf_dtype d)
{
    return cf_dtype_of(d)->class == CF_CLASS_INTEGER || cf_dtype_of(d)->class == CF_CLASS_BOOLEAN;
}

bool cf_cast_exact(cf_dtype from, cf_dtype to)
{
    if (from == to) return true;
    if (!is_float(from) || !is_float(to)) return false;
    return to == CF_F64 || (to == CF_F32 && from != CF_F64);
}

bool cf_cast_possible(cf_dtype from, cf_dtype to)
{
    const bool source = is_float(from) || is_whole(from) || from == CF_F8_E8M0;
    return from == to || (source && (is_float(to) || is_whole(to)));
}

/* Every value of every format here is exact as a double. */
static double decode(const format *f, uint64_t bits)
{
    const bool negative = bits >> (f->bits - 1) & 1;
    const uint64_t fraction = bits & ((1ull << f->fraction) - 1);
    const int top = (1 << f->exponent) - 1;
    const int exponent = (int)(bits >> f->fraction) & top;
    double value;
    if (f->fnuz && negative && !exponent && !fraction) return NAN;
    if (f->infinity && exponent == top)
        value = fraction ? NAN : INFINITY;
    else if (!f->infinity && !f->fnuz && exponent == top && fraction == (1ull << f->fraction) - 1)
        value = NAN;
    else if (!exponent)
        value = ldexp((double)fraction, 1 - f->bias - f->fraction);
    else
        value = ldexp((double)(fraction | 1ull << f->fraction), exponent - f->bias - f->fraction);
    return negative ? -value : value;
}

static uint64_t encode(const format *f, double value)
{
    const uint64_t sign =
        f->fnuz && value == 0 ? 0 : (uint64_t)(signbit(value) != 0) << (f->bits - 1);
    const uint64_t top = (1ull << f->exponent) - 1, quiet = 1ull << (f->fraction - 1);
    const uint64_t nan = f->fnuz       ? 1ull << (f->bits - 1)
                         : f->infinity ? sign | top << f->fraction | quiet
                                       : sign | ((1ull << (f->bits - 1)) - 1);
    if (isnan(value)) return nan;
    /* the largest finite number, as its bits without the sign */
    const uint64_t most = f->infinity ? (top << f->fraction) - 1
                          : f->fnuz   ? (1ull << (f->bits - 1)) - 1
                                      : (1ull << (f->bits - 1)) - 2;
    /* without an infinity E4M3 saturates, as torch does since it has MX formats */
    const uint64_t beyond = f->infinity ? sign | top << f->fraction : f->fnuz ? nan : sign | most;
    const double size = fabs(value);
    if (isinf(size)) return beyond;
    int exponent;
    const double half = frexp(size, &exponent); /* size = half * 2^exponent, 0.5 <= half < 1 */
    if (half == 0) return sign;
    /* units of the last place; below the smallest normal number they no longer shrink */
    int unit = exponent - 1 - f->fraction;
    const int least = 1 - f->bias - f->fraction;
    if (unit < least) unit = least;
    const double scaled = nearbyint(ldexp(size, -unit)); /* exact but for this rounding */
    const uint64_t whole = (uint64_t)scaled;
    /* the implicit bit adds one to the exponent; a carry out of the significand one more */
    const uint64_t bits = (uint64_t)(unit - least) * (1ull << f->fraction) + whole;
    return bits > most ? beyond : sign | bits;
}

static uint64_t load(const uint8_t *p, int size)
{
    uint64_t bits = 0;
    memcpy(&bits, p, (size_t)size);
    return bits;
}

/* single: rounded to F32 first, as torch does on the way to anything but F64. */
static double whole_value(cf_dtype d, const uint8_t *p, bool single)
{
    const int size = (int)cf_dtype_size(d);
    const uint64_t bits = load(p, size);
    if (d == CF_BOOL) return bits != 0;
    if (d == CF_U64 || d == CF_U32 || d == CF_U16 || d == CF_U8)
        return single ? (double)(float)bits : (double)bits;
    const int shift = 64 - 8 * size;
    const int64_t value = (int64_t)(bits << shift) >> shift;
    return single ? (double)(float)value : (double)value;
}

static uint64_t whole_bits(cf_dtype d, double value)
{
    if (d == CF_BOOL) return value != 0;
    if (isnan(value)) return 0;
    const int bits = 8 * (int)cf_dtype_size(d);
    const bool is_signed = d == CF_I64 || d == CF_I32 || d == CF_I16 || d == CF_I8;
    if (is_signed) {
        const double end = ldexp(1, bits - 1);
        if (value >= end) return (1ull << (bits - 1)) - 1;
        if (value < -end) return 1ull << (bits - 1);
        return (uint64_t)(int64_t)value;
    }
    if (value <= 0) return 0;
    if (value >= ldexp(1, bits)) return bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    return (uint64_t)value;
}

/* The casts that whole models take; the compiler makes vectors of them. */
static void f32_to_bf16(const uint8_t *from, uint8_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t u;
        memcpy(&u, from + 4 * i, 4);
        const uint32_t nan = (u & 0x7fffffff) > 0x7f800000;
        const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
        const uint16_t b = (uint16_t)(nan ? quiet : rounded);
        memcpy(to + 2 * i, &b, 2);
    }
}

static void bf16_to_f32(const uint8_t *from, uint8_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t b;
        memcpy(&b, from + 2 * i, 2);
        const uint32_t u = (uint32_t)b << 16;
        memcpy(to + 4 * i, &u, 4);
    }
}

/* Integers to integers never go through a double: 2^53 + 1 stays what it is. */
static void whole_to_whole(cf_dtype a, const uint8_t *from, cf_dtype b, uint8_t *to, size_t count)
{
    const int n = (int)cf_dtype_size(a), m = (int)cf_dtype_size(b), shift = 64 - 8 * n;
    const bool is_signed = a == CF_I64 || a == CF_I32 || a == CF_I16 || a == CF_I8;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = load(from + (size_t)n * i, n);
        if (is_signed) bits = (uint64_t)((int64_t)(bits << shift) >> shift);
        if (a == CF_BOOL || b == CF_BOOL) bits = bits != 0;
        memcpy(to + (size_t)m * i, &bits, (size_t)m);
    }
}

void cf_cast(cf_dtype a, const void *source, cf_dtype b, void *target, size_t count)
{
    const uint8_t *from = source;
    uint8_t *to = target;
    const int n = (int)cf_dtype_size(a), m = (int)cf_dtype_size(b);
    if (a == b) {
        memcpy(to, from, count * (size_t)n);
    } else if (a == CF_F32 && b == CF_BF16) {
        f32_to_bf16(from, to, count);
    } else if (a == CF_BF16 && b == CF_F32) {
        bf16_to_f32(from, to, count);
    } else if (is_whole(a) && is_whole(b)) {
        whole_to_whole(a, from, b, to, count);
    } else {
        for (size_t i = 0; i < count; i++) {
            const uint8_t *p = from + (size_t)n * i;
            double value;
            float single;
            if (a == CF_F64) { /* torch goes by way of F32, which rounds twice */
                memcpy(&value, p, 8);
                if (is_float(b)) value = (double)(float)value;
            } else if (a == CF_F8_E8M0) {
                value = scale(*p);
            } else if (a == CF_F32) {
                memcpy(&single, p, 4);
                value = (double)single;
            } else {
                value =
                    is_float(a) ? decode(&FORMATS[a], load(p, n)) : whole_value(a, p, b != CF_F64);
            }
            uint64_t bits;
            if (b == CF_F64)
                memcpy(&bits, &value, 8);
            else if (b == CF_F32 && !isnan(value)) {
                single = (float)value;
                bits = 0;
                memcpy(&bits, &single, 4);
            } else
                bits = is_float(b) ? encode(&FORMATS[b], value) : whole_bits(b, value);
            memcpy(to + (size_t)m * i, &bits, (size_t)m);
        }
    }
}
