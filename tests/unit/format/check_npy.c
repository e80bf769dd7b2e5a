/* The readers of .npy and .npz: headers made here, whole files from tests/fixtures/others. */
#include <check.h>
#include <string.h>

#include "npy.h"
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

#define ABOUT(descr, order, shape)                                                                 \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }  \n"

static const struct {
    const char *header;
    size_t data;
    cf_code code;
} CASES[] = {
    {ABOUT("'<f4'", "False", "(3, 4)"), 48, CF_OK},
    {ABOUT("'<f4'", "False", "()"), 4, CF_OK},
    {ABOUT("'|u1'", "True", "(5,)"), 5, CF_OK},
    {ABOUT("'>c16'", "False", "(2,)"), 32, CF_OK},
    {ABOUT("'|b1'", "False", "(0, 9)"), 0, CF_OK},
    {ABOUT("'<i8'", "False", "(2L, 3L)"), 48, CF_OK}, /* Python 2 */
    {"{\"shape\":(2,),\"descr\":\"<f2\",\"fortran_order\":False}", 4, CF_OK},
    {ABOUT("'<f4'", "False", "(3, 4)"), 47, CF_E_TRUNCATED},
    {ABOUT("'<f4'", "False", "(3, 4)"), 49, CF_E_TRAILING},
    {ABOUT("'<f4'", "False", "(3)"), 12, CF_E_LAYOUT}, /* no tuple in Python */
    {ABOUT("'<f4'", "False", "[3]"), 12, CF_E_LAYOUT},
    {ABOUT("'<f4'", "false", "(3,)"), 12, CF_E_LAYOUT},
    {ABOUT("'<f4'", "1", "(3,)"), 12, CF_E_LAYOUT},
    {ABOUT("'<f4'", "False", "(-1,)"), 0, CF_E_NUMBER},
    {ABOUT("'<f4'", "False", "(9223372036854775808,)"), 0, CF_E_OVERFLOW},
    {ABOUT("'<f4'", "False", "(4294967296, 4294967296)"), 0, CF_E_OVERFLOW},
    {ABOUT("'<f4'", "False", "(2305843009213693952,)"), 0, CF_E_OVERFLOW},
    {ABOUT("'|O'", "False", "(1,)"), 8, CF_E_MAGIC},
    {ABOUT("'<U7'", "False", "(1,)"), 28, CF_E_DTYPE},
    {ABOUT("'|S3'", "False", "(1,)"), 3, CF_E_DTYPE},
    {ABOUT("'<V2'", "False", "(1,)"), 2, CF_E_DTYPE},
    {ABOUT("'<M8[ns]'", "False", "(1,)"), 8, CF_E_DTYPE},
    {ABOUT("'<f16'", "False", "(1,)"), 16, CF_E_DTYPE},
    {ABOUT("''", "False", "(1,)"), 1, CF_E_DTYPE},
    {ABOUT("[('a', '<f4'), ('b', '<i8')]", "False", "(1,)"), 12, CF_E_DTYPE},
    {"{'descr': '<f4', 'fortran_order': False}", 4, CF_E_LAYOUT},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, CF_E_LAYOUT},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", 4, CF_E_LAYOUT},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} 1", 4, CF_E_LAYOUT},
    {"__import__('os').system('id')", 4, CF_E_LAYOUT},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (", 4, CF_E_LAYOUT},
    {"{'descr': '<f4", 4, CF_E_LAYOUT},
    {"{'de\\x73cr': '<f4', 'fortran_order': False, 'shape': ()}", 4, CF_E_LAYOUT},
    {"", 0, CF_E_LAYOUT},
};

static cf_code read_bytes(const void *bytes, size_t size, cf_node **root)
{
    const cf_span span = cf_span_of_bytes(bytes, size);
    cf_reading r = {.tree = &tree, .keep = &keep, .file = 7};
    return cf_npy_read(&span, &r, root, &err) ? CF_OK : err.code;
}

START_TEST(test_case)
{
    const size_t n = strlen(CASES[_i].header);
    for (int major = 1; major <= 3; major++) {
        uint8_t bytes[1024] = "\x93NUMPY";
        const size_t head = major == 1 ? 10 : 12;
        bytes[6] = (uint8_t)major;
        bytes[8] = (uint8_t)n;
        memcpy(bytes + head, CASES[_i].header, n);
        cf_node *root = NULL;
        ck_assert_msg(read_bytes(bytes, head + n + CASES[_i].data, &root) == CASES[_i].code,
                      "version %d of %s: %s %s", major, CASES[_i].header, cf_code_name(err.code),
                      err.message);
        if (CASES[_i].code != CF_OK) continue;
        ck_assert_int_eq(root->kind, CF_NODE_TENSOR);
        ck_assert_uint_eq(root->view->storage->size, CASES[_i].data);
        for (size_t cut = 0; cut < head + n; cut++) {
            const cf_code code = read_bytes(bytes, cut, &root);
            ck_assert(code == CF_E_TRUNCATED || code == CF_E_MAGIC);
        }
    }
}
END_TEST

START_TEST(test_fortran_is_strides)
{
    static const char HEADER[] = ABOUT("'>f8'", "True", "(2, 3, 4)");
    uint8_t bytes[1024] = "\x93NUMPY\1";
    bytes[8] = sizeof HEADER - 1;
    memcpy(bytes + 10, HEADER, sizeof HEADER - 1);
    cf_node *root;
    ck_assert_int_eq(read_bytes(bytes, 10 + sizeof HEADER - 1 + 192, &root), CF_OK);
    const cf_view *v = root->view;
    ck_assert_int_eq(v->dtype, CF_F64);
    ck_assert(v->storage->big_endian);
    ck_assert_int_eq(v->ndim, 3);
    ck_assert_int_eq(v->stride[0], 1);
    ck_assert_int_eq(v->stride[1], 2);
    ck_assert_int_eq(v->stride[2], 6);
}
END_TEST

START_TEST(test_versions)
{
    uint8_t bytes[64] = "\x93NUMPY";
    cf_node *root;
    static const uint8_t UNKNOWN[][2] = {{0, 0}, {1, 1}, {4, 0}, {255, 255}};
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof *UNKNOWN; i++) {
        memcpy(bytes + 6, UNKNOWN[i], 2);
        ck_assert_int_eq(read_bytes(bytes, sizeof bytes, &root), CF_E_MAGIC);
    }
    memcpy(bytes + 6, "\2\0\xff\xff\xff\xff", 6); /* a header of 4 GiB */
    ck_assert_int_eq(read_bytes(bytes, sizeof bytes, &root), CF_E_LIMIT);
}
END_TEST

/* The same arrays, stored and deflated. */
START_TEST(test_npz)
{
    static uint8_t bytes[1 << 16];
    const char *names[] = {"w", "f", "s", "be", "h", "a.b/c"};
    for (int deflated = 0; deflated < 2; deflated++) {
        const size_t size = deflated ? load_fixture("others/numpy_npz_deflated/ckpt",
                                                    "deflated.npz", bytes, sizeof bytes)
                                     : load_fixture("others/numpy_npz_stored/ckpt", "stored.npz",
                                                    bytes, sizeof bytes);
        const cf_span span = cf_span_of_bytes(bytes, size);
        cf_reading r = {.tree = &tree, .keep = &keep};
        cf_node *root;
        ck_assert(cf_npz_is(&span, &tree));
        ck_assert_msg(cf_npz_read(&span, &r, &root, &err), "%s: %s", err.member, err.message);
        ck_assert_uint_eq(root->dict->count, 6);
        for (size_t i = 0; i < 6; i++) {
            const cf_node *node = cf_dict_string(root->dict, names[i]);
            ck_assert_ptr_nonnull(node);
            ck_assert_int_eq(node->view->storage->place, deflated ? CF_IN_MEMBER : CF_IN_MEMORY);
            ck_assert_int_eq(node->view->storage->big_endian, strcmp(names[i], "be") == 0);
        }
        const cf_view *f = cf_dict_string(root->dict, "f")->view; /* Fortran's order */
        ck_assert_int_eq(f->stride[0], 1);
        ck_assert_int_eq(f->stride[1], 2);
    }
}
END_TEST

START_TEST(test_torch_is_not_npz)
{
    static uint8_t bytes[1 << 16];
    const size_t size = load_fixture("torch", "plain.pt", bytes, sizeof bytes);
    const cf_span span = cf_span_of_bytes(bytes, size);
    ck_assert(!cf_npz_is(&span, &tree));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("npy");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_case, 0, (int)(sizeof CASES / sizeof *CASES));
    tcase_add_test(tcase, test_fortran_is_strides);
    tcase_add_test(tcase, test_versions);
    tcase_add_test(tcase, test_npz);
    tcase_add_test(tcase, test_torch_is_not_npz);
    Suite *suite = suite_create("npy");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
