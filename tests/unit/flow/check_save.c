/* Ranks and groups of ranks in words. */
#include <check.h>
#include <string.h>

#include "save.h"
#include "suite.h"

typedef struct words {
    size_t n;
    int32_t ranks[40];
    const char *want;
} words;

static const words RANKS[] = {
    {1, {5}, "5"},
    {3, {3, 0, 1}, "0,1,3"},
    {5, {10, 2, 1, 0, 2}, "0-2,10"},
    {4, {0, 1, 8, 9}, "0,1,8,9"},
    {20, /* every second: too many runs */
     {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38},
     "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,... (20 in all)"},
};

START_TEST(ranks)
{
    cf_text text = {0};
    int32_t copy[40];
    memcpy(copy, RANKS[_i].ranks, sizeof copy);
    cf_ranks_text(&text, copy, RANKS[_i].n);
    ck_assert_str_eq(text.at, RANKS[_i].want);
    cf_text_free(&text);
}
END_TEST

typedef struct groups {
    size_t n;
    uint64_t hashes[8];
    int32_t ranks[8];
    const char *want;
} groups;

static const groups GROUPS[] = {
    {4, {9, 8, 7, 6}, {0, 1, 2, 3}, "each of 4 ranks its own"},
    {2, {9, 8}, {0, 1}, "0 | 1"},
    {4, {9, 9, 7, 7}, {0, 1, 2, 3}, "0,1 | 2,3"},
    {6, {1, 1, 2, 1, 1, 1}, {0, 1, 2, 3, 4, 5}, "0,1,3-5 | 2"},
    {8, {1, 2, 3, 4, 5, 6, 7, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, "0 | 1 | 2 | 3 | 4 | 5 | ... 7 groups"},
};

START_TEST(groups_of_equals)
{
    cf_text text = {0};
    cf_groups_text(&text, GROUPS[_i].hashes, GROUPS[_i].ranks, GROUPS[_i].n);
    ck_assert_str_eq(text.at, GROUPS[_i].want);
    cf_text_free(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("save");
    TCase *t = tcase_create("words");
    tcase_add_loop_test(t, ranks, 0, sizeof RANKS / sizeof *RANKS);
    tcase_add_loop_test(t, groups_of_equals, 0, sizeof GROUPS / sizeof *GROUPS);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
