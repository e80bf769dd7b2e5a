/* JSON back into values: what json_value.c writes comes back equal, anything else is refused. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "suite.h"
#include "torchfile.h"

static cf_arena tree, keep, back;
static cf_err err;
static cf_json_tensors tensors;

static void setup(void)
{
    cf_arena_init(&tree, 0);
    cf_arena_init(&keep, 0);
    cf_arena_init(&back, 0);
    err = (cf_err){0};
    tensors = (cf_json_tensors){.arena = &tree, .key = "k"};
}

static void teardown(void)
{
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    cf_arena_free(&back);
}

static bool find_tensor(void *ctx, const char *name, size_t length, const cf_view **out, cf_err *e)
{
    (void)ctx;
    for (size_t i = 0; i < tensors.count; i++)
        if (strlen(tensors.items[i].name) == length &&
            memcmp(tensors.items[i].name, name, length) == 0) {
            *out = tensors.items[i].view;
            return true;
        }
    return cf_fail(e, CF_E_MISSING_FILE, "no tensor %.*s", (int)length, name);
}

static bool decode(const char *json, size_t size, bool inert, cf_node **value)
{
    const cf_json_decoding from = {.arena = &back, .inert = inert, .tensor = find_tensor};
    cf_node *root;
    return cf_json_read(json, size, &back, &root, &err) && cf_json_decode(&from, root, value, &err);
}

static bool same_text(const char *json)
{
    cf_node *value;
    cf_text again = {0};
    cf_json_tensors second = {.arena = &back, .key = "k"};
    ck_assert_msg(decode(json, strlen(json), true, &value), "%s: %s", json, err.message);
    ck_assert_msg(cf_json_value(&again, value, -1, &second, &err), "%s", err.message);
    const bool same = strcmp(again.at, json) == 0;
    cf_text_free(&again);
    return same;
}

/* --- one by one */

static const char *const VALUES[] = {
    "null",
    "[]",
    "[1, {\"a\": {}, \"\": [false]}, 0.1]",
    "{\"$tuple\": []}",
    "{\"$tuple\": [{\"$set\": [1, \"x\"]}]}",
    "{\"$int\": \"18446744073709551616\"}",
    "{\"$int\": \"-18446744073709551616\"}",
    "{\"$float\": \"nan\"}",
    "{\"$float\": \"-inf\"}",
    "{\"$complex\": [1.0, {\"$float\": \"inf\"}]}",
    "{\"$bytes\": \"\"}",
    "{\"$bytes\": \"Zg==\"}",
    "{\"$bytes\": \"Zm8=\"}",
    "{\"$bytes\": \"Zm///g==\"}",
    "{\"$dtype\": \"BF16\"}",
    "{\"$dict\": [[0, {\"$tuple\": [1, 2]}], [{\"$tuple\": [1, null]}, 2], [\"$x\", 1]]}",
    "{\"$class\": \"torch.optim.AdamW\"}",
    "{\"$class\": \"a.B\", \"args\": []}",
    "{\"$class\": \"a.b.C\", \"args\": [1, [2]], \"state\": {\"s\": 1}, \"items\": [5], "
    "\"pairs\": [[\"k\", 6]]}",
    "{\"$class\": \"torch.UntypedStorage\", \"size\": 12}",
    "{\"$tensor\": null, \"dtype\": \"BF16\", \"shape\": [2, 3]}",
    "{\"a/b~\": {\"$tuple\": [{\"$tuple\": []}, [1]]}, \"c\": [{\"$ref\": \"/a~1b~0/$tuple/1\"}, "
    "{\"$tuple\": []}], \"d\": {\"$ref\": \"\"}}",
    "{\"$class\": \"a.B\", \"args\": [[1]], \"state\": {\"$dict\": [[1, [{\"$ref\": \"/state\"}, "
    "{\"$ref\": \"\"}]], [2, {\"$ref\": \"/args/0\"}]]}}",
    "{\"$scalar\": \"F64\", \"value\": 0.25}",
    "{\"$scalar\": \"F32\", \"value\": 0.10000000149011612}",
    "{\"$scalar\": \"F16\", \"value\": -3.0}",
    "{\"$scalar\": \"F16\", \"value\": -5.9604644775390625e-08}",
    "{\"$scalar\": \"F16\", \"value\": 6.103515625e-05}",
    "{\"$scalar\": \"F16\", \"value\": 65504.0}",
    "{\"$scalar\": \"F16\", \"value\": {\"$float\": \"nan\"}}",
    "{\"$scalar\": \"F16\", \"value\": {\"$float\": \"-inf\"}}",
    "{\"$scalar\": \"F16\", \"value\": -0.0}",
    "{\"$scalar\": \"C64\", \"value\": {\"$complex\": [1.0, -2.0]}}",
    "{\"$scalar\": \"C128\", \"value\": {\"$complex\": [0.1, -2.0]}}",
    "{\"$scalar\": \"I64\", \"value\": -9223372036854775808}",
    "{\"$scalar\": \"I8\", \"value\": -128}",
    "{\"$scalar\": \"U64\", \"value\": {\"$int\": \"18446744073709551615\"}}",
    "{\"$scalar\": \"U16\", \"value\": 65535}",
    "{\"$scalar\": \"BOOL\", \"value\": true}",
};

START_TEST(test_value)
{
    ck_assert_msg(same_text(VALUES[_i]), "%s", VALUES[_i]);
}
END_TEST

/* What is shared in the text is one node, and a big number needs no object in text of others. */
START_TEST(test_nodes)
{
    cf_node *value;
    static const char SHARED[] = "[[1], {\"$ref\": \"/0\"}, 18446744073709551616]";
    ck_assert(decode(SHARED, strlen(SHARED), false, &value));
    ck_assert_ptr_eq(value->list->items[0], value->list->items[1]);
    ck_assert_int_eq(value->list->items[2]->kind, CF_NODE_BIG);

    static const char CYCLE[] = "[{\"$tuple\": [{\"$ref\": \"\"}]}]";
    ck_assert(decode(CYCLE, strlen(CYCLE), false, &value));
    ck_assert_ptr_eq(value->list->items[0]->list->items[0], value);
}
END_TEST

/* A copy needs nothing of the arena that the value was decoded in. */
START_TEST(test_copy)
{
    static const char JSON[] = "[{\"$scalar\": \"F32\", \"value\": 0.5}, {\"$class\": "
                               "\"torch.UntypedStorage\", \"size\": 2}, "
                               "{\"$tensor\": null, \"dtype\": \"BF16\", \"shape\": [2]}]";
    cf_node *value;
    cf_text again = {0};
    ck_assert(decode(JSON, strlen(JSON), false, &value));
    const cf_node *copy = cf_node_copy(&tree, value);
    cf_arena_free(&back);
    ck_assert(cf_json_value(&again, copy, -1, NULL, &err));
    ck_assert_str_eq(again.at, JSON);
    cf_text_free(&again);
}
END_TEST

/* --- all of the fixtures */

static void round_trip(const char *name, cf_node *root)
{
    cf_text json = {0};
    tensors.count = 0;
    if (!cf_json_value(&json, root, -1, &tensors, &err)) {
        ck_assert_msg(err.code == CF_E_DEPTH, "%s: %s", name, err.message);
    } else {
        cf_node *value;
        ck_assert_msg(decode(json.at, json.size, true, &value), "%s: %s", name, err.message);
        ck_assert_msg(same_text(json.at), "%s", name);
    }
    cf_text_free(&json);
}

static int round_trips(const char *folder)
{
    char path[4096];
    int read = 0;
    snprintf(path, sizeof path, "%s/%s", getenv("CF_FIXTURES"), folder);
    DIR *dir = opendir(path);
    ck_assert_msg(dir != NULL, "%s", path);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char file[8192];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(file, "rb");
        if (!f) continue;
        uint8_t head[64] = {0};
        const size_t n = fread(head, 1, sizeof head, f);
        fseek(f, 0, SEEK_END);
        const cf_span span = cf_span_of_file(fileno(f), (uint64_t)ftell(f));
        cf_reading r = {.tree = &tree, .keep = &keep, .inert = true};
        cf_node *root;
        const bool ok = memcmp(head, "PK\3\4", 4) == 0 ? cf_torch_zip_read(&span, &r, &root, &err)
                        : cf_torch_legacy_magic(head, n)
                            ? cf_torch_legacy_read(&span, &r, &root, &err)
                            : head[0] == 0x80 && cf_pickle_file_read(&span, &r, &root, &err);
        if (ok) {
            round_trip(entry->d_name, root);
            read++;
        }
        fclose(f);
    }
    closedir(dir);
    return read;
}

START_TEST(test_fixtures)
{
    ck_assert_int_ge(round_trips("pickle"), 1);
    ck_assert_int_ge(round_trips("torch"), 5);
    ck_assert_int_ge(round_trips("olmo/odd_legacy_ws3_t2130/ckpt"), 3);
    ck_assert_int_ge(round_trips("olmo/olmolion_legacy_ws2_t2130/ckpt"), 2);
}
END_TEST

/* --- refused */

static const struct {
    const char *json, *message;
    cf_code code;
} REFUSED[] = {
    {"{\"a\": [{\"$what\": 1}]}", "/a/0: an object with '$what'", CF_E_JSON},
    {"{\"$tuple\": [], \"x\": 1}", "", CF_E_JSON},
    {"{\"$tuple\": {}}", "/$tuple: a list expected, not a dict", CF_E_JSON},
    {"{\"$int\": \"1x\"}", "", CF_E_JSON},
    {"{\"$int\": \"01\"}", "", CF_E_JSON},
    {"{\"$int\": \"-\"}", "", CF_E_JSON},
    {"{\"$int\": 1}", "/$int: a string expected, not an integer", CF_E_JSON},
    {"{\"$float\": \"1.0\"}", "", CF_E_JSON},
    {"{\"$complex\": [1.0]}", "", CF_E_JSON},
    {"{\"$complex\": [1.0, \"x\"]}", "/$complex/1: a float expected", CF_E_JSON},
    {"{\"$bytes\": \"Zg=\"}", "", CF_E_JSON},
    {"{\"$bytes\": \"Z===\"}", "", CF_E_JSON},
    {"{\"$bytes\": \"Zg==Zg==\"}", "", CF_E_JSON},
    {"{\"$dtype\": \"BF17\"}", "/$dtype: there is no dtype 'BF17'", CF_E_JSON},
    {"{\"$dict\": [[1]]}", "/$dict/0: a pair of 1", CF_E_JSON},
    {"{\"$dict\": [[1, 2], [1, 3]]}", "/$dict/1/0: a key twice", CF_E_JSON},
    {"{\"$dict\": [[[], 2]]}", "a list cannot be a key", CF_E_TYPE},
    {"{\"$dict\": [[{\"$ref\": \"\"}, 2]]}", "a dict cannot be a key", CF_E_TYPE},
    {"{\"$class\": \"x\"}", "/$class: 'x' names no class", CF_E_JSON},
    {"{\"$class\": \"a.B\", \"arg\": []}", "", CF_E_JSON},
    {"{\"$class\": \"os.system\", \"args\": [\"x\"]}", "os.system", CF_E_GLOBAL_DENIED},
    {"{\"$scalar\": \"BF16\", \"value\": 1.0}", "", CF_E_JSON},
    {"{\"$scalar\": \"U8\", \"value\": 256}", "/value: no value of U8", CF_E_JSON},
    {"{\"$scalar\": \"I8\", \"value\": -129}", "", CF_E_JSON},
    {"{\"$scalar\": \"U64\", \"value\": 18446744073709551616}", "", CF_E_JSON},
    {"{\"$scalar\": \"F32\", \"value\": 0.1}", "", CF_E_JSON},
    {"{\"$scalar\": \"F32\", \"value\": 1e300}", "", CF_E_JSON},
    {"{\"$scalar\": \"F16\", \"value\": 65536.0}", "", CF_E_JSON},
    {"{\"$scalar\": \"F32\", \"value\": 1}", "", CF_E_JSON},
    {"{\"$scalar\": \"F32\"}", "", CF_E_JSON},
    {"{\"$tensor\": \"k#9\"}", "no tensor k#9", CF_E_MISSING_FILE},
    {"{\"$tensor\": null}", "", CF_E_JSON},
    {"{\"$tensor\": null, \"dtype\": \"F32\", \"shape\": [-1]}", "negative", CF_E_NUMBER},
    {"[{\"$ref\": \"/1\"}, []]", "/0: there is nothing to refer to at '/1'", CF_E_JSON},
    {"[[], {\"$ref\": \"/00\"}, {\"$ref\": \"0\"}]", "'0'", CF_E_JSON},
    {"[1, {\"$ref\": \"/0\"}]", "", CF_E_JSON},
    {"[{}, {\"$ref\": \"/0/~2\"}]", "", CF_E_JSON},
};

START_TEST(test_refuses)
{
    cf_node *value;
    ck_assert_msg(!decode(REFUSED[_i].json, strlen(REFUSED[_i].json), false, &value), "%s",
                  REFUSED[_i].json);
    ck_assert_msg(err.code == REFUSED[_i].code && strstr(err.message, REFUSED[_i].message),
                  "%s: %s: %s", REFUSED[_i].json, cf_code_name(err.code), err.message);
}
END_TEST

/* Each list refers to the one before it from ever deeper below: no tree of JSON is that deep. */
START_TEST(test_depth)
{
    cf_text json = {0};
    cf_node *value;
    cf_text_str(&json, "[[]");
    for (int i = 1; i < 300; i++) cf_text_printf(&json, ", [{\"$ref\": \"/%d\"}]", i - 1);
    cf_text_str(&json, "]");
    ck_assert(!decode(json.at, json.size, false, &value));
    ck_assert_int_eq(err.code, CF_E_DEPTH);
    cf_text_free(&json);
}
END_TEST

/* A tree that no JSON gave. */
START_TEST(test_no_json)
{
    const cf_json_decoding from = {.arena = &back};
    cf_node *list = cf_node_new(&tree, CF_NODE_LIST), *dict = cf_node_new(&tree, CF_NODE_DICT);
    cf_node *value;
    bool replaced;
    ck_assert(cf_list_add(&tree, list->list, list));
    ck_assert(!cf_json_decode(&from, list, &value, &err));
    ck_assert_int_eq(err.code, CF_E_DEPTH);
    ck_assert(cf_dict_set(&tree, dict->dict, cf_node_int(&tree, 1), dict, &replaced, &err));
    ck_assert(!cf_json_decode(&from, dict, &value, &err));
    ck_assert_int_eq(err.code, CF_E_JSON);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_decode");
    TCase *tcase = tcase_create("json_decode");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_value, 0, sizeof VALUES / sizeof *VALUES);
    tcase_add_test(tcase, test_nodes);
    tcase_add_test(tcase, test_copy);
    tcase_add_test(tcase, test_fixtures);
    tcase_add_loop_test(tcase, test_refuses, 0, sizeof REFUSED / sizeof *REFUSED);
    tcase_add_test(tcase, test_depth);
    tcase_add_test(tcase, test_no_json);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
