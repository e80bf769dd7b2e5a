/* Both forms of torch.save: real files, and copies of them with some bytes changed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#include "torchfile.h"

enum { MOST = 1 << 14 };

static uint8_t file[MOST];
static size_t size;
static cf_arena tree, keep;
static cf_err err;

static void load(const char *name)
{
    size = load_fixture("torch", name, file, sizeof file);
}

static void setup(void)
{
    cf_arena_init(&tree, 0);
    cf_arena_init(&keep, 0);
}

static void teardown(void)
{
    cf_arena_free(&tree);
    cf_arena_free(&keep);
}

static cf_node *read_span(const cf_span *span)
{
    cf_reading r = {.tree = &tree, .keep = &keep, .file = 7};
    cf_node *root = NULL;
    const bool ok = cf_torch_legacy_magic(file, size) ? cf_torch_legacy_read(span, &r, &root, &err)
                                                      : cf_torch_zip_read(span, &r, &root, &err);
    return ok ? root : NULL;
}

static cf_node *read_bytes(void)
{
    const cf_span span = cf_span_of_bytes(file, size);
    return read_span(&span);
}

static const cf_view *tensor(const cf_node *root, const char *key)
{
    const cf_node *node = cf_dict_string(root->dict, key);
    ck_assert(node && node->kind == CF_NODE_TENSOR);
    return node->view;
}

/* The bytes of an element of a view in memory, by its row-major number. */
static const uint8_t *element(const cf_view *v, int64_t number)
{
    int64_t at = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        at += number % v->shape[d] * v->stride[d];
        number /= v->shape[d];
    }
    ck_assert_int_eq(v->storage->place, CF_IN_MEMORY);
    return v->storage->bytes + v->offset + at * cf_dtype_size(v->dtype);
}

START_TEST(locates_storages)
{
    load("plain.pt");
    FILE *f = tmpfile();
    ck_assert(f && fwrite("12345", 1, 5, f) == 5 && fwrite(file, 1, size, f) == size &&
              fflush(f) == 0);
    const cf_span whole = cf_span_of_file(fileno(f), size + 5);
    cf_span span;
    ck_assert(cf_span_part(&whole, 5, size, &span, &err));
    const cf_node *root = read_span(&span);
    ck_assert_ptr_nonnull(root);
    const cf_view *v = tensor(root, "w");
    ck_assert_int_eq(v->dtype, CF_F32);
    ck_assert_int_eq(v->ndim, 2);
    ck_assert_int_eq(v->shape[0], 2);
    ck_assert_int_eq(v->shape[1], 4);
    const cf_storage *s = v->storage;
    ck_assert_int_eq(s->place, CF_IN_FILE);
    ck_assert_uint_eq(s->file, 7);
    ck_assert_uint_eq(s->offset, 5 + 448);
    ck_assert_uint_eq(s->size, 32);
    ck_assert_str_eq(s->name, "archive/data/0");
    ck_assert(s->has_crc && s->crc == 0x7a0a407c && !s->big_endian);
    fclose(f);
}
END_TEST

START_TEST(shares_storages)
{
    load("shared.pt");
    const cf_node *root = read_bytes();
    ck_assert_ptr_nonnull(root);
    ck_assert_ptr_eq(tensor(root, "a")->storage, tensor(root, "b")->storage);
    ck_assert_uint_eq(tensor(root, "b")->offset, 16);
}
END_TEST

START_TEST(knows_big_endian)
{
    load("big_endian.pt");
    const cf_node *root = read_bytes();
    ck_assert_ptr_nonnull(root);
    ck_assert(tensor(root, "w")->storage->big_endian);
}
END_TEST

START_TEST(leaves_compressed_storages)
{
    load("deflated_storage.pt");
    const cf_node *root = read_bytes();
    ck_assert_ptr_nonnull(root);
    const cf_storage *s = tensor(root, "w")->storage;
    ck_assert_int_eq(s->place, CF_IN_MEMBER);
    ck_assert_int_eq(s->method, 8);
    ck_assert_uint_eq(s->size, 32);
    ck_assert_uint_eq(s->packed, 23);
    ck_assert_uint_eq(s->offset, 448);

    load("deflated_pkl.pt");
    root = read_bytes();
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(tensor(root, "w")->storage->place, CF_IN_MEMORY);
}
END_TEST

/* The same tensors were saved in both forms; torch cannot save some dtypes in the old one. */
START_TEST(both_forms_agree)
{
    static uint8_t zipped[MOST];
    load("views.pt");
    const size_t n = size;
    memcpy(zipped, file, n);
    const cf_span span = cf_span_of_bytes(zipped, n);
    const cf_node *zip = read_span(&span);
    ck_assert_ptr_nonnull(zip);
    load("views_stream.pt");
    const cf_node *stream = read_bytes();
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_gt(stream->dict->count, 20);
    for (size_t i = 0; i < stream->dict->count; i++) {
        const cf_node *key = stream->dict->pairs[i].key, *node = stream->dict->pairs[i].value;
        const cf_node *other = cf_dict_find(zip->dict, key);
        ck_assert_ptr_nonnull(other);
        ck_assert_int_eq(other->kind, node->kind);
        if (node->kind != CF_NODE_TENSOR) continue;
        const cf_view *a = node->view, *b = other->view;
        ck_assert_int_eq(a->dtype, b->dtype);
        ck_assert_int_eq(a->numel, b->numel);
        ck_assert_int_eq(a->ndim, b->ndim);
        ck_assert(a->conj == b->conj && a->neg == b->neg);
        ck_assert_uint_eq(a->storage->size, b->storage->size);
        for (int64_t e = 0; e < a->numel; e++)
            ck_assert_mem_eq(element(a, e), element(b, e), (size_t)cf_dtype_size(a->dtype));
    }
    ck_assert_ptr_eq(tensor(stream, "flat.a")->storage, tensor(stream, "flat.b")->storage);
}
END_TEST

START_TEST(reads_objects)
{
    load("objects.pt");
    const cf_node *zip = read_bytes();
    ck_assert_msg(zip != NULL, "%s", err.message);
    load("objects_stream.pt");
    const cf_node *stream = read_bytes();
    ck_assert_msg(stream != NULL, "%s", err.message);
    ck_assert_uint_eq(zip->dict->count, stream->dict->count);
}
END_TEST

#define REPLACE(a, b) a, b, sizeof(a) - 1

/* In the zip form data.pkl gets the CRC-32 "not computed", so that only what it says is wrong. */
static const struct change {
    const char *file, *old, *new;
    size_t length;
    bool last; /* of those that match, the last one */
    cf_code code;
} changes[] = {
    {"plain.pt", REPLACE("K\x08t", "K\x09t"), false, CF_E_STORAGE_SIZE},
    {"plain.pt", REPLACE("FloatStorage", "ShortStorage"), false, CF_E_STORAGE_SIZE},
    {"plain.pt", REPLACE("0X\3\0\0\0cpu", "7X\3\0\0\0cpu"), false, CF_E_STORAGE_MISSING},
    {"plain.pt", REPLACE("0X\3\0\0\0cpu", "\0X\3\0\0\0cpu"), false, CF_E_STORAGE_MISSING},
    {"plain.pt",
     REPLACE("FloatStorage\nX\1\0\0\0000X\3\0\0\0cpu", "LongStorage\nX\1\0\0\0007X\4\0\0\0meta"),
     false, CF_OK},
    {"plain.pt", REPLACE("}(X", "}.X"), false, CF_E_TRAILING},
    {"plain.pt", REPLACE("little", "Little"), false, CF_E_ZIP_CRC},
    {"plain.pt", REPLACE("archive/data.pkl", "archive/data.pki"), true, CF_E_MAGIC},
    {"plain.pt", REPLACE("archive/data.pkl", "archive/d/ta.pkl"), true, CF_E_MAGIC},
    {"plain.pt", REPLACE("archive/data.pkl", "archiv//data.pkl"), true, CF_E_PATH},
    {"plain.pt", REPLACE("archive/data.pkl", "archivf/data.pkl"), true, CF_E_ZIP_MISMATCH},
    {"shared.pt", REPLACE("K\x08t", "K\x09t"), true, CF_E_STORAGE_CONFLICT},
    {"shared.pt", REPLACE("FloatStorage", "ShortStorage"), true, CF_E_STORAGE_CONFLICT},
    {"shared.pt", REPLACE("cpu", "xyz"), true, CF_OK}, /* where it was does not matter */
    {"shared.pt", REPLACE("tQK\4", "tQK\5"), true, CF_E_BOUNDS},
    {"views_stream.pt", REPLACE("M\xe9\3.", "M\xea\3."), false, CF_E_MAGIC},
    {"views_stream.pt", REPLACE("94383052069856q", "94383052069857q"), true, CF_E_STORAGE_MISSING},
    {"views_stream.pt", REPLACE("94383052099120q", "94383052069856q"), true, CF_E_DUP_KEY},
};

START_TEST(refuses_changes)
{
    const struct change *c = &changes[_i];
    load(c->file);
    uint8_t *at = NULL, *next = file;
    while ((next = memmem(next, (size_t)(file + size - next), c->old, c->length))) {
        at = next++;
        if (!c->last) break;
    }
    ck_assert_ptr_nonnull(at);
    memcpy(at, c->new, c->length);
    if (!cf_torch_legacy_magic(file, size)) {
        uint8_t *directory = memmem(file, size, "PK\1\2", 4);
        ck_assert_ptr_nonnull(directory);
        memset(directory + 16, 0, 4);
    }
    const cf_code code = read_bytes() ? CF_OK : err.code;
    ck_assert_msg(code == c->code, "row %d: %s", _i, cf_code_name(code));
}
END_TEST

START_TEST(meta_storage_is_nowhere)
{
    const struct change *c = &changes[4];
    load(c->file);
    memcpy(memmem(file, size, c->old, c->length), c->new, c->length);
    memset((uint8_t *)memmem(file, size, "PK\1\2", 4) + 16, 0, 4);
    const cf_node *root = read_bytes();
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(tensor(root, "w")->storage->place, CF_NOWHERE);
    ck_assert_uint_eq(tensor(root, "w")->storage->size, 64);
}
END_TEST

START_TEST(errors_name_the_member)
{
    load("plain.pt");
    *(uint8_t *)memmem(file, size, "_rebuild", 8) = '?';
    ck_assert_ptr_null(read_bytes());
    ck_assert_int_eq(err.code, CF_E_ZIP_CRC);
    ck_assert_str_eq(err.member, "archive/data.pkl");
    memset((uint8_t *)memmem(file, size, "PK\1\2", 4) + 16, 0, 4);
    ck_assert_ptr_null(read_bytes());
    ck_assert_int_eq(err.code, CF_E_GLOBAL_DENIED);
    ck_assert_str_eq(err.member, "archive/data.pkl");
    ck_assert_int_ge(err.offset, 0);
}
END_TEST

/* The counts in front of the elements. */
START_TEST(refuses_stream_counts)
{
    static const struct {
        uint64_t count;
        cf_code code;
    } rows[] = {{40, CF_OK},
                {39, CF_E_STORAGE_SIZE},
                {1 << 20, CF_E_TRUNCATED},
                {(uint64_t)1 << 61, CF_E_TRUNCATED},
                {(uint64_t)1 << 63, CF_E_NUMBER}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        load("views_stream.pt");
        memcpy(file + 2976, &rows[i].count, 8);
        const cf_code code = read_bytes() ? CF_OK : err.code;
        ck_assert_msg(code == rows[i].code, "row %zu: %s", i, cf_code_name(code));
    }
    load("views_stream.pt");
    size++;
    ck_assert_ptr_null(read_bytes());
    ck_assert_int_eq(err.code, CF_E_TRAILING);
}
END_TEST

START_TEST(refuses_every_cut)
{
    static const char *const names[] = {"views_stream.pt", "views.pt"};
    for (int i = 0; i < 2; i++) {
        load(names[i]);
        while (size-- > 32) {
            ck_assert_ptr_null(read_bytes());
            ck_assert_int_eq(err.code, i ? CF_E_ZIP_STRUCT : CF_E_TRUNCATED);
            teardown();
        }
    }
}
END_TEST

/* torch before 0.4: a storage that is part of another, here elements 2 to 5 of 8. */
START_TEST(reads_parts_of_storages)
{
#define HEAD                                                                                       \
    "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."                                      \
    "\x80\2M\xe9\3.\x80\2}."
#define OBJECT(view)                                                                               \
    "\x80\2ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"            \
    "X\1\0\0\0rX\3\0\0\0cpuK\x08(X\1\0\0\0v" view "ttQK\1K\3\x85K\1\x85\x89"                       \
    "ccollections\nOrderedDict\n)RtR."
#define KEYS "\x80\2]X\1\0\0\0ra.\x08\0\0\0\0\0\0\0"
    static const struct {
        const char *bytes;
        size_t size;
        cf_code code;
    } rows[] = {
        {HEAD OBJECT("K\2K\4") KEYS, sizeof HEAD OBJECT("K\2K\4") KEYS - 1, CF_OK},
        {HEAD OBJECT("K\5K\4") KEYS, sizeof HEAD OBJECT("K\5K\4") KEYS - 1, CF_E_BOUNDS},
        {HEAD OBJECT("K\2K\3") KEYS, sizeof HEAD OBJECT("K\2K\3") KEYS - 1, CF_E_BOUNDS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memcpy(file, rows[i].bytes, rows[i].size);
        for (uint8_t e = 0; e < 8; e++) memcpy(file + rows[i].size + 4 * e, &(float){e}, 4);
        size = rows[i].size + 32;
        const cf_node *root = read_bytes();
        const cf_code code = root ? CF_OK : err.code;
        ck_assert_msg(code == rows[i].code, "row %zu: %s", i, err.message);
        if (!root) continue;
        ck_assert_uint_eq(root->view->storage->size, 16);
        for (int64_t e = 0; e < 3; e++)
            ck_assert_mem_eq(element(root->view, e), &(float){(float)(3 + e)}, 4);
    }
}
END_TEST

/* A pickle that does not fit in the first bytes that are read. */
START_TEST(reads_long_stream_pickles)
{
    const size_t text = 3 << 20;
    uint8_t *bytes = malloc(text + 256), *to = bytes;
    ck_assert_ptr_nonnull(bytes);
    memcpy(to, HEAD "\x80\2X", sizeof HEAD + 2);
    to += sizeof HEAD + 2;
    for (int i = 0; i < 4; i++) *to++ = (uint8_t)(text >> 8 * i);
    memset(to, 'x', text);
    to += text;
    memcpy(to, ".\x80\2].", 5);
    to += 5;
    size = 32; /* what read_span looks at */
    memcpy(file, bytes, size);
    const cf_span span = cf_span_of_bytes(bytes, (size_t)(to - bytes));
    const cf_node *root = read_span(&span);
    ck_assert_msg(root != NULL, "%s", err.message);
    ck_assert_uint_eq(root->text.length, text);
    free(bytes);
}
END_TEST

START_TEST(reads_bare_pickles)
{
    cf_reading r = {.tree = &tree, .keep = &keep};
    cf_node *root;
    cf_span span = cf_span_of_bytes("\x80\4K\5.", 5);
    ck_assert(cf_pickle_file_read(&span, &r, &root, &err));
    ck_assert(root->kind == CF_NODE_INT && root->integer == 5);
    span = cf_span_of_bytes("\x80\4}..", 5);
    ck_assert(!cf_pickle_file_read(&span, &r, &root, &err));
    ck_assert_int_eq(err.code, CF_E_TRAILING);
    span = cf_span_of_bytes("\x80\4K\5..", 6); /* as a stream of torch begins, but another number */
    ck_assert(!cf_pickle_file_read(&span, &r, &root, &err));
    ck_assert_int_eq(err.code, CF_E_MAGIC);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("torchfile");
    TCase *tcase = tcase_create("torchfile");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, locates_storages);
    tcase_add_test(tcase, shares_storages);
    tcase_add_test(tcase, knows_big_endian);
    tcase_add_test(tcase, leaves_compressed_storages);
    tcase_add_test(tcase, both_forms_agree);
    tcase_add_test(tcase, reads_objects);
    tcase_add_loop_test(tcase, refuses_changes, 0, (int)(sizeof changes / sizeof *changes));
    tcase_add_test(tcase, meta_storage_is_nowhere);
    tcase_add_test(tcase, errors_name_the_member);
    tcase_add_test(tcase, refuses_stream_counts);
    tcase_add_test(tcase, refuses_every_cut);
    tcase_add_test(tcase, reads_parts_of_storages);
    tcase_add_test(tcase, reads_long_stream_pickles);
    tcase_add_test(tcase, reads_bare_pickles);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
