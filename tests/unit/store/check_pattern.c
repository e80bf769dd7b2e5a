/* Patterns, globs and natural order: tables of inputs and answers. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pattern.h"
#include "suite.h"

static const struct {
    const char *pattern, *path;
    bool fits;
    const char *taken; /* "name=value ..." in order */
} matches[] = {
    {"model.pt", "model.pt", true, ""},
    {"model.pt", "model.pt2", false, ""},
    {"model.pt", "xmodel.pt", false, ""},
    {"", "", true, ""},
    {"", "a", false, ""},
    {"*.pt", "a.pt", true, ""},
    {"*.pt", ".pt", true, ""},
    {"*.pt", "sub/a.pt", false, ""},
    {"**.metadata", ".metadata", true, ""},
    {"**.metadata", "a/b/.metadata", true, ""},
    {"a*", "a", true, ""},
    {"*a*b*", "xxaxxb", true, ""},
    {"*a*b*", "xxbxxa", false, ""},
    {"rank{rank}.pt", "rank12.pt", true, "rank=12 "},
    {"rank{rank}.pt", "rank.pt", false, ""},
    {"rank{rank}.pt", "rank-1.pt", false, ""},
    {"rank{rank}.pt", "rank007.pt", true, "rank=7 "},
    {"rank{rank}.pt", "rank9223372036854775807.pt", true, "rank=9223372036854775807 "},
    {"rank{rank}.pt", "rank9223372036854775808.pt", false, ""},
    {"**ep*-ba*-rank{rank}.pt", "run/ep0-ba10-rank3.pt", true, "rank=3 "},
    {"{iter*}/mp_rank_{tp}/x.pt", "iter_1/mp_rank_01/x.pt", true, "iter='iter_1' tp=1 "},
    {"{iter*}/mp_rank_{tp}/x.pt", "a/iter_1/mp_rank_01/x.pt", false, ""},
    {"pieces/{key**}/{rank}-{n}.st", "pieces/a/b/0-12.st", true, "key='a/b' rank=0 n=12 "},
    {"{part*}.pt", ".pt", false, ""},
    {"{a**}{b}", "x123", true, "a='x12' b=3 "},
    {"{a*}-{b*}", "x-y-z", true, "a='x-y' b='z' "},
    {"{a}{b}", "12", true, "a=1 b=2 "},
    {"{a}{b}", "1", false, ""},
    {"a}b", "a}b", true, ""},
};

START_TEST(pattern_matches)
{
    cf_err err;
    cf_captures got;
    ck_assert_msg(cf_pattern_check(matches[_i].pattern, &err), "%s", err.message);
    ck_assert_msg(
        cf_pattern_match(matches[_i].pattern, matches[_i].path, NULL) == matches[_i].fits &&
            cf_pattern_match(matches[_i].pattern, matches[_i].path, &got) == matches[_i].fits,
        "%s on %s", matches[_i].pattern, matches[_i].path);
    if (!matches[_i].fits) return;
    char text[256] = "";
    for (int i = 0; i < got.count; i++) {
        const cf_capture *c = &got.items[i];
        const size_t at = strlen(text);
        if (c->number)
            snprintf(text + at, sizeof text - at, "%s=%lld ", c->name, (long long)c->value);
        else
            snprintf(text + at, sizeof text - at, "%s='%.*s' ", c->name, (int)c->length,
                     matches[_i].path + c->from);
    }
    ck_assert_str_eq(text, matches[_i].taken);
}
END_TEST

static const char *const refused[] = {
    "a{",
    "a{n",
    "a{}",
    "{n***}",
    "{n?}",
    "{1}",
    "{a}{a*}",
    "{name}",
    "{folder}",
    "{refuse**}",
    "{a}{b}{c}{d}{e}{f}{g}{h}{i}",
    "{a_name_of_more_than_thirty_one_bytes}",
    "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a",
};

START_TEST(pattern_refused)
{
    cf_err err;
    ck_assert_msg(!cf_pattern_check(refused[_i], &err), "%s", refused[_i]);
    ck_assert_int_eq(err.code, CF_E_LAYOUT);
}
END_TEST

/* What makes a backtracking matcher take years. */
START_TEST(pattern_bounded)
{
    static const char pattern[] = "**a**a**a**a**a**a**a**a**a**a**a**a**a**a**a**b";
    char path[4096];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    cf_err err;
    ck_assert(cf_pattern_check(pattern, &err));
    const clock_t start = clock();
    ck_assert(!cf_pattern_match(pattern, path, NULL));
    path[sizeof path - 2] = 'b';
    ck_assert(cf_pattern_match(pattern, path, NULL));
    ck_assert(clock() - start < CLOCKS_PER_SEC);

    char too_long[5000];
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    ck_assert(!cf_pattern_match("**", too_long, NULL));
}
END_TEST

static const struct {
    const char *glob, *name;
    bool fits;
} globs[] = {
    {"*", "", true},
    {"*", "a.b/c", true},
    {"", "", true},
    {"", "a", false},
    {"model.*", "model.layers.0.weight", true},
    {"*.weight", "a.weight", true},
    {"*.weight", "a.weights", false},
    {"*a*b*c", "xaybzc", true},
    {"*a*b*c", "xaybz", false},
    {"a?c", "abc", true},
    {"a?c", "ac", false},
    {"a[b]", "a[b]", true},
    {"{x}", "{x}", true},
};

START_TEST(glob_matches)
{
    ck_assert_msg(cf_glob_match(globs[_i].glob, globs[_i].name) == globs[_i].fits, "%s on %s",
                  globs[_i].glob, globs[_i].name);
}
END_TEST

START_TEST(natural_order)
{
    static const char *const sorted[] = {
        "",
        "a",
        "a-1",
        "a/1",
        "a0",
        "a00",
        "a01",
        "a1",
        "a2",
        "a10",
        "a10b2",
        "a10b10",
        "aa",
        "rank9.pt",
        "rank10.pt",
        "rank18446744073709551616.pt",
        "rank18446744073709551617.pt",
        "\xc3\xa9",
    };
    const int n = sizeof sorted / sizeof *sorted;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const int order = cf_natural_compare(sorted[i], sorted[k]);
            ck_assert_msg((order > 0) - (order < 0) == (i > k) - (i < k), "%s and %s", sorted[i],
                          sorted[k]);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pattern");
    TCase *t = tcase_create("pattern");
    tcase_add_loop_test(t, pattern_matches, 0, sizeof matches / sizeof *matches);
    tcase_add_loop_test(t, pattern_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(t, pattern_bounded);
    tcase_add_loop_test(t, glob_matches, 0, sizeof globs / sizeof *globs);
    tcase_add_test(t, natural_order);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
