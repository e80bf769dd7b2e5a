/* Trees written as pickles and read back: equal, but for what weights_only does not take. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pickle.h"
#include "pickle_tree.h"
#include "suite.h"

static cf_arena tree, keep;
static cf_err err;
static cf_text text, told;

static void setup(void)
{
    cf_arena_init(&tree, 0);
    cf_arena_init(&keep, 0);
}

static void teardown(void)
{
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    cf_text_free(&text);
    cf_text_free(&told);
}

static cf_node *read_pickle(const void *bytes, size_t size)
{
    cf_pickle reader = {.tree = &tree, .keep = &keep};
    cf_node *root = NULL;
    ck_assert_msg(cf_pickle_read(&reader, bytes, size, NULL, &root, &err), "%s", err.message);
    return root;
}

#define READ(bytes) read_pickle((bytes), sizeof(bytes) - 1)

static void left_out(void *ctx, const char *where, const char *what)
{
    (void)ctx;
    cf_text_printf(&told, "%s=%s;", where, what);
}

static const cf_node *written(const cf_node *value)
{
    cf_pickler p;
    text.size = told.size = 0;
    cf_pickler_init(&p, &text);
    const cf_pickle_tree out = {.p = &p, .left_out = left_out};
    ck_assert_msg(cf_pickle_value(&out, value, &err), "%s", err.message);
    ck_assert(cf_pickler_end(&p, &err));
    cf_pickler_free(&p);
    uint8_t *own = cf_memdup(&tree, text.at, text.size);
    return read_pickle(own, text.size);
}

START_TEST(comes_back_equal)
{
    const cf_node *value = READ("\x80\x04(]N\x88K\x05\x8a\x01\xffG?\xf0\0\0\0\0\0\0}\x8c\x01"
                                "aK\x01s\x8c\x01x\x87)"
                                "C\x02\xff\0\x8f(K\x01K\x02\x90t.");
    const char *what;
    ck_assert(cf_pickle_holds(value, &what));
    ck_assert(cf_node_equal(value, written(value)));
}
END_TEST

START_TEST(shared_and_cyclic)
{
    const cf_node *value = READ("\x80\x02]q\0(h\0]q\1(K\1eh\1e."), *now = written(value);
    ck_assert_ptr_eq(now->list->items[0], now);
    ck_assert_ptr_eq(now->list->items[1], now->list->items[2]);
    const char *what;
    const cf_node *through = READ("\x80\x02]q\0(h\0\x85K\1e."); /* a list in a tuple in it */
    ck_assert(cf_pickle_holds(through, &what));
    now = written(through);
    ck_assert_ptr_eq(now->list->items[0]->list->items[0], now);
    ck_assert(!cf_pickle_holds(through->list->items[0], &what)); /* nothing says a tuple twice */
    ck_assert_str_eq(what, "tuple");
}
END_TEST

/* {'a': 1, 'b': [X()], 'c': {'d': X(), 'e': path}} */
START_TEST(entries_are_left_out)
{
    const cf_node *value = READ("\x80\x02}(X\1\0\0\0aK\1X\1\0\0\0b]cm\nX\n)\x81"
                                "aX\1\0\0\0c}(X\1\0"
                                "\0\0dcm\nX\n)\x81X\1\0\0\0ecpathlib\nPosixPath\n(X\1\0\0\0/"
                                "X\1\0\0\0utRuu.");
    const cf_node *now = written(value);
    ck_assert_uint_eq(now->dict->count, 2);
    ck_assert_str_eq(told.at, "b=X;c.d=X;");
    const cf_node *path = cf_dict_string(cf_dict_string(now->dict, "c")->dict, "e");
    ck_assert(path && path->kind == CF_NODE_STRING && memcmp(path->text.at, "/u", 2) == 0);
    const char *what;
    ck_assert(!cf_pickle_holds(cf_dict_string(value->dict, "b"), &what));
    ck_assert_str_eq(what, "X");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pickle_tree");
    TCase *t = tcase_create("pickle_tree");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, comes_back_equal);
    tcase_add_test(t, shared_and_cyclic);
    tcase_add_test(t, entries_are_left_out);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
