/* Arenas and their limits, maps, text for people and JSON, checked sizes. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "map.h"
#include "num.h"
#include "path.h"
#include "pool.h"
#include "span.h"
#include "suite.h"
#include "text.h"

START_TEST(arena_keeps_what_it_gave)
{
    cf_arena a;
    cf_arena_init(&a, 0);
    unsigned char *at[400];
    for (size_t i = 0; i < 400; i++) {
        at[i] = cf_alloc(&a, i * i);
        ck_assert(((uintptr_t)at[i] & 7) == 0);
        memset(at[i], (int)i, i * i);
    }
    for (size_t i = 0; i < 400; i++)
        for (size_t k = 0; k < i * i; k += 97) ck_assert_uint_eq(at[i][k], (unsigned char)i);
    cf_arena_free(&a);
}
END_TEST

START_TEST(arena_gives_large_pieces_back)
{
    cf_arena a, b;
    cf_arena_init(&a, 0);
    cf_arena_init(&b, 0);
    uint32_t *list = NULL;
    size_t count = 0, cap = 0;
    for (uint32_t i = 0; i < 300000; i++) {
        uint32_t *place = CF_PUSH(&a, list, count, cap);
        if (place) *place = i;
    }
    ck_assert_uint_eq(count, 300000);
    uint32_t right = 0;
    while (right < count && list[right] == right) right++;
    ck_assert_uint_eq(right, count);
    ck_assert_uint_lt(a.held, cap * sizeof *list + 3 * CF_LARGE + 8192); /* old copies: small */
    unsigned char *first = cf_calloc(&a, 1, CF_LARGE), *last = cf_alloc(&b, 2 * CF_LARGE);
    ck_assert_int_eq(memcmp(first, first + 1, CF_LARGE - 1) || first[0], 0);
    cf_arena_adopt(&a, &b);
    const size_t held = a.held;
    cf_give_back(&a, list, cap * sizeof *list);
    cf_give_back(&a, first, CF_LARGE);
    cf_give_back(&a, last, 2 * CF_LARGE);
    cf_give_back(&a, NULL, CF_LARGE);
    ck_assert_uint_eq(a.held, held - cap * sizeof *list - 3 * CF_LARGE);
    ck_assert_ptr_null(a.large);
    cf_arena_free(&a);
}
END_TEST

START_TEST(arena_limit_is_sticky)
{
    cf_arena a;
    cf_err err;
    cf_arena_init(&a, 10000);
    ck_assert(cf_alloc(&a, 5000) != NULL);
    ck_assert(cf_alloc(&a, 9000) == NULL);
    ck_assert(cf_alloc(&a, 1) == NULL);
    ck_assert(!cf_arena_ok(&a, &err));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
    ck_assert(cf_calloc(&a, SIZE_MAX / 2, 3) == NULL);
    cf_arena_free(&a);
}
END_TEST

START_TEST(map_finds_what_it_holds)
{
    cf_arena a;
    cf_map m;
    cf_arena_init(&a, 0);
    cf_map_init(&m, &a);
    uint64_t value;
    ck_assert(!cf_map_get(&m, "x", 1, &value));
    for (int i = 0; i < 5000; i++) {
        char *key = cf_alloc(&a, 16);
        bool fresh;
        const int n = snprintf(key, 16, "key%d", i);
        *cf_map_put(&m, key, (size_t)n, &fresh) = (uint64_t)i;
        ck_assert(fresh);
    }
    for (int i = 0; i < 5000; i++) {
        char key[16];
        const int n = snprintf(key, sizeof key, "key%d", i);
        ck_assert(cf_map_get(&m, key, (size_t)n, &value) && value == (uint64_t)i);
    }
    ck_assert(!cf_map_get(&m, "key5000", 7, &value));
    cf_arena_free(&a);
}
END_TEST

static const struct {
    const char *in;
    size_t size;
    const char *shown, *json;
} TEXTS[] = {
    {"plain", 5, "plain", "\"plain\""},
    {"h\xc3\xa9llo \xf0\x9f\x98\x80", 11, "h\xc3\xa9llo \xf0\x9f\x98\x80",
     "\"h\xc3\xa9llo \xf0\x9f\x98\x80\""},
    {"a\nb\x1b[2J", 7, "a\\nb\\x1b[2J", "\"a\\nb\\u001b[2J\""},
    {"\"\\", 2, "\"\\", "\"\\\"\\\\\""},
    {"\xc2\x9b"
     "2J",
     4, "\\xc2\\x9b2J", "\"\\u009b2J\""}, /* a C1 control is valid UTF-8 */
    {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80", NULL},
    {"a\0b", 3, "a\\x00b", "\"a\\u0000b\""},
};

START_TEST(text_is_escaped)
{
    cf_text t = {0};
    cf_text_shown(&t, TEXTS[_i].in, TEXTS[_i].size);
    ck_assert_str_eq(t.at, TEXTS[_i].shown);
    cf_text_free(&t);
    ck_assert_int_eq(cf_utf8_valid(TEXTS[_i].in, TEXTS[_i].size) == TEXTS[_i].size,
                     TEXTS[_i].json != NULL);
    if (!TEXTS[_i].json) return;
    cf_text_json(&t, TEXTS[_i].in, TEXTS[_i].size);
    ck_assert_str_eq(t.at, TEXTS[_i].json);
    cf_text_free(&t);
}
END_TEST

START_TEST(sizes_are_checked)
{
    int64_t n;
    ck_assert(cf_numel((int64_t[]){3, 4}, 2, &n) && n == 12);
    ck_assert(cf_numel((int64_t[]){1}, 0, &n) && n == 1);
    ck_assert(cf_numel((int64_t[]){INT64_MAX, 0}, 2, &n) && n == 0);
    ck_assert(!cf_numel((int64_t[]){INT64_MAX, 2}, 2, &n));
    ck_assert(!cf_numel((int64_t[]){1LL << 32, 1LL << 32, 0}, 3, &n));
    ck_assert(!cf_numel((int64_t[]){-1}, 1, &n));
    cf_span s = cf_span_of_bytes("abcd", 4), part;
    cf_err err;
    char to[4];
    ck_assert(cf_span_part(&s, 1, 3, &part, &err) && cf_span_read(&part, 1, to, 2, &err) &&
              to[0] == 'c');
    ck_assert(!cf_span_read(&part, UINT64_MAX, to, 2, &err) && err.code == CF_E_TRUNCATED);
    ck_assert(!cf_span_part(&s, 4, 1, &part, &err));
}
END_TEST

static bool job(void *ctx, uint64_t number, int thread, cf_err *err)
{
    (void)thread;
    __atomic_fetch_add((uint64_t *)ctx, number, __ATOMIC_SEQ_CST);
    return number != 700 || cf_fail(err, CF_E_IO, "seven hundred");
}

START_TEST(pool_does_all_or_tells)
{
    cf_err err;
    uint64_t sum = 0;
    ck_assert(cf_pool_run(4, 500, job, &sum, &err) && sum == 499 * 500 / 2);
    ck_assert(!cf_pool_run(4, 1000, job, &sum, &err));
    ck_assert_str_eq(err.message, "seven hundred");
    ck_assert(cf_pool_run(4, 0, job, &sum, &err));
}
END_TEST

START_TEST(codes_have_their_exits)
{
    ck_assert_int_eq(cf_code_exit(CF_E_USAGE), 2);
    ck_assert_int_eq(cf_code_exit(CF_E_FORMAT_TIE), 3);
    ck_assert_int_eq(cf_code_exit(CF_E_COVERAGE), 4);
    ck_assert_int_eq(cf_code_exit(CF_E_GLOBAL_DENIED), 5);
    ck_assert_int_eq(cf_code_exit(CF_L_PLAN), 6);
    ck_assert_int_eq(cf_code_exit(CF_E_SPACE), 7);
    ck_assert_int_eq(cf_code_of("E_PATH"), CF_E_PATH);
    ck_assert_int_eq(cf_code_of("E_NONE"), CF_OK);
    ck_assert_int_eq(cf_text_distance("detct", "detect"), 1);
}
END_TEST

START_TEST(paths_are_of_a_kind)
{
    static const struct {
        const char *path;
        cf_path_kind kind;
    } cases[] = {
        {"a", CF_PATH_PLAIN},     {"a/b.c/d", CF_PATH_PLAIN}, {"...", CF_PATH_PLAIN},
        {"a/..b", CF_PATH_PLAIN}, {"..b/c", CF_PATH_PLAIN},   {".", CF_PATH_ODD},
        {"./a", CF_PATH_ODD},     {"a/./b", CF_PATH_ODD},     {"a//b", CF_PATH_ODD},
        {"a/", CF_PATH_ODD},      {"", CF_PATH_OUT},          {"/", CF_PATH_OUT},
        {"/a", CF_PATH_OUT},      {"..", CF_PATH_OUT},        {"../a", CF_PATH_OUT},
        {"a/../b", CF_PATH_OUT},  {"a/..", CF_PATH_OUT},      {"a//../b", CF_PATH_OUT},
        {"./../a", CF_PATH_OUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(cf_path_kind_of(cases[i].path, strlen(cases[i].path)) == cases[i].kind,
                      "\"%s\"", cases[i].path);
    ck_assert_int_eq(cf_path_kind_of("a\0b", 3), CF_PATH_OUT);
}
END_TEST

START_TEST(sizes_of_people)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {{"1", 1},
                 {"512", 512},
                 {"7B", 7},
                 {"1kB", 1000},
                 {"5GB", 5000000000},
                 {"64MiB", 64 << 20},
                 {"64 MiB", 64 << 20},
                 {"1.5KiB", 1536},
                 {"0.5GiB", 512 << 20},
                 {"2tib", (uint64_t)2 << 40},
                 {"2.5mb", 2500000},
                 {"9007199254740993", 9007199254740993}, /* no double */
                 {"8388607TiB", (uint64_t)8388607 << 40},
                 {"8388608TiB", 0}, /* 2^63 */
                 {"", 0},
                 {"0", 0},
                 {"0.4B", 0},
                 {"-5MB", 0},
                 {"+5MB", 0},
                 {" 5MB", 0},
                 {"5MB ", 0},
                 {"5M", 0}, /* of 1000 or of 1024? */
                 {"5 apples", 0},
                 {"1e3", 0},
                 {"0x10", 0},
                 {"inf", 0},
                 {"nan", 0},
                 {"5.", 0},
                 {".5MB", 0},
                 {"99999999999999999999", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        ck_assert_msg(cf_size_parse(cases[i].text, &bytes) == (cases[i].bytes > 0), "%s",
                      cases[i].text);
        if (cases[i].bytes) ck_assert_uint_eq(bytes, cases[i].bytes);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *c = tcase_create("all");
    tcase_add_test(c, sizes_of_people);
    tcase_add_test(c, arena_keeps_what_it_gave);
    tcase_add_test(c, arena_gives_large_pieces_back);
    tcase_add_test(c, arena_limit_is_sticky);
    tcase_add_test(c, map_finds_what_it_holds);
    tcase_add_loop_test(c, text_is_escaped, 0, sizeof TEXTS / sizeof *TEXTS);
    tcase_add_test(c, sizes_are_checked);
    tcase_add_test(c, pool_does_all_or_tells);
    tcase_add_test(c, codes_have_their_exits);
    tcase_add_test(c, paths_are_of_a_kind);
    suite_add_tcase(s, c);
    return run_suite(s);
}
