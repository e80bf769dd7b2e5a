/* Pickles that are written: CPython's own bytes where nothing is memoised, and read back as what
 * was said. tests/interop loads what real files hold with torch. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pickle.h"
#include "pickle_write.h"
#include "suite.h"

static cf_arena tree, keep;
static cf_err err;
static cf_text text;
static cf_pickler p;

static void setup(void)
{
    cf_arena_init(&tree, 0);
    cf_arena_init(&keep, 0);
    text = (cf_text){0};
    cf_pickler_init(&p, &text);
}

static void teardown(void)
{
    cf_pickler_free(&p);
    cf_text_free(&text);
    cf_arena_free(&tree);
    cf_arena_free(&keep);
}

static bool storage(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *e)
{
    (void)ctx, (void)e;
    cf_storage *s = CF_NEW(&keep, cf_storage);
    *s = (cf_storage){.size = (uint64_t)(id->numel * cf_dtype_size(id->dtype)),
                      .name = cf_strndup(&keep, id->key.at, id->key.length)};
    *out = s;
    return true;
}

static const cf_node *read_back(void)
{
    ck_assert(cf_pickler_end(&p, &err));
    cf_pickle reader = {.tree = &tree, .keep = &keep, .storage = storage};
    cf_node *root = NULL;
    ck_assert_msg(cf_pickle_read(&reader, (const uint8_t *)text.at, text.size, NULL, &root, &err),
                  "%s", err.message);
    return root;
}

/* pickle.dumps(value, 2) of CPython 3.11 */
static void expect(const char *bytes, size_t size)
{
    ck_assert(cf_pickler_end(&p, &err));
    ck_assert_uint_eq(text.size, size);
    ck_assert_mem_eq(text.at, bytes, size);
    teardown();
    setup();
}

#define EXPECT(bytes) expect((bytes), sizeof(bytes) - 1)

START_TEST(atoms)
{
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } INTS[] = {{0, "K\0", 2},
                {255, "K\xff", 2},
                {256, "M\0\x01", 3},
                {65535, "M\xff\xff", 3},
                {65536, "J\0\0\x01\0", 5},
                {-1, "J\xff\xff\xff\xff", 5},
                {INT32_MAX, "J\xff\xff\xff\x7f", 5},
                {INT32_MIN, "J\0\0\0\x80", 5},
                {(int64_t)INT32_MAX + 1, "\x8a\x05\0\0\0\x80\0", 7},
                {(int64_t)INT32_MIN - 1, "\x8a\x05\xff\xff\xff\x7f\xff", 7},
                {INT64_MAX, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
                {INT64_MIN, "\x8a\x08\0\0\0\0\0\0\0\x80", 10}};
    for (size_t i = 0; i < sizeof INTS / sizeof *INTS; i++) {
        char bytes[16] = "\x80\x02";
        memcpy(bytes + 2, INTS[i].bytes, INTS[i].size);
        bytes[2 + INTS[i].size] = '.';
        cf_pickle_int(&p, INTS[i].value);
        expect(bytes, INTS[i].size + 3);
    }
    cf_pickle_none(&p);
    EXPECT("\x80\x02N.");
    cf_pickle_bool(&p, true);
    EXPECT("\x80\x02\x88.");
    cf_pickle_float(&p, 0.1);
    EXPECT("\x80\x02G?\xb9\x99\x99\x99\x99\x99\x9a.");
    cf_pickle_big(&p, "1180591620717411303424", 22);
    EXPECT("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0@.");
    cf_pickle_big(&p, "-1180591620717411303424", 23);
    EXPECT("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\xc0.");
    cf_pickle_big(&p, "-9223372036854775809", 20);
    EXPECT("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff.");
    cf_pickle_bytes(&p, "a\xff", 2);
    EXPECT("\x80\x02"
           "c_codecs\nencode\nq\0X\x03\0\0\0a\xc3\xbfX\x06\0\0\0latin1q\x01\x86R.");
}
END_TEST

START_TEST(too_much)
{
    char digits[700];
    memset(digits, '9', sizeof digits);
    cf_pickle_big(&p, digits, sizeof digits);
    ck_assert(!cf_pickler_end(&p, &err));
    ck_assert_int_eq(err.code, CF_E_NUMBER);
}
END_TEST

/* Batches end where CPython's do, and one item needs no mark. */
START_TEST(batches)
{
    static const size_t COUNTS[] = {0, 1, 2, 999, 1000, 1001, 2000, 2001, 3500};
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
        for (int dict = 0; dict < 2; dict++) {
            const size_t n = COUNTS[i];
            cf_filling f = dict ? cf_pickle_fill_dict(n) : cf_pickle_fill_list(n);
            dict ? cf_pickle_dict(&p) : cf_pickle_list(&p);
            for (size_t k = 0; k < n; k++) {
                cf_pickle_item(&p, &f);
                if (dict) cf_pickle_int(&p, (int64_t)k);
                cf_pickle_none(&p);
            }
            cf_pickle_filled(&p, &f);
            const cf_node *root = read_back();
            ck_assert_uint_eq(dict ? root->dict->count : root->list->count, n);
            teardown();
            setup();
        }
}
END_TEST

START_TEST(words_are_memoised)
{
    char name[32];
    cf_pickle_tuple(&p, 700);
    for (int i = 0; i < 700; i++) { /* beyond 255 a number takes four bytes */
        snprintf(name, sizeof name, "state%d", i % 350);
        cf_pickle_text(&p, name);
    }
    cf_pickle_tuple_end(&p, 700);
    const cf_node *root = read_back();
    ck_assert_uint_lt(text.size, 350 * (5 + 8 + 5) + 350 * 5 + 10);
    ck_assert_ptr_eq(root->list->items[0], root->list->items[350]);
    ck_assert_ptr_eq(root->list->items[349], root->list->items[699]);
    ck_assert_ptr_ne(root->list->items[3], root->list->items[4]);
}
END_TEST

START_TEST(shared_and_cyclic)
{
    cf_pickle_list(&p);
    const uint32_t self = cf_pickle_put(&p);
    cf_filling f = cf_pickle_fill_list(2);
    cf_pickle_item(&p, &f);
    cf_pickle_get(&p, self);
    cf_pickle_item(&p, &f);
    cf_pickle_size(&p, 2, (int64_t[]){3, 4});
    cf_pickle_filled(&p, &f);
    const cf_node *root = read_back();
    ck_assert_ptr_eq(root->list->items[0], root);
    ck_assert_int_eq(root->list->items[1]->kind, CF_NODE_TUPLE);
}
END_TEST

START_TEST(objects)
{
    cf_pickle_object(&p, "torch.distributed.checkpoint.metadata", "MetadataIndex");
    cf_pickle_dict(&p);
    cf_filling f = cf_pickle_fill_dict(2);
    cf_pickle_item(&p, &f);
    cf_pickle_text(&p, "fqn");
    cf_pickle_text(&p, "w");
    cf_pickle_item(&p, &f);
    cf_pickle_text(&p, "index");
    cf_pickle_none(&p);
    cf_pickle_filled(&p, &f);
    cf_pickle_build(&p);
    const cf_node *root = read_back();
    ck_assert_str_eq(cf_node_class(root), "MetadataIndex");
    const cf_node *fqn = cf_node_field(root, "fqn");
    ck_assert(fqn && fqn->kind == CF_NODE_STRING && fqn->text.length == 1);
}
END_TEST

/* Every dtype, by the function that torch uses for it. */
START_TEST(tensors)
{
    const int64_t shape[] = {2, 3, 4};
    cf_pickle_list(&p);
    cf_filling f = cf_pickle_fill_list(CF_DTYPES - 1);
    for (int d = 1; d < CF_DTYPES; d++) {
        cf_pickle_item(&p, &f);
        cf_pickle_tensor(&p, &(cf_pickle_view){.dtype = (cf_dtype)d,
                                               .ndim = 3,
                                               .shape = shape,
                                               .key = (uint64_t)d,
                                               .numel = 25,
                                               .offset = 1});
    }
    cf_pickle_filled(&p, &f);
    const cf_node *root = read_back();
    for (int d = 1; d < CF_DTYPES; d++) {
        const cf_node *node = root->list->items[d - 1];
        ck_assert_int_eq(node->kind, CF_NODE_TENSOR);
        const cf_view *v = node->view;
        const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)d);
        ck_assert_int_eq(v->dtype, d);
        ck_assert_int_eq(v->numel, 24);
        ck_assert_int_eq(v->stride[0], 12);
        ck_assert_uint_eq(v->offset, size);
        ck_assert_uint_eq(v->storage->size, 25 * size);
        ck_assert_int_eq(atoi(v->storage->name), d);
    }
}
END_TEST

/* Strides of an empty tensor are torch's: a dimension of size 0 counts as 1. */
START_TEST(empty_tensor)
{
    cf_pickle_tensor(&p,
                     &(cf_pickle_view){.dtype = CF_F32, .ndim = 3, .shape = (int64_t[]){2, 0, 3}});
    const cf_node *root = read_back();
    ck_assert_int_eq(root->view->stride[0], 3);
    ck_assert_int_eq(root->view->stride[1], 3);
    ck_assert_int_eq(root->view->stride[2], 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pickle_write");
    TCase *t = tcase_create("pickle_write");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, atoms);
    tcase_add_test(t, too_much);
    tcase_add_test(t, batches);
    tcase_add_test(t, words_are_memoised);
    tcase_add_test(t, shared_and_cyclic);
    tcase_add_test(t, objects);
    tcase_add_test(t, tensors);
    tcase_add_test(t, empty_tensor);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
