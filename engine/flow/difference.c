/* Elements compared. Runs of them that have the same bits are passed over with memcmp; the others
 * are turned into doubles, which hold every floating value here exactly (integers of 64 bits and
 * what is compared with them have paths of their own). */
#include <math.h>
#include <string.h>

#include "cast.h"
#include "diff.h"

enum { STEP = 512 }; /* elements at a time */

typedef enum kind { FLOATING, WHOLE, COMPLEX } kind;

static kind kind_of(cf_dtype d)
{
    switch (cf_dtype_of(d)->class) {
    case CF_CLASS_FLOATING: return FLOATING;
    case CF_CLASS_COMPLEX: return COMPLEX;
    default: return WHOLE;
    }
}

/* ---- elements as numbers -----------------------------------------------------------------------
 */

static void to_doubles(cf_dtype d, const uint8_t *from, double *to, uint64_t n)
{
    if (d == CF_F32) {
        for (uint64_t i = 0; i < n; i++) {
            float f;
            memcpy(&f, from + 4 * i, 4);
            to[i] = (double)f;
        }
    } else if (d == CF_BF16) {
        for (uint64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, from + 2 * i, 2);
            const uint32_t u = (uint32_t)h << 16;
            float f;
            memcpy(&f, &u, 4);
            to[i] = (double)f;
        }
    } else if (d == CF_F8_E8M0) { /* powers of two; cf_cast has no way */
        for (uint64_t i = 0; i < n; i++)
            to[i] = from[i] == 0xff ? (double)NAN : ldexp(1, from[i] - 127);
    } else {
        cf_cast(d, from, CF_F64, to, n);
    }
}

static bool is_signed(cf_dtype d)
{
    return d == CF_I64 || d == CF_I32 || d == CF_I16 || d == CF_I8;
}

static __int128 to_whole(cf_dtype d, const uint8_t *from)
{
    uint64_t bits = 0;
    const size_t size = (size_t)cf_dtype_size(d);
    memcpy(&bits, from, size);
    if (d == CF_BOOL) return bits != 0;
    if (!is_signed(d)) return (__int128)bits;
    const int shift = 64 - 8 * (int)size;
    return (__int128)((int64_t)(bits << shift) >> shift);
}

/* The place of a float among all of its dtype: neighbours are one apart, both zeros are 0. */
static int64_t rank_of(cf_dtype d, const uint8_t *from)
{
    uint64_t bits = 0;
    const size_t size = (size_t)cf_dtype_size(d);
    memcpy(&bits, from, size);
    if (d == CF_F8_E8M0) return (int64_t)bits; /* no sign */
    const uint64_t sign = 1ull << (8 * size - 1), value = bits & (sign - 1);
    return bits & sign ? -(int64_t)value : (int64_t)value;
}

static double apart(int64_t a, int64_t b)
{
    const __int128 d = (__int128)a - b;
    return (double)(d < 0 ? -d : d);
}

/* ---- one difference ----------------------------------------------------------------------------
 */

typedef struct sight {
    bool nan_a, nan_b, equal, same_bits;
    double abs, size, ulp, a, b;
} sight;

static void take(cf_difference *d, const cf_tolerance *t, uint64_t at, const sight *s)
{
    d->nan_a += s->nan_a && !s->nan_b;
    d->nan_b += s->nan_b && !s->nan_a;
    d->nan_both += s->nan_a && s->nan_b;
    if (s->equal) {
        d->bits += !s->same_bits;
        return;
    }
    const bool measured = d->unequal > d->nan_a + d->nan_b - (s->nan_a != s->nan_b);
    if (!d->unequal++ || at < d->first) d->first = at;
    if (s->nan_a || s->nan_b) {
        d->beyond++;
        return;
    }
    /* infinite against finite: there is no larger one */
    const double rel = isinf(s->size) ? (double)INFINITY : s->size > 0 ? s->abs / s->size : 0;
    const double measure = t->kind == CF_TOL_ABS ? s->abs : t->kind == CF_TOL_REL ? rel : s->ulp;
    d->beyond += !(measure <= t->most);
    if (!measured || s->abs > d->max_abs) {
        d->max_abs = s->abs;
        d->max_at = at;
        d->a = s->a;
        d->b = s->b;
    }
    if (rel > d->max_rel) d->max_rel = rel;
    if (s->ulp > d->max_ulp) d->max_ulp = s->ulp;
}

void cf_difference_join(cf_difference *to, const cf_difference *more)
{
    if (more->unequal && (!to->unequal || more->first < to->first)) to->first = more->first;
    const bool measured = more->unequal > more->nan_a + more->nan_b;
    const bool had = to->unequal > to->nan_a + to->nan_b;
    if (measured && (!had || more->max_abs > to->max_abs ||
                     (more->max_abs == to->max_abs && more->max_at < to->max_at))) {
        to->max_abs = more->max_abs;
        to->max_at = more->max_at;
        to->a = more->a;
        to->b = more->b;
    }
    if (more->max_rel > to->max_rel) to->max_rel = more->max_rel;
    if (more->max_ulp > to->max_ulp) to->max_ulp = more->max_ulp;
    to->elements += more->elements;
    to->unequal += more->unequal;
    to->beyond += more->beyond;
    to->bits += more->bits;
    to->nan_a += more->nan_a;
    to->nan_b += more->nan_b;
    to->nan_both += more->nan_both;
}

static double larger(double a, double b)
{
    return fabs(a) > fabs(b) ? fabs(a) : fabs(b);
}

/* ---- by kind of elements -----------------------------------------------------------------------
 */

/* The narrower of two floating dtypes: the one with fewer bytes. */
static cf_dtype narrower(cf_dtype a, cf_dtype b)
{
    return cf_dtype_size(a) <= cf_dtype_size(b) ? a : b;
}

static void add_floats(cf_difference *d, const cf_tolerance *t, cf_dtype a, const uint8_t *left,
                       cf_dtype b, const uint8_t *right, uint64_t first, uint64_t n)
{
    double x[STEP], y[STEP];
    uint8_t rounded[STEP * 8];
    const size_t la = (size_t)cf_dtype_size(a), lb = (size_t)cf_dtype_size(b);
    const cf_dtype narrow = narrower(a, b);
    const size_t ln = (size_t)cf_dtype_size(narrow);
    to_doubles(a, left, x, n);
    to_doubles(b, right, y, n);
    /* both as the narrower dtype, for ulps */
    const uint8_t *ka = left, *kb = right;
    bool ulps = true;
    if (a != b) {
        const cf_dtype wide = narrow == a ? b : a;
        ulps = cf_cast_possible(wide, narrow);
        if (ulps) cf_cast(wide, narrow == a ? right : left, narrow, rounded, n);
        if (narrow == a)
            kb = rounded;
        else
            ka = rounded;
    }
    for (uint64_t i = 0; i < n; i++) {
        const sight s = {.nan_a = isnan(x[i]),
                         .nan_b = isnan(y[i]),
                         .equal = x[i] == y[i] || (isnan(x[i]) && isnan(y[i])),
                         .same_bits = a != b || !memcmp(left + i * la, right + i * lb, la)};
        if (s.equal && s.same_bits && !s.nan_a) continue;
        sight full = s;
        full.abs = fabs(x[i] - y[i]);
        full.size = larger(x[i], y[i]);
        full.ulp = ulps ? apart(rank_of(narrow, ka + i * ln), rank_of(narrow, kb + i * ln)) : 0;
        full.a = x[i];
        full.b = y[i];
        take(d, t, first + i, &full);
    }
}

static void add_wholes(cf_difference *d, const cf_tolerance *t, cf_dtype a, const uint8_t *left,
                       cf_dtype b, const uint8_t *right, uint64_t first, uint64_t n)
{
    const size_t la = (size_t)cf_dtype_size(a), lb = (size_t)cf_dtype_size(b);
    for (uint64_t i = 0; i < n; i++) {
        const __int128 x = to_whole(a, left + i * la), y = to_whole(b, right + i * lb);
        const double abs = (double)(x > y ? x - y : y - x);
        const sight s = {.equal = x == y,
                         .same_bits = a != b || !memcmp(left + i * la, right + i * lb, la),
                         .abs = abs,
                         .ulp = abs,
                         .size = larger((double)x, (double)y),
                         .a = (double)x,
                         .b = (double)y};
        take(d, t, first + i, &s);
    }
}

/* An integer against a float: long double holds both, where it has 64 bits (x86, and more on ARM).
 */
static void add_mixed(cf_difference *d, const cf_tolerance *t, cf_dtype a, const uint8_t *left,
                      cf_dtype b, const uint8_t *right, uint64_t first, uint64_t n)
{
    double x[STEP];
    const bool whole_left = kind_of(a) == WHOLE;
    const cf_dtype w = whole_left ? a : b, f = whole_left ? b : a;
    const uint8_t *wholes = whole_left ? left : right;
    const size_t size = (size_t)cf_dtype_size(w);
    to_doubles(f, whole_left ? right : left, x, n);
    for (uint64_t i = 0; i < n; i++) {
        const long double number = (long double)to_whole(w, wholes + i * size);
        const bool nan = isnan(x[i]);
        const double abs = (double)fabsl(number - (long double)x[i]);
        const sight s = {.nan_a = nan && !whole_left,
                         .nan_b = nan && whole_left,
                         .equal = number == (long double)x[i],
                         .same_bits = true,
                         .abs = abs,
                         .ulp = abs,
                         .size = larger((double)number, x[i]),
                         .a = whole_left ? (double)number : x[i],
                         .b = whole_left ? x[i] : (double)number};
        take(d, t, first + i, &s);
    }
}

static cf_dtype part_of(cf_dtype complex)
{
    return complex == CF_C128 ? CF_F64 : complex == CF_C64 ? CF_F32 : CF_F16;
}

/* Real and imaginary parts in turn; of what is not complex, imaginary parts of 0. */
static void to_parts(cf_dtype d, const uint8_t *from, double *to, uint64_t n)
{
    if (kind_of(d) == COMPLEX) {
        to_doubles(part_of(d), from, to, 2 * n);
        return;
    }
    const size_t size = (size_t)cf_dtype_size(d);
    for (uint64_t i = 0; i < n; i++) {
        if (kind_of(d) == WHOLE)
            to[2 * i] = (double)to_whole(d, from + i * size);
        else
            to_doubles(d, from + i * size, to + 2 * i, 1);
        to[2 * i + 1] = 0;
    }
}

static void add_complex(cf_difference *d, const cf_tolerance *t, cf_dtype a, const uint8_t *left,
                        cf_dtype b, const uint8_t *right, uint64_t first, uint64_t n)
{
    double x[2 * STEP], y[2 * STEP];
    const size_t la = (size_t)cf_dtype_size(a), lb = (size_t)cf_dtype_size(b);
    to_parts(a, left, x, n);
    to_parts(b, right, y, n);
    const cf_dtype part = kind_of(a) == COMPLEX ? part_of(a) : CF_NO_DTYPE;
    const size_t half = la / 2;
    for (uint64_t i = 0; i < n; i++) {
        const double *p = x + 2 * i, *q = y + 2 * i;
        bool equal = true;
        for (int k = 0; k < 2; k++) equal &= p[k] == q[k] || (isnan(p[k]) && isnan(q[k]));
        double ulp = 0;
        for (size_t k = 0; a == b && k < 2; k++)
            ulp = fmax(ulp, apart(rank_of(part, left + i * la + k * half),
                                  rank_of(part, right + i * lb + k * half)));
        const sight s = {.nan_a = isnan(p[0]) || isnan(p[1]),
                         .nan_b = isnan(q[0]) || isnan(q[1]),
                         .equal = equal,
                         .same_bits = a != b || !memcmp(left + i * la, right + i * lb, la),
                         .abs = hypot(p[0] - q[0], p[1] - q[1]),
                         .ulp = ulp,
                         .size = fmax(hypot(p[0], p[1]), hypot(q[0], q[1])),
                         .a = p[0],
                         .b = q[0]};
        take(d, t, first + i, &s);
    }
}

/* ---- all ---------------------------------------------------------------------------------------
 */

/* NaNs of elements that are the same on both sides. */
static uint64_t count_nans(cf_dtype d, const uint8_t *bytes, uint64_t n)
{
    uint64_t count = 0;
    if (d == CF_F32) {
        for (uint64_t i = 0; i < n; i++) {
            uint32_t u;
            memcpy(&u, bytes + 4 * i, 4);
            count += (u & 0x7fffffff) > 0x7f800000;
        }
    } else if (d == CF_BF16 || d == CF_F16) {
        const unsigned infinity = d == CF_BF16 ? 0x7f80 : 0x7c00;
        for (uint64_t i = 0; i < n; i++) {
            uint16_t u;
            memcpy(&u, bytes + 2 * i, 2);
            count += (u & 0x7fffu) > infinity;
        }
    } else if (kind_of(d) != WHOLE) {
        double x[2 * STEP];
        const bool complex = kind_of(d) == COMPLEX;
        if (complex)
            to_parts(d, bytes, x, n);
        else
            to_doubles(d, bytes, x, n);
        for (uint64_t i = 0; i < n; i++)
            count += complex ? isnan(x[2 * i]) || isnan(x[2 * i + 1]) : isnan(x[i]);
    }
    return count;
}

void cf_difference_add(cf_difference *d, const cf_tolerance *t, cf_dtype a, const uint8_t *left,
                       cf_dtype b, const uint8_t *right, uint64_t first, uint64_t count)
{
    const kind ka = kind_of(a), kb = kind_of(b);
    const uint64_t la = (uint64_t)cf_dtype_size(a), lb = (uint64_t)cf_dtype_size(b);
    for (uint64_t at = 0; at < count; at += STEP) {
        const uint64_t n = count - at < STEP ? count - at : STEP;
        const uint8_t *l = left + at * la, *r = right + at * lb;
        cf_difference some = {.elements = n};
        if (a == b && memcmp(l, r, n * la) == 0)
            some.nan_both = count_nans(a, l, n);
        else if (ka == COMPLEX || kb == COMPLEX)
            add_complex(&some, t, a, l, b, r, first + at, n);
        else if (ka == FLOATING && kb == FLOATING)
            add_floats(&some, t, a, l, b, r, first + at, n);
        else if (ka == WHOLE && kb == WHOLE)
            add_wholes(&some, t, a, l, b, r, first + at, n);
        else
            add_mixed(&some, t, a, l, b, r, first + at, n);
        cf_difference_join(d, &some);
    }
}
