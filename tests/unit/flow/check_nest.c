/* Paths of keys in the trees they came from, and the trees that paths make up again. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "nest.h"
#include "suite.h"

static cf_arena arena;
static cf_err err;

static void setup(void)
{
    cf_arena_init(&arena, 0);
}

static void teardown(void)
{
    cf_arena_free(&arena);
}

static cf_node *tree(const char *json)
{
    cf_node *root = NULL;
    ck_assert_msg(cf_json_read(json, strlen(json), &arena, &root, &err), "%s", err.message);
    return root;
}

/* "t:a n:3 l:0": what the steps of a path are. */
static const char *spelled(const cf_path *path)
{
    static char text[256];
    size_t n = 0;
    if (!path) return "-";
    text[0] = '\0';
    for (size_t i = 0; i < path->count; i++) {
        const cf_step *s = &path->steps[i];
        n += (size_t)snprintf(text + n, sizeof text - n, i ? " %c:" : "%c:", "tnklu"[s->kind]);
        if (s->kind == CF_STEP_TEXT)
            n += (size_t)snprintf(text + n, sizeof text - n, "%.*s", (int)s->length, s->text);
        else if (s->kind != CF_STEP_KEY)
            n += (size_t)snprintf(text + n, sizeof text - n, "%lld", (long long)s->number);
    }
    return text;
}

static const char *found(const cf_node *root, const char *key)
{
    return spelled(cf_path_find(&arena, root, key));
}

START_TEST(keys_have_paths)
{
    const cf_node *root =
        tree("{\"a\": {\"b.c\": 1, \"b\": {\"d\": 2}}, \"l\": [1, [2, {\"x\": 3}]],"
             " \"a.e\": 4, \"\": {\"\": 5}, \"flat.w\": 6, \"7\": {\"0\": 7},"
             " \"x.y\": {\"z\": 1}, \"x\": {\"y\": 2}}");
    ck_assert_str_eq(found(root, "flat.w"), "-"); /* one string */
    ck_assert_str_eq(found(root, "a.e"), "-");
    ck_assert_str_eq(found(root, "a.b.c"), "t:a t:b.c");
    ck_assert_str_eq(found(root, "a.b.d"), "t:a t:b t:d");
    ck_assert_str_eq(found(root, "l.0"), "t:l l:0");
    ck_assert_str_eq(found(root, "l.1.1.x"), "t:l l:1 l:1 t:x");
    ck_assert_str_eq(found(root, "l.1"), "t:l l:1");
    ck_assert_str_eq(found(root, "l.2"), "-");
    ck_assert_str_eq(found(root, "l.01"), "-");
    ck_assert_str_eq(found(root, "."), "t: t:");
    ck_assert_str_eq(found(root, "7.0"), "t:7 t:0");
    ck_assert_str_eq(found(root, "x.y"), "t:x t:y"); /* not the dict x.y, which is no leaf */
    ck_assert_str_eq(found(root, "model.a.b.d"), "t:model t:a t:b t:d");
    ck_assert_str_eq(found(root, "nothing.here"), "-");
}
END_TEST

START_TEST(keys_that_are_no_strings)
{
    cf_node *root = cf_node_new(&arena, CF_NODE_DICT), *below = cf_node_new(&arena, CF_NODE_DICT);
    bool replaced;
    ck_assert(cf_dict_set(&arena, root->dict, cf_node_int(&arena, -3), below, &replaced, &err));
    cf_node *none = cf_node_new(&arena, CF_NODE_NONE);
    ck_assert(cf_dict_set(&arena, below->dict, none, cf_node_int(&arena, 1), &replaced, &err));
    ck_assert_str_eq(found(root, "-3.None"), "n:-3 k:");
}
END_TEST

/* Adds leaves under paths of a tree's keys, in this order; what the nest is, as text. */
static const char *nested(const cf_node *root, const char *const *keys, size_t count)
{
    static char text[256];
    static cf_nest nest;
    size_t n = 0;
    cf_nest_init(&nest, &arena);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(
            cf_nest_add(&nest, keys[i], cf_path_find(&arena, root, keys[i]), (uint32_t)i, &err),
            "%s", err.message);
    ck_assert(cf_nest_finish(&nest, &err));
    for (size_t b = 0; b < nest.count; b++) {
        const cf_branch *level = &nest.branches[b];
        if (level->leaf != CF_NO_BRANCH) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%c", n ? " " : "",
                              "d  lt"[cf_nest_kind(&nest, level)]);
        for (uint32_t i = level->first; i != CF_NO_BRANCH; i = nest.branches[i].next)
            n += (size_t)snprintf(
                text + n, sizeof text - n, "%d",
                nest.branches[i].leaf == CF_NO_BRANCH ? 9 : (int)nest.branches[i].leaf);
    }
    return text;
}

START_TEST(levels_are_as_they_were)
{
    const cf_node *root = tree("{\"l\": [1, {\"x\": 3}, 5], \"a\": {\"b\": 1}}");
    const char *keys[] = {"l.2", "a.b", "l.0", "l.1.x"};
    ck_assert_str_eq(nested(root, keys, 4), "d99 l290 d1 d3");
    ck_assert_str_eq(nested(root, keys, 3), "d99 d02 d1"); /* a list with a hole is a dict */
}
END_TEST

START_TEST(two_in_one_place)
{
    const cf_step a = {.kind = CF_STEP_TEXT, .length = 1, .text = "a"};
    const cf_step below[] = {a, {.kind = CF_STEP_NUMBER, .number = 0}};
    const cf_step place[] = {a, {.kind = CF_STEP_LIST, .number = 0}};
    const cf_path one = {1, &a}, two = {2, below}, three = {2, place};
    cf_nest nest;
    cf_nest_init(&nest, &arena);
    ck_assert(cf_nest_add(&nest, "a.0", &two, 0, &err));
    ck_assert(!cf_nest_add(&nest, "a", &one, 1, &err));
    ck_assert_int_eq(err.code, CF_E_DUP_KEY);
    ck_assert(!cf_nest_add(&nest, "a.0 again", &three, 1, &err));
    ck_assert_int_eq(err.code, CF_E_DUP_KEY);
    cf_nest_init(&nest, &arena);
    ck_assert(cf_nest_add(&nest, "a", NULL, 0, &err));
    ck_assert(!cf_nest_add(&nest, "a.0", &two, 1, &err));
    ck_assert_int_eq(err.code, CF_E_DUP_KEY);
}
END_TEST

START_TEST(replaced_and_shared)
{
    const cf_node *root = tree("[{\"params\": [1, 2], \"lr\": 0.5}, {\"params\": [3]}]");
    const cf_step steps[] = {{.kind = CF_STEP_LIST, .number = 0},
                             {.kind = CF_STEP_TEXT, .length = 6, .text = "params"}};
    const cf_node *by = cf_node_int(&arena, 7);
    const cf_node *now = cf_path_replace(&arena, root, &(cf_path){2, steps}, by, &err);
    ck_assert_ptr_nonnull(now);
    ck_assert_ptr_eq(cf_dict_string(now->list->items[0]->dict, "params"), by);
    ck_assert_ptr_eq(now->list->items[1], root->list->items[1]);
    ck_assert_int_eq(cf_dict_string(root->list->items[0]->dict, "params")->kind, CF_NODE_LIST);
    const cf_step nowhere = {.kind = CF_STEP_LIST, .number = 2};
    ck_assert_ptr_null(cf_path_replace(&arena, root, &(cf_path){1, &nowhere}, by, &err));
    ck_assert_int_eq(err.code, CF_E_TYPE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nest");
    TCase *t = tcase_create("nest");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, keys_have_paths);
    tcase_add_test(t, keys_that_are_no_strings);
    tcase_add_test(t, levels_are_as_they_were);
    tcase_add_test(t, two_in_one_place);
    tcase_add_test(t, replaced_and_shared);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
