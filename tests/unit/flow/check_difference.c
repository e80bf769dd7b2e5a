/* Elements of every kind held together: what is equal, by how much the rest differs. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "diff.h"
#include "suite.h"

static const cf_tolerance EXACT = {CF_TOL_ABS, 0};

static cf_difference held(cf_dtype a, const void *left, cf_dtype b, const void *right, uint64_t n,
                          const cf_tolerance *tolerance)
{
    cf_difference d = {0};
    cf_difference_add(&d, tolerance, a, left, b, right, 0, n);
    return d;
}

START_TEST(same_bits_are_equal)
{
    uint8_t bytes[16 * 1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37);
    for (int d = 1; d < CF_DTYPES; d++) {
        const uint64_t n = sizeof bytes / (size_t)cf_dtype_size((cf_dtype)d);
        const cf_difference f = held((cf_dtype)d, bytes, (cf_dtype)d, bytes, n, &EXACT);
        ck_assert_uint_eq(f.elements, n);
        ck_assert_uint_eq(f.unequal + f.bits + f.nan_a + f.nan_b, 0);
    }
}
END_TEST

START_TEST(floats)
{
    const float a[] = {1, -0.0f, NAN, 2, INFINITY, 4, 5, NAN};
    const float b[] = {1, 0.0f, 3, NAN, INFINITY, INFINITY, nextafterf(nextafterf(5, 6), 6), -NAN};
    const cf_difference f = held(CF_F32, a, CF_F32, b, 8, &EXACT);
    ck_assert_uint_eq(f.elements, 8);
    ck_assert_uint_eq(f.unequal, 4); /* two NaNs against numbers, infinity against 4, 5 */
    ck_assert_uint_eq(f.beyond, 4);
    ck_assert_uint_eq(f.nan_a, 1);
    ck_assert_uint_eq(f.nan_b, 1);
    ck_assert_uint_eq(f.nan_both, 1);
    ck_assert_uint_eq(f.bits, 2); /* zeros of two signs, NaNs of two */
    ck_assert_uint_eq(f.first, 2);
    ck_assert_uint_eq(f.max_at, 5);
    ck_assert(isinf(f.max_abs) && isinf(f.max_rel));
    const cf_difference two = held(CF_F32, a + 6, CF_F32, b + 6, 1, &EXACT);
    ck_assert(two.max_ulp == 2 && two.max_abs == (double)b[6] - 5);
    ck_assert(two.max_rel == two.max_abs / (double)b[6]);
}
END_TEST

START_TEST(ulps_cross_zero)
{
    const float tiny = nextafterf(0, 1), a[] = {tiny}, b[] = {-tiny};
    ck_assert(held(CF_F32, a, CF_F32, b, 1, &EXACT).max_ulp == 2);
    const double c[] = {0x1p-1074}, d[] = {-0x1p-1074};
    ck_assert(held(CF_F64, c, CF_F64, d, 1, &EXACT).max_ulp == 2);
    const uint16_t h[] = {0x3c00}, i[] = {0x3c03};
    ck_assert(held(CF_F16, h, CF_F16, i, 1, &EXACT).max_ulp == 3);
    ck_assert(held(CF_BF16, h, CF_BF16, i, 1, &EXACT).max_ulp == 3);
}
END_TEST

START_TEST(tolerances)
{
    const float a[] = {100}, b[] = {100.5f};
    const cf_tolerance fits[] = {{CF_TOL_ABS, 0.5}, {CF_TOL_REL, 0.005}, {CF_TOL_ULP, 65536}};
    const cf_tolerance fails[] = {{CF_TOL_ABS, 0.49}, {CF_TOL_REL, 0.0049}, {CF_TOL_ULP, 65535}};
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(held(CF_F32, a, CF_F32, b, 1, &fits[i]).beyond, 0);
        ck_assert_uint_eq(held(CF_F32, a, CF_F32, b, 1, &fits[i]).unequal, 1);
        ck_assert_uint_eq(held(CF_F32, a, CF_F32, b, 1, &fails[i]).beyond, 1);
    }
    const cf_tolerance all = {CF_TOL_ABS, 1e308};
    const float nan[] = {NAN};
    ck_assert_uint_eq(held(CF_F32, a, CF_F32, nan, 1, &all).beyond, 1);
}
END_TEST

/* Every pattern of the small floats against its exact widening, and against its neighbour's. */
START_TEST(widened)
{
    static const cf_dtype SMALL[] = {CF_F16,     CF_BF16,        CF_F8_E4M3,
                                     CF_F8_E5M2, CF_F8_E4M3FNUZ, CF_F8_E5M2FNUZ};
    static const cf_dtype WIDE[] = {CF_F32, CF_F64};
    for (size_t s = 0; s < sizeof SMALL / sizeof *SMALL; s++)
        for (size_t w = 0; w < 2; w++) {
            const size_t size = (size_t)cf_dtype_size(SMALL[s]);
            const uint64_t n = 1ull << 8 * size;
            uint8_t *bytes = calloc(n, size), *wide = calloc(n, 8);
            for (uint64_t i = 0; i < n; i++) memcpy(bytes + i * size, &i, size);
            cf_cast(SMALL[s], bytes, WIDE[w], wide, n);
            cf_difference f = held(SMALL[s], bytes, WIDE[w], wide, n, &EXACT);
            ck_assert_uint_eq(f.unequal, 0);
            ck_assert_uint_eq(f.nan_a + f.nan_b, 0);
            ck_assert_uint_gt(f.nan_both, 0);
            f = held(WIDE[w], wide, SMALL[s], bytes, n, &EXACT);
            ck_assert_uint_eq(f.unequal, 0);
            free(bytes);
            free(wide);
        }
}
END_TEST

/* A cast that is rounded to nearest is 0 ulp of the narrower dtype away. */
START_TEST(rounded)
{
    float a[1000];
    uint16_t b[1000];
    for (int i = 0; i < 1000; i++) a[i] = (float)i / 7 - 50;
    cf_cast(CF_F32, a, CF_BF16, b, 1000);
    const cf_tolerance none = {CF_TOL_ULP, 0};
    cf_difference f = held(CF_F32, a, CF_BF16, b, 1000, &none);
    ck_assert_uint_gt(f.unequal, 800);
    ck_assert_uint_eq(f.beyond, 0);
    b[500] ^= 1;
    f = held(CF_BF16, b, CF_F32, a, 1000, &none);
    ck_assert_uint_eq(f.beyond, 1);
    ck_assert(f.max_ulp == 1);
}
END_TEST

START_TEST(wholes)
{
    const int64_t a[] = {INT64_MIN, (1ll << 53) + 1, -1, 5};
    const uint64_t b[] = {0, (1ull << 53) + 1, UINT64_MAX, 5};
    cf_difference f = held(CF_I64, a, CF_U64, b, 4, &EXACT);
    ck_assert_uint_eq(f.unequal, 2); /* -1 is not 2^64 - 1 */
    ck_assert(f.max_abs == 0x1p64 && f.max_at == 2);
    const double c[] = {(double)INT64_MIN, 0x1p53, -1, 5};
    f = held(CF_I64, a, CF_F64, c, 4, &EXACT);
    ck_assert_uint_eq(f.unequal, 1);
    ck_assert(f.first == 1 && f.max_abs == 1);
    const uint8_t t[] = {1, 2, 0}, u[] = {1, 1, 0}; /* any byte but 0 is true */
    f = held(CF_BOOL, t, CF_BOOL, u, 3, &EXACT);
    ck_assert_uint_eq(f.unequal, 0);
    ck_assert_uint_eq(f.bits, 1);
    const int32_t small[] = {1, 1, 0};
    ck_assert_uint_eq(held(CF_BOOL, t, CF_I32, small, 3, &EXACT).unequal, 0);
}
END_TEST

START_TEST(complex_numbers)
{
    const float a[] = {3, 4, 1, NAN, 2, -0.0f}, b[] = {0, 0, 1, NAN, 2, 0.0f};
    cf_difference f = held(CF_C64, a, CF_C64, b, 3, &EXACT);
    ck_assert_uint_eq(f.unequal, 1);
    ck_assert(f.max_abs == 5 && f.max_rel == 1 && f.first == 0);
    ck_assert_uint_eq(f.nan_both, 1);
    ck_assert_uint_eq(f.bits, 1);
    const double c[] = {3, 4};
    ck_assert_uint_eq(held(CF_C64, a, CF_C128, c, 1, &EXACT).unequal, 0);
    const float real[] = {0};
    ck_assert(held(CF_C64, a, CF_F32, real, 1, &EXACT).max_abs == 5);
}
END_TEST

START_TEST(powers_of_two)
{
    const uint8_t a[] = {127, 0, 254, 255};
    const float b[] = {1, 0x1p-127f, 0x1p127f, NAN};
    const cf_difference f = held(CF_F8_E8M0, a, CF_F32, b, 4, &EXACT);
    ck_assert_uint_eq(f.unequal, 0);
    ck_assert_uint_eq(f.nan_both, 1);
}
END_TEST

/* However a tensor is cut, its parts come to the same. */
START_TEST(joined)
{
    float a[3000], b[3000];
    for (int i = 0; i < 3000; i++) {
        a[i] = (float)(i % 97);
        b[i] = i % 7 ? a[i] : a[i] + (float)(i % 13);
    }
    b[1234] = NAN;
    const cf_difference whole = held(CF_F32, a, CF_F32, b, 3000, &EXACT);
    for (int step = 1; step < 3000; step += 311) {
        cf_difference sum = {0};
        for (int at = ((3000 - 1) / step) * step; at >= 0; at -= step) {
            cf_difference part = {0};
            const int n = at + step < 3000 ? step : 3000 - at;
            cf_difference_add(&part, &EXACT, CF_F32, (const uint8_t *)(a + at), CF_F32,
                              (const uint8_t *)(b + at), (uint64_t)at, (uint64_t)n);
            cf_difference_join(&sum, &part);
        }
        ck_assert_mem_eq(&sum, &whole, sizeof sum);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("difference");
    TCase *tests = tcase_create("elements");
    tcase_add_test(tests, same_bits_are_equal);
    tcase_add_test(tests, floats);
    tcase_add_test(tests, ulps_cross_zero);
    tcase_add_test(tests, tolerances);
    tcase_add_test(tests, widened);
    tcase_add_test(tests, rounded);
    tcase_add_test(tests, wholes);
    tcase_add_test(tests, complex_numbers);
    tcase_add_test(tests, powers_of_two);
    tcase_add_test(tests, joined);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
