/* JSON into nodes, and nodes into JSON. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "suite.h"

static cf_arena arena;
static cf_err err;
static cf_text out;
static cf_json_tensors tensors;

static void setup(void)
{
    cf_arena_init(&arena, 0);
    err = (cf_err){0};
    out = (cf_text){0};
    tensors = (cf_json_tensors){.arena = &arena, .key = "k"};
}

static void teardown(void)
{
    cf_arena_free(&arena);
    cf_text_free(&out);
}

static cf_node *parsed(const char *text)
{
    cf_node *root;
    ck_assert_msg(cf_json_read(text, strlen(text), &arena, &root, &err), "%s: %s", text,
                  err.message);
    return root;
}

static const char *written(const cf_node *node, int indent)
{
    cf_text_free(&out);
    ck_assert_msg(cf_json_value(&out, node, indent, &tensors, &err), "%s", err.message);
    return out.at;
}

/* --- nodes */

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

static cf_node *text(cf_kind kind, const char *at)
{
    return cf_node_text(&arena, kind, at, strlen(at));
}

static void add(cf_node *list, cf_node *item)
{
    ck_assert(cf_list_add(&arena, list->list, item));
}

static cf_node *several(cf_kind kind, cf_node *first, cf_node *second)
{
    cf_node *list = cf_node_new(&arena, kind);
    if (first) add(list, first);
    if (second) add(list, second);
    return list;
}

static void set(cf_dict *dict, cf_node *key, cf_node *value)
{
    bool replaced;
    ck_assert(cf_dict_set(&arena, dict, key, value, &replaced, &err));
}

static cf_node *object(const char *module, const char *name)
{
    cf_global *class = CF_NEW(&arena, cf_global);
    *class = (cf_global){module, name, CF_FOREIGN};
    cf_node *node = cf_node_new(&arena, CF_NODE_OBJECT);
    node->object->class = class;
    return node;
}

static cf_node *view(cf_kind kind, cf_dtype dtype, cf_place place, const void *bytes, int ndim,
                     const int64_t *shape, bool big_endian)
{
    cf_storage *storage = CF_NEW(&arena, cf_storage);
    *storage = (cf_storage){.place = place, .size = 64, .bytes = bytes, .big_endian = big_endian};
    cf_node *node = cf_node_new(&arena, kind);
    node->view = cf_view_new(&arena, storage, dtype, 0, ndim, shape, NULL, &err);
    ck_assert_ptr_nonnull(node->view);
    return node;
}

/* --- reading */

START_TEST(test_read)
{
    const cf_node *root = parsed(" {\"b\": [1, -9223372036854775808, 9223372036854775807],"
                                 " \"a\": {\"f\": 1.0, \"s\": \"\\u00e4\\u0000\"},"
                                 " \"z\": [true, false, null]}\n");
    ck_assert_int_eq(root->kind, CF_NODE_DICT);
    ck_assert_mem_eq(root->dict->pairs[0].key->text.at, "b", 1); /* the order of the text */
    const cf_list *b = cf_dict_string(root->dict, "b")->list;
    ck_assert_uint_eq(b->count, 3);
    ck_assert_int_eq(b->items[1]->integer, INT64_MIN);
    ck_assert_int_eq(b->items[2]->integer, INT64_MAX);
    const cf_dict *a = cf_dict_string(root->dict, "a")->dict;
    ck_assert_int_eq(cf_dict_string(a, "f")->kind, CF_NODE_FLOAT);
    const cf_string s = cf_dict_string(a, "s")->text;
    ck_assert_uint_eq(s.length, 3);
    ck_assert_mem_eq(s.at, "\xc3\xa4\0", 3);
    const cf_list *z = cf_dict_string(root->dict, "z")->list;
    ck_assert_int_eq(z->items[0]->kind, CF_NODE_BOOL);
    ck_assert_int_eq(z->items[0]->integer, 1);
    ck_assert_int_eq(z->items[1]->integer, 0);
    ck_assert_int_eq(z->items[2]->kind, CF_NODE_NONE);
    ck_assert_int_eq(parsed("7")->integer, 7);
}
END_TEST

START_TEST(test_read_refuses)
{
    static const struct {
        const char *text;
        cf_code code;
    } CASES[] = {
        {"", CF_E_JSON},
        {"{", CF_E_JSON},
        {"{}x", CF_E_JSON},
        {"{\"a\":1,}", CF_E_JSON},
        {"\"\\ud800\"", CF_E_UTF8},
        {"\xef\xbb\xbf{}", CF_E_JSON},
        {"NaN", CF_E_JSON},
        {"{\"a\":1,\"\\u0061\":2}", CF_E_DUP_KEY},
        {"\"\xff\"", CF_E_UTF8},
        {"01", CF_E_JSON},
        {"1.", CF_E_JSON},
        {"[1 2]", CF_E_JSON},
        {"{\"a\" 1}", CF_E_JSON},
        {"{1: 1}", CF_E_JSON},
        {"1e999", CF_E_NUMBER},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        cf_node *root;
        ck_assert(!cf_json_read(CASES[i].text, strlen(CASES[i].text), &arena, &root, &err));
        ck_assert_msg(err.code == CASES[i].code, "%s: %s: %s", CASES[i].text,
                      cf_code_name(err.code), err.message);
        ck_assert_int_ge(err.offset, 0);
    }
}
END_TEST

static cf_code read_nested(int depth)
{
    char json[8192];
    memset(json, '[', (size_t)depth);
    memset(json + depth, ']', (size_t)depth);
    cf_node *root;
    return cf_json_read(json, 2 * (size_t)depth, &arena, &root, &err) ? CF_OK : err.code;
}

START_TEST(test_read_depth)
{
    ck_assert_int_eq(read_nested(CF_MOST_DEPTH), CF_OK);
    ck_assert_int_eq(read_nested(CF_MOST_DEPTH + 1), CF_E_DEPTH);
    ck_assert_int_eq(read_nested(4000), CF_E_DEPTH);
}
END_TEST

START_TEST(test_read_exactly)
{
    static const struct {
        const char *text;
        int64_t integer; /* 0: it stays text */
    } CASES[] = {{"9223372036854775807", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN},
                 {"-0", 0},
                 {"9223372036854775808", 0},
                 {"-9223372036854775809", 0},
                 {"123456789012345678901234567890", 0}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const cf_node *node = parsed(CASES[i].text);
        if (CASES[i].integer || strcmp(CASES[i].text, "-0") == 0) {
            ck_assert_int_eq(node->kind, CF_NODE_INT);
            ck_assert_int_eq(node->integer, CASES[i].integer);
        } else {
            ck_assert_int_eq(node->kind, CF_NODE_BIG);
            ck_assert_uint_eq(node->text.length, strlen(CASES[i].text));
            ck_assert_mem_eq(node->text.at, CASES[i].text, node->text.length);
        }
    }
}
END_TEST

/* --- writing */

/* What JSON can say goes through as it is. */
START_TEST(test_same)
{
    static const char *const TEXTS[] = {
        "null",
        "true",
        "-9223372036854775808",
        "\"a\\\"\\\\\\n\\u0001\\u0000\xc3\xa4\"",
        "[]",
        "{}",
        "[1, [2.5, \"x\"], {\"a\": {}, \"\": []}]",
        "[1.0, -0.0, 0.1, 1e+300, 3.14159265358979, 0.30000000000000004]",
    };
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        ck_assert_str_eq(written(parsed(TEXTS[i]), -1), TEXTS[i]);
}
END_TEST

START_TEST(test_atoms)
{
    cf_node *complex = cf_node_new(&arena, CF_NODE_COMPLEX);
    complex->complex.re = 1;
    complex->complex.im = -INFINITY;
    cf_node *dtype = cf_node_new(&arena, CF_NODE_DTYPE);
    dtype->dtype = CF_BF16;
    cf_node *global = cf_node_new(&arena, CF_NODE_GLOBAL);
    const cf_global class = {"torch.optim", "AdamW", CF_FOREIGN};
    global->global = &class;
    cf_node *storage = cf_node_new(&arena, CF_NODE_STORAGE);
    const cf_storage bytes = {.size = 12};
    storage->storage = &bytes;

    ck_assert_str_eq(written(text(CF_NODE_BIG, "-18446744073709551616"), -1),
                     "{\"$int\": \"-18446744073709551616\"}");
    ck_assert_str_eq(written(real(NAN), -1), "{\"$float\": \"nan\"}");
    ck_assert_str_eq(written(real(-INFINITY), -1), "{\"$float\": \"-inf\"}");
    ck_assert_str_eq(written(real(1e16), -1), "1e+16");
    ck_assert_str_eq(written(complex, -1), "{\"$complex\": [1.0, {\"$float\": \"-inf\"}]}");
    ck_assert_str_eq(written(text(CF_NODE_BYTES, ""), -1), "{\"$bytes\": \"\"}");
    ck_assert_str_eq(written(text(CF_NODE_BYTES, "f"), -1), "{\"$bytes\": \"Zg==\"}");
    ck_assert_str_eq(written(text(CF_NODE_BYTES, "fo"), -1), "{\"$bytes\": \"Zm8=\"}");
    ck_assert_str_eq(written(text(CF_NODE_BYTES, "fo\xff\xfe"), -1), "{\"$bytes\": \"Zm///g==\"}");
    ck_assert_str_eq(written(dtype, -1), "{\"$dtype\": \"BF16\"}");
    ck_assert_str_eq(written(global, -1), "{\"$class\": \"torch.optim.AdamW\"}");
    ck_assert_str_eq(written(storage, -1), "{\"$tensor\": \"k#1\"}");
}
END_TEST

START_TEST(test_containers)
{
    cf_node *dict = cf_node_new(&arena, CF_NODE_DICT);
    set(dict->dict, integer(0), several(CF_NODE_TUPLE, integer(1), integer(2)));
    set(dict->dict, text(CF_NODE_STRING, "a"), several(CF_NODE_SET, integer(3), NULL));
    ck_assert_str_eq(written(dict, -1),
                     "{\"$dict\": [[0, {\"$tuple\": [1, 2]}], [\"a\", {\"$set\": [3]}]]}");

    cf_node *dollar = cf_node_new(&arena, CF_NODE_DICT);
    set(dollar->dict, text(CF_NODE_STRING, "$x"), integer(1));
    ck_assert_str_eq(written(dollar, -1), "{\"$dict\": [[\"$x\", 1]]}");
}
END_TEST

START_TEST(test_objects)
{
    cf_node *path = object("pathlib", "PosixPath");
    cf_object_own(&arena, path->object)->args =
        several(CF_NODE_TUPLE, text(CF_NODE_STRING, "/"), text(CF_NODE_STRING, "a"));
    ck_assert_str_eq(written(path, -1),
                     "{\"$class\": \"pathlib.PosixPath\", \"args\": [\"/\", \"a\"]}");
    ck_assert_str_eq(written(object("a", "B"), -1), "{\"$class\": \"a.B\", \"args\": []}");

    cf_node *all = object("a", "B");
    cf_object_own(&arena, all->object)->args = several(CF_NODE_TUPLE, NULL, NULL);
    cf_object_own(&arena, all->object)->state = parsed("{\"s\": 1}");
    add(&(cf_node){.kind = CF_NODE_LIST, .list = &cf_object_own(&arena, all->object)->items},
        integer(5));
    set(&cf_object_own(&arena, all->object)->pairs, text(CF_NODE_STRING, "k"), integer(6));
    ck_assert_str_eq(written(all, -1), "{\"$class\": \"a.B\", \"args\": [], \"state\": {\"s\": 1}, "
                                       "\"items\": [5], \"pairs\": [[\"k\", 6]]}");
}
END_TEST

START_TEST(test_references)
{
    cf_node *shared = several(CF_NODE_LIST, integer(1), NULL);
    cf_node *dict = cf_node_new(&arena, CF_NODE_DICT);
    cf_node *empty = several(CF_NODE_TUPLE, NULL, NULL);
    set(dict->dict, text(CF_NODE_STRING, "a/b~"), several(CF_NODE_TUPLE, empty, shared));
    set(dict->dict, text(CF_NODE_STRING, "c"), several(CF_NODE_LIST, shared, empty));
    set(dict->dict, text(CF_NODE_STRING, "d"), dict);
    ck_assert_str_eq(written(dict, -1),
                     "{\"a/b~\": {\"$tuple\": [{\"$tuple\": []}, [1]]}, "
                     "\"c\": [{\"$ref\": \"/a~1b~0/$tuple/1\"}, {\"$tuple\": []}], "
                     "\"d\": {\"$ref\": \"\"}}");

    cf_node *cycle = object("a", "B"), *keyed = cf_node_new(&arena, CF_NODE_DICT);
    cf_object_own(&arena, cycle->object)->state = keyed;
    cf_object_own(&arena, cycle->object)->args = several(CF_NODE_TUPLE, shared, NULL);
    set(keyed->dict, integer(1), several(CF_NODE_LIST, keyed, cycle));
    set(keyed->dict, integer(2), shared);
    ck_assert_str_eq(written(cycle, -1),
                     "{\"$class\": \"a.B\", \"args\": [[1]], \"state\": {\"$dict\": "
                     "[[1, [{\"$ref\": \"/state\"}, {\"$ref\": \"\"}]], "
                     "[2, {\"$ref\": \"/args/0\"}]]}}");
}
END_TEST

/* Shared lists, each twice in the next: 2^100 values, some 100 lists. */
START_TEST(test_sharing_stays_small)
{
    cf_node *node = several(CF_NODE_LIST, integer(1), NULL);
    for (int i = 0; i < 100; i++) node = several(CF_NODE_LIST, node, node);
    ck_assert_uint_lt(strlen(written(node, -1)), 100000);
}
END_TEST

START_TEST(test_depth)
{
    cf_node *node = several(CF_NODE_LIST, NULL, NULL);
    for (int i = 0; i < CF_MOST_DEPTH; i++) node = several(CF_NODE_LIST, node, NULL);
    ck_assert(!cf_json_value(&out, node, -1, &tensors, &err));
    ck_assert_int_eq(err.code, CF_E_DEPTH);

    /* What is written can be read. */
    node = real(NAN);
    for (int i = 0; i < CF_MOST_DEPTH; i++) {
        cf_node *tuple = several(CF_NODE_TUPLE, node, NULL);
        cf_text json = {0};
        cf_node *root;
        if (cf_json_value(&json, tuple, -1, &tensors, &err))
            ck_assert(cf_json_read(json.at, json.size, &arena, &root, &err));
        else
            ck_assert_int_eq(err.code, CF_E_DEPTH);
        cf_text_free(&json);
        node = tuple;
    }
}
END_TEST

START_TEST(test_tensors)
{
    const int64_t shape[] = {2, 3};
    cf_node *first = view(CF_NODE_TENSOR, CF_F32, CF_IN_FILE, NULL, 2, shape, false);
    cf_node *second = view(CF_NODE_ARRAY, CF_I64, CF_IN_MEMORY, NULL, 1, shape, false);
    cf_node *none = view(CF_NODE_TENSOR, CF_BF16, CF_NOWHERE, NULL, 2, shape, false);
    cf_node *list = several(CF_NODE_LIST, first, second);
    add(list, none);
    add(list, first);
    ck_assert_str_eq(written(list, -1),
                     "[{\"$tensor\": \"k#1\"}, {\"$tensor\": \"k#2\"}, {\"$tensor\": null, "
                     "\"dtype\": \"BF16\", \"shape\": [2, 3]}, {\"$tensor\": \"k#1\"}]");
    ck_assert_uint_eq(tensors.count, 2);
    ck_assert_ptr_eq(tensors.items[1].view, second->view);
    ck_assert_str_eq(tensors.items[1].name, "k#2");
}
END_TEST

static const struct {
    cf_dtype dtype;
    const char *bytes;
    bool big_endian;
    const char *value;
} SCALARS[] = {
    {CF_F64, "\0\0\0\0\0\0\xd0\x3f", false, "0.25"},
    {CF_F64, "\x3f\xd0\0\0\0\0\0\0", true, "0.25"},
    {CF_F32, "\xcd\xcc\xcc\x3d", false, "0.10000000149011612"},
    {CF_F16, "\x00\xc2", false, "-3.0"},
    {CF_F16, "\xc2\x00", true, "-3.0"},
    {CF_F16, "\x01\x80", false, "-5.9604644775390625e-08"},
    {CF_F16, "\xff\x7b", false, "65504.0"},
    {CF_F16, "\x00\x7c", false, "{\"$float\": \"inf\"}"},
    {CF_F16, "\x00\x80", false, "-0.0"},
    {CF_C64, "\x3f\x80\0\0\xc0\0\0\0", true, "{\"$complex\": [1.0, -2.0]}"},
    {CF_C128, "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", false, "{\"$complex\": [1.0, -2.0]}"},
    {CF_I64, "\xff\xff\xff\xff\xff\xff\xff\xff", false, "-1"},
    {CF_I32, "\x80\0\0\1", true, "-2147483647"},
    {CF_I16, "\xfe\xff", false, "-2"},
    {CF_I8, "\x80", false, "-128"},
    {CF_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", false, "{\"$int\": \"18446744073709551615\"}"},
    {CF_U64, "\1\0\0\0\0\0\0\0", false, "1"},
    {CF_U32, "\xff\xff\xff\xff", false, "4294967295"},
    {CF_U16, "\1\2", true, "258"},
    {CF_U8, "\xff", false, "255"},
    {CF_BOOL, "\1", false, "true"},
    {CF_BOOL, "\0", false, "false"},
};

START_TEST(test_scalar)
{
    char want[128];
    const cf_node *node = view(CF_NODE_SCALAR, SCALARS[_i].dtype, CF_IN_MEMORY, SCALARS[_i].bytes,
                               0, NULL, SCALARS[_i].big_endian);
    snprintf(want, sizeof want, "{\"$scalar\": \"%s\", \"value\": %s}",
             cf_dtype_of(SCALARS[_i].dtype)->name, SCALARS[_i].value);
    ck_assert_str_eq(written(node, -1), want);
}
END_TEST

/* Every float reads back as it was. */
START_TEST(test_floats)
{
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        const cf_node *back = parsed(written(real(value), -1));
        ck_assert_int_eq(back->kind, CF_NODE_FLOAT);
        ck_assert_mem_eq(&back->real, &value, sizeof value);
    }
}
END_TEST

START_TEST(test_indent)
{
    cf_text_str(&out, "x");
    ck_assert(cf_json_value(&out, parsed("{\"a\": [1, 2], \"b\": {\"c\": [[], 1], \"d\": {}}}"), 2,
                            &tensors, &err));
    ck_assert_str_eq(out.at, "x{\n"
                             "    \"a\": [1, 2],\n"
                             "    \"b\": {\n"
                             "      \"c\": [\n"
                             "        [],\n"
                             "        1\n"
                             "      ],\n"
                             "      \"d\": {}\n"
                             "    }\n"
                             "  }");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("json");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_read);
    tcase_add_test(tcase, test_read_refuses);
    tcase_add_test(tcase, test_read_exactly);
    tcase_add_test(tcase, test_read_depth);
    tcase_add_test(tcase, test_same);
    tcase_add_test(tcase, test_atoms);
    tcase_add_test(tcase, test_containers);
    tcase_add_test(tcase, test_objects);
    tcase_add_test(tcase, test_references);
    tcase_add_test(tcase, test_sharing_stays_small);
    tcase_add_test(tcase, test_depth);
    tcase_add_test(tcase, test_tensors);
    tcase_add_loop_test(tcase, test_scalar, 0, (int)(sizeof SCALARS / sizeof *SCALARS));
    tcase_add_test(tcase, test_floats);
    tcase_add_test(tcase, test_indent);
    Suite *suite = suite_create("json");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
