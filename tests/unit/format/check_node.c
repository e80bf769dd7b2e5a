/* Nodes: dict keys, equality, hash, text, copy, depth. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "node.h"
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

static cf_node *string(const char *text)
{
    return cf_node_text(&arena, CF_NODE_STRING, text, strlen(text));
}

static cf_node *integer(int64_t value)
{
    return cf_node_int(&arena, value);
}

static cf_node *real(double value)
{
    cf_node *node = cf_node_new(&arena, CF_NODE_FLOAT);
    node->real = value;
    return node;
}

static cf_node *sequence(cf_kind kind, cf_node *first, cf_node *second)
{
    cf_node *node = cf_node_new(&arena, kind);
    if (first) ck_assert(cf_list_add(&arena, node->list, first));
    if (second) ck_assert(cf_list_add(&arena, node->list, second));
    return node;
}

static void put(cf_node *dict, cf_node *key, cf_node *value)
{
    bool replaced;
    ck_assert_msg(cf_dict_set(&arena, dict->dict, key, value, &replaced, &err), "%s", err.message);
}

static cf_node *array(cf_kind kind, const void *bytes, cf_dtype dtype, int64_t n, bool big)
{
    cf_storage *storage = CF_NEW(&arena, cf_storage);
    *storage = (cf_storage){.place = CF_IN_MEMORY,
                            .bytes = bytes,
                            .size = (uint64_t)(n * cf_dtype_size(dtype)),
                            .name = "",
                            .big_endian = big};
    cf_node *node = cf_node_new(&arena, kind);
    node->view = cf_view_new(&arena, storage, dtype, 0, kind == CF_NODE_ARRAY, &n, NULL, &err);
    ck_assert_ptr_nonnull(node->view);
    return node;
}

static cf_node *object(const char *module, const char *name, cf_node *args, cf_node *state)
{
    cf_global *class = CF_NEW(&arena, cf_global);
    *class = (cf_global){module, name, CF_FOREIGN};
    cf_node *node = cf_node_new(&arena, CF_NODE_OBJECT);
    node->object->class = class;
    cf_object_own(&arena, node->object)->args = args;
    cf_object_own(&arena, node->object)->state = state;
    return node;
}

static void assert_shown(const cf_node *node, const char *want)
{
    cf_text text = {0};
    cf_node_show(&text, node, 400);
    ck_assert_str_eq(text.at, want);
    cf_text_free(&text);
}

START_TEST(keys_of_every_kind)
{
    cf_node *dict = cf_node_new(&arena, CF_NODE_DICT);
    cf_node *yes = cf_node_new(&arena, CF_NODE_BOOL);
    yes->integer = 1;
    cf_node *plain = object("a", "B", NULL, NULL), *twin = object("a", "B", NULL, NULL);
    cf_node *keys[] = {
        string(""),
        string("1"),
        integer(1),
        real(0.0),
        cf_node_text(&arena, CF_NODE_BYTES, "1", 1),
        cf_node_text(&arena, CF_NODE_BIG, "1", 1),
        cf_node_new(&arena, CF_NODE_NONE),
        sequence(CF_NODE_TUPLE, string("ab"), string("c")),
        sequence(CF_NODE_TUPLE, string("a"), string("bc")),
        sequence(CF_NODE_TUPLE, sequence(CF_NODE_TUPLE, string("a"), NULL), string("bc")),
        plain,
        twin,
    };
    enum { N = sizeof keys / sizeof *keys };
    for (int i = 0; i < N; i++) put(dict, keys[i], integer(i));
    ck_assert_uint_eq(dict->dict->count, N);
    for (int i = 0; i < N; i++) ck_assert_int_eq(cf_dict_find(dict->dict, keys[i])->integer, i);
    ck_assert_int_eq(cf_dict_find(dict->dict, yes)->integer, 2);
    ck_assert_int_eq(cf_dict_find(dict->dict, real(-0.0))->integer, 3);
    ck_assert_int_eq(cf_dict_string(dict->dict, "1")->integer, 1);
    ck_assert_ptr_null(cf_dict_find(dict->dict, integer(2)));
    ck_assert_ptr_null(cf_dict_find(dict->dict, sequence(CF_NODE_LIST, NULL, NULL)));

    bool replaced;
    ck_assert(cf_dict_set(&arena, dict->dict, yes, string("new"), &replaced, &err) && replaced);
    ck_assert_uint_eq(dict->dict->count, N);
    ck_assert_int_eq(cf_dict_find(dict->dict, integer(1))->kind, CF_NODE_STRING);
}
END_TEST

START_TEST(refuses_keys)
{
    cf_dict dict = {0};
    bool replaced;
    cf_node *list = sequence(CF_NODE_TUPLE, sequence(CF_NODE_LIST, NULL, NULL), NULL);
    ck_assert(!cf_dict_set(&arena, &dict, list, list, &replaced, &err));
    ck_assert_int_eq(err.code, CF_E_TYPE);
    cf_node *bomb = string("x"); /* 2^40 parts in 40 nodes */
    for (int i = 0; i < 40; i++) bomb = sequence(CF_NODE_TUPLE, bomb, bomb);
    ck_assert(!cf_dict_set(&arena, &dict, bomb, bomb, &replaced, &err));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
    cf_node *deep = string("x");
    for (int i = 0; i < 70; i++) deep = sequence(CF_NODE_TUPLE, deep, NULL);
    ck_assert(!cf_dict_set(&arena, &dict, deep, deep, &replaced, &err));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
    ck_assert_uint_eq(dict.count, 0);
}
END_TEST

START_TEST(large_dicts_have_an_index)
{
    enum { N = 1000 };
    cf_node *dict = cf_node_new(&arena, CF_NODE_DICT);
    for (int i = 0; i < N; i++) {
        char name[16];
        const int length = snprintf(name, sizeof name, "key%d", i);
        put(dict, string(cf_strndup(&arena, name, (size_t)length)), integer(i));
        const cf_map *index = dict->dict->index;
        ck_assert_uint_eq(index ? index->count : 0, i < 16 ? 0 : (size_t)i + 1);
    }
    ck_assert_int_eq(cf_dict_string(dict->dict, "key0")->integer, 0);
    ck_assert_int_eq(cf_dict_string(dict->dict, "key999")->integer, 999);
    ck_assert_ptr_null(cf_dict_string(dict->dict, "key1000"));
}
END_TEST

START_TEST(equality)
{
    cf_node *a = cf_node_new(&arena, CF_NODE_DICT), *b = cf_node_new(&arena, CF_NODE_DICT);
    put(a, string("x"), sequence(CF_NODE_LIST, integer(1), real(2.5)));
    put(a, integer(7), sequence(CF_NODE_SET, string("p"), string("q")));
    put(b, integer(7), sequence(CF_NODE_SET, string("q"), string("p")));
    put(b, string("x"), sequence(CF_NODE_LIST, integer(1), real(2.5)));
    ck_assert(cf_node_equal(a, b) && cf_node_hash(a, NULL, NULL) == cf_node_hash(b, NULL, NULL));
    put(b, string("x"), sequence(CF_NODE_TUPLE, integer(1), real(2.5)));
    ck_assert(!cf_node_equal(a, b));
    ck_assert(!cf_node_equal(integer(1), real(1)));
    ck_assert(cf_node_equal(real(__builtin_nan("")), real(__builtin_nan(""))));

    cf_node *m = object("m", "X", sequence(CF_NODE_TUPLE, integer(1), NULL), NULL);
    ck_assert(cf_node_equal(m, object("m", "X", sequence(CF_NODE_TUPLE, integer(1), NULL), NULL)));
    ck_assert(!cf_node_equal(m, object("n", "X", cf_object_own(&arena, m->object)->args, NULL)));
    ck_assert(!cf_node_equal(m, object("m", "X", NULL, cf_object_own(&arena, m->object)->args)));
}
END_TEST

START_TEST(arrays_compare_by_bytes)
{
    static const int32_t ONE[2] = {1, 2}, SAME[2] = {1, 2}, OTHER[2] = {1, 3};
    const cf_node *one = array(CF_NODE_ARRAY, ONE, CF_I32, 2, false);
    const cf_node *same = array(CF_NODE_ARRAY, SAME, CF_I32, 2, false);
    ck_assert(cf_node_equal(one, same) &&
              cf_node_hash(one, NULL, NULL) == cf_node_hash(same, NULL, NULL));
    ck_assert(!cf_node_equal(one, array(CF_NODE_ARRAY, OTHER, CF_I32, 2, false)));
    ck_assert(!cf_node_equal(one, array(CF_NODE_ARRAY, SAME, CF_U32, 2, false)));
    ck_assert(!cf_node_equal(one, array(CF_NODE_ARRAY, SAME, CF_I32, 2, true)));
    ck_assert(!cf_node_equal(one, array(CF_NODE_TENSOR, SAME, CF_I32, 2, false)));
}
END_TEST

START_TEST(shared_nodes_do_not_explode)
{
    cf_node *a = sequence(CF_NODE_LIST, NULL, NULL), *b = sequence(CF_NODE_LIST, NULL, NULL);
    for (int i = 0; i < 100; i++) {
        a = sequence(CF_NODE_LIST, a, a);
        b = sequence(CF_NODE_LIST, b, b);
    }
    ck_assert(cf_node_check_depth(a, &err));
    ck_assert_int_eq(a->height, 100);
    ck_assert(!cf_node_equal(a, b)); /* given up */
    ck_assert_uint_eq(cf_node_hash(a, NULL, NULL), cf_node_hash(b, NULL, NULL));
    const cf_node *copy = cf_node_copy(&arena, a);
    ck_assert(copy && copy->list->items[0] == copy->list->items[1]);
    cf_text text = {0};
    cf_node_show(&text, a, 100);
    ck_assert_uint_lt(text.size, 1000);
    cf_text_free(&text);
}
END_TEST

START_TEST(depth)
{
    cf_node *node = integer(1);
    for (int i = 0; i < CF_MOST_DEPTH; i++) node = sequence(CF_NODE_TUPLE, node, NULL);
    ck_assert(cf_node_check_depth(node, &err));
    /* a node whose height is known, and one more level */
    ck_assert(!cf_node_check_depth(sequence(CF_NODE_LIST, integer(1), node), &err));
    ck_assert_int_eq(err.code, CF_E_DEPTH);
    for (int i = 0; i < 100000; i++) node = sequence(CF_NODE_TUPLE, node, NULL);
    ck_assert(!cf_node_check_depth(node, &err));

    cf_node *self = sequence(CF_NODE_LIST, integer(1), NULL);
    ck_assert(cf_list_add(&arena, self->list, self));
    ck_assert(cf_node_check_depth(self, &err));
    assert_shown(self, "[1, ...]");
    ck_assert(cf_node_equal(self, self));
    const cf_node *copy = cf_node_copy(&arena, self);
    ck_assert(copy != self && copy->list->items[1] == copy);
    ck_assert(!cf_node_equal(self, copy));
}
END_TEST

START_TEST(shows_as_python_does)
{
    cf_node *dict = cf_node_new(&arena, CF_NODE_DICT);
    put(dict, string("it's\n\x1b"), sequence(CF_NODE_TUPLE, integer(-1), NULL));
    put(dict, integer(3), sequence(CF_NODE_LIST, real(1), real(0.1)));
    put(dict, cf_node_text(&arena, CF_NODE_BYTES, "a\xff", 2), cf_node_new(&arena, CF_NODE_NONE));
    put(dict, string("s"), sequence(CF_NODE_SET, NULL, NULL));
    assert_shown(dict, "{'it\\'s\\n\\x1b': (-1,), 3: [1.0, 0.1], b'a\\xff': None, 's': set()}");
    cf_node *state = cf_node_new(&arena, CF_NODE_DICT);
    put(state, string("a"), integer(1));
    assert_shown(object("m.core", "X", NULL, state), "m.core.X{'a': 1}");
    assert_shown(
        object("m", "X", sequence(CF_NODE_TUPLE, integer(2), NULL), dict->dict->pairs[0].value),
        "m.X(2,)<(-1,)>");
    ck_assert_str_eq(cf_node_class(object("m", "A.B", NULL, NULL)), "B");
    ck_assert_str_eq(cf_node_class(dict), "dict");
    ck_assert_ptr_eq(cf_node_field(object("m", "X", NULL, state), "a"),
                     state->dict->pairs[0].value);

    cf_text text = {0};
    cf_node_show(&text, string("0123456789"), 4);
    ck_assert_str_eq(text.at, "'012'...");
    cf_text_free(&text);
}
END_TEST

START_TEST(scalars_are_numbers)
{
    static const double f64 = 0.25;
    static const uint64_t u64 = UINT64_MAX;
    static const uint16_t f16 = 0xc100;
    static const uint8_t big[] = {0xff, 0xfe};
    static const float c64[] = {1.5, -2};
    assert_shown(array(CF_NODE_SCALAR, &f64, CF_F64, 1, false), "float64(0.25)");
    assert_shown(array(CF_NODE_SCALAR, &u64, CF_U64, 1, false), "uint64(18446744073709551615)");
    assert_shown(array(CF_NODE_SCALAR, &f16, CF_F16, 1, false), "float16(-2.5)");
    assert_shown(array(CF_NODE_SCALAR, big, CF_I16, 1, true), "int16(-2)");
    assert_shown(array(CF_NODE_SCALAR, c64, CF_C64, 1, false), "complex64(complex(1.5, -2.0))");
    ck_assert_ptr_null(cf_node_number(&arena, integer(1)));
}
END_TEST

START_TEST(copies_outlive)
{
    cf_arena first;
    cf_arena_init(&first, 0);
    cf_node *dict = cf_node_new(&first, CF_NODE_DICT);
    for (int i = 0; i < 40; i++) {
        bool replaced;
        cf_node *key = cf_node_new(&first, CF_NODE_TUPLE);
        cf_node *text = cf_node_text(&first, CF_NODE_STRING, cf_strndup(&first, "abc", 3), 3);
        ck_assert(cf_list_add(&first, key->list, cf_node_int(&first, i)));
        ck_assert(cf_dict_set(&first, dict->dict, key, text, &replaced, &err) && !replaced);
    }
    cf_text before = {0}, after = {0};
    cf_node_show(&before, dict, 4000);
    cf_node *copy = cf_node_copy(&arena, dict);
    ck_assert(copy && cf_node_equal(copy, dict) &&
              cf_node_hash(copy, NULL, NULL) == cf_node_hash(dict, NULL, NULL));
    cf_arena_free(&first);
    cf_node_show(&after, copy, 4000);
    ck_assert_str_eq(before.at, after.at);
    ck_assert(cf_dict_find(copy->dict, sequence(CF_NODE_TUPLE, integer(39), NULL)));
    cf_text_free(&before);
    cf_text_free(&after);

    cf_arena small;
    cf_arena_init(&small, 64);
    ck_assert_ptr_null(cf_node_copy(&small, copy));
    cf_arena_free(&small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node");
    TCase *tcase = tcase_create("node");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, keys_of_every_kind);
    tcase_add_test(tcase, refuses_keys);
    tcase_add_test(tcase, large_dicts_have_an_index);
    tcase_add_test(tcase, equality);
    tcase_add_test(tcase, arrays_compare_by_bytes);
    tcase_add_test(tcase, shared_nodes_do_not_explode);
    tcase_add_test(tcase, depth);
    tcase_add_test(tcase, shows_as_python_does);
    tcase_add_test(tcase, scalars_are_numbers);
    tcase_add_test(tcase, copies_outlive);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
