/* The safetensors reader and the header writer, on files made here. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "suite.h"

static cf_arena tree, keep;
static cf_err err;

static void setup(void)
{
    cf_arena_init(&tree, 0);
    cf_arena_init(&keep, 0);
    err = (cf_err){0};
}

static void teardown(void)
{
    cf_arena_free(&tree);
    cf_arena_free(&keep);
}

static cf_code read_bytes(const void *bytes, size_t size, cf_node **root, cf_node **meta)
{
    const cf_span span = cf_span_of_bytes(bytes, size);
    cf_reading r = {.tree = &tree, .keep = &keep, .file = 7};
    return cf_safetensors_read(&span, &r, root, meta, &err) ? CF_OK : err.code;
}

/* A file of this header and `data` bytes. */
static cf_code read_file(const char *header, size_t data, cf_node **root, cf_node **meta)
{
    const size_t n = strlen(header);
    uint8_t *bytes = calloc(1, 8 + n + data);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    const cf_code code = read_bytes(bytes, 8 + n + data, root, meta);
    free(bytes);
    return code;
}

static const cf_view *view_of(const cf_node *root, const char *name)
{
    const cf_node *node = cf_dict_string(root->dict, name);
    ck_assert_ptr_nonnull(node);
    ck_assert_int_eq(node->kind, CF_NODE_TENSOR);
    return node->view;
}

#define W(rest) "{\"w\":{\"dtype\":\"F32\"," rest "}}"

static const struct {
    const char *header;
    size_t data;
    cf_code code;
    int64_t offset; /* of the error; -2: not checked */
} CASES[] = {
    /* accepted */
    {"{}", 0, CF_OK, 0},
    {" \n{\"__metadata__\":null}\t ", 0, CF_OK, 0},
    {"{\"__metadata__\":{}}", 0, CF_OK, 0},
    {W("\"shape\":[2,4],\"data_offsets\":[0,32]"), 32, CF_OK, 0},
    {W("\"shape\":[],\"data_offsets\":[0,4]"), 4, CF_OK, 0},
    {W("\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]"), 0, CF_OK, 0},
    {W("\"shape\":[1],\"x\":[{\"y\":-1.5e+3},true,null,\"\\n\"],\"data_offsets\":[0,4]"), 4, CF_OK,
     0},
    /* an empty tensor where others touch */
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
     "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
     5, CF_OK, 0},

    /* JSON */
    {"  ", 0, CF_E_JSON, 10},
    {"[]", 0, CF_E_JSON, 8},
    {"\xef\xbb\xbf{}", 0, CF_E_JSON, 8},
    {"{}{}", 0, CF_E_JSON, 10},
    {"{/**/}", 0, CF_E_JSON, 9},
    {"{\"a\":}", 0, CF_E_JSON, 13},
    {"{\"a", 0, CF_E_JSON, 11},
    {"{\"a\n\":1}", 0, CF_E_JSON, 11},
    {"{\"\\x\":1}", 0, CF_E_JSON, -2},
    {"{\"\\u12g4\":1}", 0, CF_E_JSON, -2},
    {"{\"w\":01}", 0, CF_E_JSON, -2},
    {"{\"w\":1}", 0, CF_E_JSON, 13},
    {"{\"__metadata__\":{\"a\":1}}", 0, CF_E_JSON, -2},
    {"{\"w\":{}}", 0, CF_E_JSON, 13},
    {"{\"w\":{\"shape\":[8],\"data_offsets\":[0,32]}}", 32, CF_E_JSON, 13},
    {W("\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, CF_E_JSON, -2},
    {W("\"shape\":[2e0],\"data_offsets\":[0,8]"), 8, CF_E_JSON, -2},
    {W("\"shape\":[02],\"data_offsets\":[0,8]"), 8, CF_E_JSON, -2},
    {W("\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, CF_E_JSON, -2},
    {W("\"shape\":[2],\"data_offsets\":[0,8,16]"), 8, CF_E_JSON, 13},
    {W("\"shape\":[2],\"data_offsets\":[]"), 8, CF_E_JSON, 13},
    {W("\"shape\":[2],\"data_offsets\":[0,8],\"x\":tru"), 8, CF_E_JSON, -2},
    {W("\"shape\":[2],\"data_offsets\":[0,8],\"x\":1.}"), 8, CF_E_JSON, -2},

    /* text */
    {"{\"\xff\":1}", 0, CF_E_UTF8, 10},
    {"{\"\\ud800\":1}", 0, CF_E_UTF8, -2},
    {"{\"\\udc00\":1}", 0, CF_E_UTF8, -2},
    {"{\"\\ud800\\u0041\":1}", 0, CF_E_UTF8, -2},
    {"{\"a\\u0000\":1}", 0, CF_E_UTF8, -2},

    /* names twice */
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, CF_E_DUP_KEY, -2},
    {"{\"__metadata__\":{\"a\":\"\",\"\\u0061\":\"\"}}", 0, CF_E_DUP_KEY, -2},
    {W("\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]"), 32, CF_E_DUP_KEY, -2},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"\\u0077\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, CF_E_DUP_KEY, -2},

    /* numbers */
    {W("\"shape\":[2],\"data_offsets\":[-8,0]"), 8, CF_E_NUMBER, -2},
    {W("\"shape\":[18446744073709551624],\"data_offsets\":[0,32]"), 32, CF_E_NUMBER, -2},
    {W("\"shape\":[9223372036854775808,0],\"data_offsets\":[0,0]"), 0, CF_E_OVERFLOW, -2},
    {W("\"shape\":[4294967296,4294967296,8],\"data_offsets\":[0,32]"), 32, CF_E_OVERFLOW, 13},
    {W("\"shape\":[4611686018427387906],\"data_offsets\":[0,8]"), 8, CF_E_OVERFLOW, 13},
    {W("\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
       "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"),
     4, CF_E_LIMIT, 13},

    /* types */
    {"{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, CF_E_DTYPE, 22},
    {"{\"w\":{\"dtype\":\"C128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16, CF_E_DTYPE, 22},
    {"{\"w\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, CF_E_DTYPE, 22},

    /* layout */
    {W("\"shape\":[2],\"data_offsets\":[8,0]"), 8, CF_E_LAYOUT, 13},
    {W("\"shape\":[2],\"data_offsets\":[0,4]"), 4, CF_E_LAYOUT, 13},
    {W("\"shape\":[1],\"data_offsets\":[4,8]"), 8, CF_E_LAYOUT, -2},
    {W("\"shape\":[1],\"data_offsets\":[0,4]"), 5, CF_E_LAYOUT, -2},
    {W("\"shape\":[1],\"data_offsets\":[0,4]"), 3, CF_E_LAYOUT, -2},
    {"{}", 1, CF_E_LAYOUT, 10},
    /* 2^53 + 1: a reader of doubles takes 2^53 and 2^53 */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,9007199254740992]}"
     "}",
     0, CF_E_LAYOUT, 13},
    /* the same range twice; a gap; an empty tensor within another */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, CF_E_LAYOUT, -2},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, CF_E_LAYOUT, -2},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, CF_E_LAYOUT, -2},
};

START_TEST(test_case)
{
    cf_node *root, *meta;
    ck_assert_msg(read_file(CASES[_i].header, CASES[_i].data, &root, &meta) == CASES[_i].code,
                  "%s: %s: %s", CASES[_i].header, cf_code_name(err.code), err.message);
    if (CASES[_i].code && CASES[_i].offset != -2)
        ck_assert_msg(err.offset == CASES[_i].offset, "%s: byte %lld: %s", CASES[_i].header,
                      (long long)err.offset, err.message);
}
END_TEST

START_TEST(test_views)
{
    cf_node *root, *meta;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                         "\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"}}";
    ck_assert_int_eq(read_file(header, 16, &root, &meta), CF_OK);
    const cf_node *format = cf_dict_string(meta->dict, "format");
    ck_assert_ptr_nonnull(format);
    ck_assert_mem_eq(format->text.at, "pt", 2);

    ck_assert_uint_eq(root->dict->count, 2);
    ck_assert_mem_eq(root->dict->pairs[0].key->text.at, "b", 1); /* the header's order */
    const cf_view *a = view_of(root, "a"), *b = view_of(root, "b");
    ck_assert_int_eq(a->dtype, CF_F32);
    ck_assert_int_eq(a->ndim, 0);
    ck_assert_uint_eq(a->offset, 0);
    ck_assert_int_eq(b->dtype, CF_BF16);
    ck_assert_uint_eq(b->offset, 4);
    ck_assert_int_eq(b->shape[0], 2);
    ck_assert_int_eq(b->stride[0], 3);
    ck_assert_ptr_eq(a->storage, b->storage);
    ck_assert_int_eq(a->storage->place, CF_IN_FILE);
    ck_assert_uint_eq(a->storage->file, 7);
    ck_assert_uint_eq(a->storage->offset, 8 + strlen(header));
    ck_assert_uint_eq(a->storage->size, 16);
}
END_TEST

/* Pairs that ckptflow wrote for complex numbers. */
START_TEST(test_complex)
{
    cf_node *root, *meta;
    const char *header = "{\"__metadata__\":{\"ckptflow.dtype\":\"{\\\"c\\\":\\\"C128\\\"}\"},"
                         "\"c\":{\"dtype\":\"F64\",\"shape\":[3,2],\"data_offsets\":[0,48]}}";
    ck_assert_int_eq(read_file(header, 48, &root, &meta), CF_OK);
    const cf_view *c = view_of(root, "c");
    ck_assert_int_eq(c->dtype, CF_C128);
    ck_assert_int_eq(c->ndim, 1);
    ck_assert_int_eq(c->shape[0], 3);

    static const char *const WRONG[] = {"C32", "F32"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        char wrong[256];
        snprintf(wrong, sizeof wrong, "%s", header);
        char *at = strstr(wrong, "C128");
        memmove(at + 3, at + 4, strlen(at + 4) + 1);
        memcpy(at, WRONG[i], 3);
        ck_assert_int_eq(read_file(wrong, 48, &root, &meta), CF_E_DTYPE);
        ck_assert_str_eq(err.member, "c");
    }
}
END_TEST

START_TEST(test_escapes)
{
    cf_node *root, *meta;
    const char *header = "{\"\\u00e4\\/\\\"\\\\\\t\\u20aC\\ud83d\\ude00.x\":"
                         "{\"dtyp\\u0065\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    ck_assert_int_eq(read_file(header, 1, &root, &meta), CF_OK);
    view_of(root, "\xc3\xa4/\"\\\t\xe2\x82\xac\xf0\x9f\x98\x80.x");
}
END_TEST

START_TEST(test_errors_name_the_tensor)
{
    cf_node *root, *meta;
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                         "\"b.c\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}";
    ck_assert_int_eq(read_file(header, 13, &root, &meta), CF_E_LAYOUT);
    ck_assert_str_eq(err.member, "b.c");
    ck_assert_ptr_nonnull(strstr(err.message, " 3 bytes early"));
    ck_assert_int_eq(err.offset, 8 + (int64_t)strlen(header) + 13);
}
END_TEST

START_TEST(test_depth)
{
    cf_node *root, *meta;
    char header[4000] = "{\"w\":";
    memset(header + 5, '[', 3000);
    ck_assert_int_eq(read_file(header, 0, &root, &meta), CF_E_DEPTH);
}
END_TEST

START_TEST(test_no_header)
{
    static const struct {
        const char *bytes;
        size_t size;
        cf_code code;
        const char *hint;
    } FILES[] = {
        {"", 0, CF_E_TRUNCATED, ""},
        {"\2\0\0\0\0\0\0", 7, CF_E_TRUNCATED, ""},
        {"\0\0\0\0\0\0\0\0", 8, CF_E_HEADER_SIZE, ""},
        {"\3\0\0\0\0\0\0\0{}", 10, CF_E_HEADER_SIZE, ""},
        {"\0\0\0\0\0\0\0\x80{}", 10, CF_E_HEADER_SIZE, ""},
        {"<!DOCTYPE html><html>404</html>", 31, CF_E_HEADER_SIZE, "web page"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, CF_E_HEADER_SIZE, "git lfs pull"},
    };
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        cf_node *root, *meta;
        ck_assert_int_eq(read_bytes(FILES[i].bytes, FILES[i].size, &root, &meta), FILES[i].code);
        ck_assert_ptr_nonnull(strstr(err.hint, FILES[i].hint));
    }
}
END_TEST

START_TEST(test_write)
{
    const int64_t shape[] = {2, 3};
    const char *meta[] = {"format", "pt", "note", "\"\n"};
    const cf_st_tensor tensors[] = {{"w\xc3\xa4\t", 4, CF_F32, 2, shape, 0, 24},
                                    {"a", 1, CF_BF16, 0, NULL, 24, 26},
                                    {"", 0, CF_I64, 1, shape, 26, 42}};
    cf_text out = {0};
    ck_assert(cf_safetensors_header(&out, tensors, 3, meta, 2, &err));
    ck_assert_uint_eq(out.size, CF_ST_ALIGN);
    ck_assert_uint_eq(cf_le64(out.at), CF_ST_ALIGN - 8);
    const char *json =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\\"\\n\"},"
        "\"w\xc3\xa4\\u0009\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
        "\"\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[26,42]}} ";
    ck_assert_mem_eq(out.at + 8, json, strlen(json));
    ck_assert_uint_eq(cf_safetensors_entry_size(&tensors[1]),
                      strlen("\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"));

    cf_text_add(&out, (char[42]){0}, 42);
    cf_node *root, *strings;
    ck_assert_int_eq(read_bytes(out.at, out.size, &root, &strings), CF_OK);
    ck_assert_uint_eq(root->dict->count, 3);
    ck_assert_uint_eq(strings->dict->count, 2);
    ck_assert_uint_eq(view_of(root, "")->offset, 26);
    cf_text_free(&out);
}
END_TEST

START_TEST(test_write_nothing)
{
    cf_text out = {0};
    cf_node *root, *meta;
    ck_assert(cf_safetensors_header(&out, NULL, 0, NULL, 0, &err));
    ck_assert_mem_eq(out.at + 8, "{} ", 3);
    ck_assert_int_eq(read_bytes(out.at, out.size, &root, &meta), CF_OK);
    ck_assert_uint_eq(root->dict->count, 0);
    cf_text_free(&out);
}
END_TEST

/* The padding ends where CF_ST_ALIGN says, whatever the length of the header. */
START_TEST(test_write_align)
{
    char name[2 * CF_ST_ALIGN];
    memset(name, 'n', sizeof name);
    for (size_t length = CF_ST_ALIGN - 80; length < CF_ST_ALIGN - 40; length++) {
        const cf_st_tensor tensor = {name, length, CF_U8, 0, NULL, 0, 1};
        const size_t used = 8 + 1 + cf_safetensors_entry_size(&tensor);
        cf_text out = {0};
        ck_assert(cf_safetensors_header(&out, &tensor, 1, NULL, 0, &err));
        ck_assert_uint_eq(out.size, used <= CF_ST_ALIGN ? CF_ST_ALIGN : 2 * CF_ST_ALIGN);
        cf_text_free(&out);
    }
}
END_TEST

START_TEST(test_write_refuses)
{
    cf_text out = {0};
    const cf_st_tensor taken = {"__metadata__", 12, CF_U8, 0, NULL, 0, 1};
    ck_assert(!cf_safetensors_header(&out, &taken, 1, NULL, 0, &err));
    ck_assert_int_eq(err.code, CF_E_DUP_KEY);
    cf_text_free(&out);

    char *name = malloc(CF_ST_MOST_HEADER);
    ck_assert_ptr_nonnull(name);
    memset(name, 'n', CF_ST_MOST_HEADER);
    const cf_st_tensor large = {name, CF_ST_MOST_HEADER, CF_U8, 0, NULL, 0, 1};
    ck_assert(!cf_safetensors_header(&out, &large, 1, NULL, 0, &err));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
    cf_text_free(&out);
    free(name);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("safetensors");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_case, 0, (int)(sizeof CASES / sizeof *CASES));
    tcase_add_test(tcase, test_views);
    tcase_add_test(tcase, test_complex);
    tcase_add_test(tcase, test_escapes);
    tcase_add_test(tcase, test_errors_name_the_tensor);
    tcase_add_test(tcase, test_depth);
    tcase_add_test(tcase, test_no_header);
    tcase_add_test(tcase, test_write);
    tcase_add_test(tcase, test_write_nothing);
    tcase_add_test(tcase, test_write_align);
    tcase_add_test(tcase, test_write_refuses);
    Suite *suite = suite_create("safetensors");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
