/* Casts against values that were worked out by hand or follow from the formats' definitions: ties,
 * denormals, overflow, infinities, NaN; and every 8 and 16 bit pattern there and back. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "cast.h"
#include "suite.h"

static uint64_t cast(cf_dtype from, uint64_t bits, cf_dtype to)
{
    uint64_t out = 0;
    cf_cast(from, &bits, to, &out, 1);
    return out;
}

static const struct {
    cf_dtype from;
    uint64_t bits;
    cf_dtype to;
    uint64_t want;
} CASTS[] = {
    /* F32 to BF16: ties to even, a carry into the exponent, overflow to infinity, denormals */
    {CF_F32, 0x3f800000, CF_BF16, 0x3f80},
    {CF_F32, 0x3f808000, CF_BF16, 0x3f80},
    {CF_F32, 0x3f818000, CF_BF16, 0x3f82},
    {CF_F32, 0x3f808001, CF_BF16, 0x3f81},
    {CF_F32, 0x3fffffff, CF_BF16, 0x4000},
    {CF_F32, 0x7f7fffff, CF_BF16, 0x7f80},
    {CF_F32, 0x00008000, CF_BF16, 0x0000},
    {CF_F32, 0x00018000, CF_BF16, 0x0002},
    {CF_F32, 0x00000001, CF_BF16, 0x0000},
    {CF_F32, 0x80000000, CF_BF16, 0x8000},
    {CF_F32, 0xff800000, CF_BF16, 0xff80},
    /* F32 to F16 */
    {CF_F32, 0x477fefff, CF_F16, 0x7bff},
    {CF_F32, 0x477ff000, CF_F16, 0x7c00},
    {CF_F32, 0x33000000, CF_F16, 0x0000}, /* half of the least denormal: to even */
    {CF_F32, 0x33000001, CF_F16, 0x0001},
    {CF_F32, 0x387fffff, CF_F16, 0x0400}, /* the largest denormal rounds to a normal number */
    {CF_F32, 0x3f801000, CF_F16, 0x3c00},
    {CF_F32, 0x3f803000, CF_F16, 0x3c02},
    /* F64 to BF16 by way of F32, as torch does: rounded twice, to the tie and to even */
    {CF_F64, 0x3ff0100000000001, CF_BF16, 0x3f80},
    {CF_F64, 0x3ff0100010000001, CF_BF16, 0x3f81},
    {CF_F64, 0x3ff0100000000000, CF_BF16, 0x3f80},
    {CF_F64, 0x47efffffe0000000, CF_F32, 0x7f7fffff},
    {CF_F64, 0x3ff0000010000000, CF_F32, 0x3f800000},
    /* 8 bits: e4m3 has no infinity, its largest number is 448 */
    {CF_F32, 0x43e00000, CF_F8_E4M3, 0x7e},
    {CF_F32, 0x43e80000, CF_F8_E4M3, 0x7e}, /* 464, a tie: to even */
    {CF_F32, 0x43e80001, CF_F8_E4M3, 0x7e}, /* saturates */
    {CF_F32, 0x7f800000, CF_F8_E4M3, 0x7e},
    {CF_F32, 0xff800000, CF_F8_E4M3, 0xfe},
    {CF_F8_E8M0, 0x7f, CF_BF16, 0x3f80},
    {CF_F8_E8M0, 0x00, CF_F32, 0x00400000},
    {CF_F8_E8M0, 0xff, CF_F32, 0x7fc00000},
    {CF_F32, 0x47600000, CF_F8_E5M2, 0x7b},
    {CF_F32, 0x47700000, CF_F8_E5M2, 0x7c},
    {CF_F32, 0x80000000, CF_F8_E4M3FNUZ, 0x00},
    {CF_F32, 0x43700000, CF_F8_E4M3FNUZ, 0x7f}, /* 240, its largest */
    /* whole numbers */
    {CF_I64, (1ull << 53) + 1, CF_I64, (1ull << 53) + 1},
    {CF_I32, 0xffffffff, CF_I64, UINT64_MAX},
    {CF_I64, UINT64_MAX, CF_F32, 0xbf800000},
    {CF_U8, 255, CF_BF16, 0x437f},
    {CF_BOOL, 1, CF_F32, 0x3f800000},
    {CF_F32, 0xc0200000, CF_I32, 0xfffffffe}, /* -2.5 */
    {CF_F32, 0x7fc00000, CF_I64, 0},
    {CF_F32, 0x40000000, CF_BOOL, 1},
};

START_TEST(values)
{
    const uint64_t got = cast(CASTS[_i].from, CASTS[_i].bits, CASTS[_i].to);
    ck_assert_msg(got == CASTS[_i].want, "%s %llx to %s: %llx, want %llx",
                  cf_dtype_of(CASTS[_i].from)->name, (unsigned long long)CASTS[_i].bits,
                  cf_dtype_of(CASTS[_i].to)->name, (unsigned long long)got,
                  (unsigned long long)CASTS[_i].want);
}
END_TEST

/* What a narrow float holds survives a wider one; NaN stays NaN. */
START_TEST(there_and_back)
{
    static const cf_dtype narrow[] = {CF_F8_E4M3,     CF_F8_E5M2, CF_F8_E4M3FNUZ,
                                      CF_F8_E5M2FNUZ, CF_F16,     CF_BF16};
    static const cf_dtype wide[] = {CF_F32, CF_F64};
    const cf_dtype d = narrow[_i];
    for (uint64_t bits = 0; bits < 1ull << (8 * cf_dtype_size(d)); bits++)
        for (int k = 0; k < 2; k++) {
            double value;
            const uint64_t w = cast(d, bits, CF_F64),
                           back = cast(wide[k], cast(d, bits, wide[k]), d);
            memcpy(&value, &w, 8);
            if (!isnan(value)) {
                ck_assert_uint_eq(back, bits);
                continue;
            }
            const uint64_t again = cast(d, back, CF_F64);
            memcpy(&value, &again, 8);
            ck_assert(isnan(value));
        }
}
END_TEST

/* The fast way and the general one agree on F32 to BF16: by way of F64, which is exact. */
START_TEST(fast_is_right)
{
    for (uint64_t u = 0; u <= UINT32_MAX; u += 65521) {
        const uint64_t fast = cast(CF_F32, u, CF_BF16),
                       slow = cast(CF_F64, cast(CF_F32, u, CF_F64), CF_BF16);
        if ((u & 0x7fffffff) > 0x7f800000)
            ck_assert((fast & 0x7fff) > 0x7f80);
        else
            ck_assert_uint_eq(fast, slow);
    }
}
END_TEST

START_TEST(what_there_is)
{
    ck_assert(cf_cast_possible(CF_F32, CF_BF16));
    ck_assert(cf_cast_possible(CF_C64, CF_C64));
    ck_assert(!cf_cast_possible(CF_C64, CF_F32));
    ck_assert(!cf_cast_possible(CF_F32, CF_F8_E8M0));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cast");
    TCase *c = tcase_create("all");
    tcase_add_loop_test(c, values, 0, sizeof CASTS / sizeof *CASTS);
    tcase_add_loop_test(c, there_and_back, 0, 6);
    tcase_add_test(c, fast_is_right);
    tcase_add_test(c, what_there_is);
    suite_add_tcase(s, c);
    return run_suite(s);
}
