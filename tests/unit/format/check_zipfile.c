/* Zip archives: a real torch.save file, and copies of it with one field changed. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"
#include "zipfile.h"

static uint8_t file[1 << 15];
static size_t size;
static cf_arena arena;
static cf_err err;

static void load(const char *name)
{
    size = load_fixture("torch", name, file, sizeof file);
}

static void setup(void)
{
    cf_arena_init(&arena, 0);
    load("plain.pt");
}

static void teardown(void)
{
    cf_arena_free(&arena);
}

/* Where a record begins: the n-th of this signature from the start. */
static size_t record(const char *signature, int n)
{
    for (size_t i = 0; i + 4 <= size; i++)
        if (memcmp(file + i, signature, 4) == 0 && n-- == 0) return i;
    ck_abort_msg("no such record");
    return 0;
}

static bool open_bytes(cf_zip *zip)
{
    const cf_span span = cf_span_of_bytes(file, size);
    return cf_zip_open(zip, &span, &arena, &err);
}

/* Opens the archive and reads every member; the code of the first error. */
static cf_code read_all(void)
{
    cf_zip zip;
    if (!open_bytes(&zip)) return err.code;
    for (size_t i = 0; i < zip.count; i++) {
        const uint8_t *bytes;
        if (!cf_zip_read(&zip, &zip.entries[i], sizeof file, &arena, &bytes, &err)) {
            ck_assert_str_eq(err.member, zip.entries[i].name);
            return err.code;
        }
    }
    return CF_OK;
}

static void put(size_t at, uint64_t value, int width)
{
    ck_assert_uint_le(at + (size_t)width, size);
    for (int i = 0; i < width; i++) file[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

START_TEST(reads_torch)
{
    cf_zip zip;
    ck_assert(open_bytes(&zip));
    ck_assert_uint_eq(zip.count, 4);
    ck_assert_str_eq(zip.entries[0].name, "archive/data.pkl");
    ck_assert_ptr_null(cf_zip_find(&zip, "archive/data/1", 14));
    const cf_zip_entry *e = cf_zip_find(&zip, "archive/data/0", 14);
    ck_assert_ptr_eq(e, &zip.entries[2]);
    ck_assert_uint_eq(e->size, 32);
    ck_assert_uint_eq(e->packed, 32);
    ck_assert_uint_eq(e->crc, 0x7a0a407c);
    uint64_t at;
    ck_assert(cf_zip_payload(&zip, e, &at, &err));
    ck_assert_uint_eq(at, 448); /* 64-byte aligned by a local extra field */
    const float *values = (const float *)(const void *)(file + at);
    for (int i = 0; i < 8; i++) ck_assert(values[i] == (float)i);
    const uint8_t *bytes;
    ck_assert(cf_zip_read(&zip, e, 32, &arena, &bytes, &err));
    ck_assert_mem_eq(bytes, values, 32);
    ck_assert(!cf_zip_read(&zip, e, 31, &arena, &bytes, &err));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
}
END_TEST

/* Whether its places are moved along or not: an archive of torch.save begins its file. */
START_TEST(nothing_lies_before_it)
{
    memmove(file + 100, file, size);
    memset(file, 'x', 100);
    size += 100;
    cf_zip zip;
    ck_assert(!open_bytes(&zip));
    ck_assert_int_eq(err.code, CF_E_ZIP_STRUCT);
}
END_TEST

START_TEST(reads_part_of_a_file)
{
    FILE *f = tmpfile();
    ck_assert(f && fwrite("0123456789", 1, 10, f) == 10 && fwrite(file, 1, size, f) == size &&
              fwrite("tail", 1, 4, f) == 4 && fflush(f) == 0);
    const cf_span whole = cf_span_of_file(fileno(f), size + 14);
    cf_span span;
    ck_assert(cf_span_part(&whole, 10, size, &span, &err));
    cf_zip zip;
    const uint8_t *bytes;
    ck_assert(cf_zip_open(&zip, &span, &arena, &err));
    ck_assert(cf_zip_read(&zip, &zip.entries[1], 16, &arena, &bytes, &err));
    ck_assert_mem_eq(bytes, "little", 6);
    fclose(f);
}
END_TEST

START_TEST(reads_deflated)
{
    const char *const names[] = {"deflated_pkl.pt", "deflated_storage.pt", "plain.pt"};
    cf_zip zip;
    const uint8_t *pkl[3], *storage[3];
    for (int i = 0; i < 3; i++) {
        load(names[i]);
        ck_assert(open_bytes(&zip));
        ck_assert(cf_zip_read(&zip, &zip.entries[0], 139, &arena, &pkl[i], &err));
        ck_assert(cf_zip_read(&zip, &zip.entries[2], 32, &arena, &storage[i], &err));
        ck_assert_mem_eq(pkl[i], pkl[0], 139);
        ck_assert_mem_eq(storage[i], storage[0], 32);
    }
}
END_TEST

static bool stop(void *ctx, const uint8_t *bytes, size_t n, cf_err *e)
{
    (void)bytes;
    *(size_t *)ctx += n;
    return cf_fail(e, CF_E_INTERRUPTED, "enough");
}

START_TEST(decoding_stops)
{
    load("deflated_pkl.pt");
    const cf_span span = cf_span_of_bytes(file, size);
    size_t got = 0;
    ck_assert(!cf_zip_decode(&span, "archive/data.pkl", 139, stop, &got, &err));
    ck_assert_int_eq(err.code, CF_E_INTERRUPTED);
    ck_assert_uint_eq(got, 139);
    ck_assert(!cf_zip_decode(&span, "archive/no", 139, stop, &got, &err));
    ck_assert_int_eq(err.code, CF_E_STORAGE_MISSING);
}
END_TEST

/* One field changed. Members: 0 data.pkl, 1 byteorder, 2 data/0, 3 version. */
#define LOCAL   "PK\3\4"
#define CENTRAL "PK\1\2"
#define END64   "PK\6\6"
#define LOCATOR "PK\6\7"
#define END     "PK\5\6"

static const struct change {
    const char *file, *record;
    int n, field, width;
    uint64_t value;
    cf_code code;
} changes[] = {
    {"plain.pt", CENTRAL, 2, 16, 4, 0, CF_OK}, /* CRC-32 not computed */
    {"plain.pt", CENTRAL, 2, 16, 4, 1, CF_E_ZIP_CRC},
    {"plain.pt", LOCAL, 2, 106, 1, 0xff, CF_E_ZIP_CRC}, /* the first element */
    {"plain.pt", CENTRAL, 0, 8, 2, 0x809, CF_E_ZIP_ENCRYPTED},
    {"plain.pt", CENTRAL, 0, 8, 2, 0x828, CF_E_ZIP_ENCRYPTED},
    {"plain.pt", CENTRAL, 0, 8, 2, 0x2808, CF_E_ZIP_ENCRYPTED},
    {"plain.pt", LOCAL, 0, 6, 2, 0x809, CF_E_ZIP_ENCRYPTED},
    {"plain.pt", CENTRAL, 2, 10, 2, 99, CF_E_ZIP_METHOD},
    {"plain.pt", CENTRAL, 2, 10, 2, 8, CF_E_ZIP_MISMATCH}, /* the local header says stored */
    {"plain.pt", LOCAL, 2, 8, 2, 8, CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 22, 4, 32, CF_OK}, /* the true size, where 0 is usual */
    {"plain.pt", LOCAL, 2, 22, 4, 31, CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 18, 4, 33, CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 14, 4, 1, CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 22, 4, 0xffffffff, CF_E_ZIP_STRUCT}, /* without a zip64 field */
    {"plain.pt", LOCAL, 2, 6, 2, 0x800, CF_E_ZIP_MISMATCH}, /* no descriptor, so zeros are wrong */
    {"plain.pt", LOCAL, 2, 30, 1, 'A', CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 26, 2, 13, CF_E_ZIP_MISMATCH},
    {"plain.pt", LOCAL, 2, 28, 2, 200, CF_E_ZIP_OVERLAP},
    {"plain.pt", LOCAL, 2, 0, 1, 'Q', CF_E_ZIP_STRUCT},
    {"plain.pt", CENTRAL, 2, 0, 1, 'Q', CF_E_ZIP_STRUCT},
    {"plain.pt", CENTRAL, 2, 20, 4, 33, CF_E_ZIP_STRUCT}, /* stored, but sizes differ */
    {"plain.pt", CENTRAL, 2, 20, 8, 0x0000002100000021, CF_E_ZIP_CRC},
    {"plain.pt", CENTRAL, 2, 20, 8, 0x0000003300000033, CF_E_ZIP_OVERLAP},
    {"plain.pt", CENTRAL, 2, 20, 8, 0x0000007000000070, CF_E_ZIP_OVERLAP},
    {"plain.pt", CENTRAL, 2, 20, 8, 0xfffffff0fffffff0, CF_E_ZIP_STRUCT},
    {"plain.pt", CENTRAL, 2, 20, 8, 0xffffffffffffffff, CF_E_ZIP_STRUCT},
    {"plain.pt", CENTRAL, 2, 34, 2, 1, CF_E_ZIP_STRUCT},          /* another disk */
    {"plain.pt", CENTRAL, 2, 38, 4, 0xa1ff0000, CF_E_PATH},       /* a link */
    {"plain.pt", CENTRAL, 2, 38, 4, 0x81a40000, CF_OK},           /* a file */
    {"plain.pt", CENTRAL, 2, 42, 4, 0, CF_E_ZIP_OVERLAP},         /* two on one header */
    {"plain.pt", CENTRAL, 2, 42, 4, 0x7fffffff, CF_E_ZIP_STRUCT}, /* beyond the directory */
    {"plain.pt", CENTRAL, 2, 28, 2, 0, CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 46, 1, 0xff, CF_E_UTF8},
    {"plain.pt", CENTRAL, 2, 46, 1, 0, CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 46, 1, 0x1b, CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 46, 2, 0x9bc2, CF_E_PATH}, /* U+009B */
    {"plain.pt", CENTRAL, 2, 46, 1, '/', CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 46, 1, '\\', CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 47, 1, ':', CF_E_PATH},
    {"plain.pt", CENTRAL, 2, 54, 3, 0x2f2e2e, CF_E_PATH}, /* archive/../a/0 */
    {"plain.pt", CENTRAL, 2, 54, 1, '/', CF_E_PATH},      /* archive//ata/0 */
    {"plain.pt", CENTRAL, 3, 32, 2, 1, CF_E_ZIP_STRUCT},  /* a comment beyond the directory */
    {"plain.pt", END, 0, 8, 2, 3, CF_E_ZIP_STRUCT},
    {"plain.pt", END, 0, 10, 2, 5, CF_E_ZIP_STRUCT},
    {"plain.pt", END, 0, 12, 4, 245, CF_E_ZIP_STRUCT},
    {"plain.pt", END, 0, 16, 4, 595, CF_E_ZIP_STRUCT},
    {"plain.pt", END, 0, 16, 4, 0xffffffff, CF_OK}, /* the zip64 record says it */
    {"plain.pt", END, 0, 20, 2, 1, CF_E_ZIP_STRUCT},
    {"plain.pt", END64, 0, 4, 8, 43, CF_E_ZIP_STRUCT},
    {"plain.pt", END64, 0, 32, 8, 3, CF_E_ZIP_STRUCT},
    {"plain.pt", END64, 0, 16, 4, 1, CF_E_ZIP_STRUCT},
    {"plain.pt", LOCATOR, 0, 8, 8, 0x7fffffffffffffff, CF_E_ZIP_STRUCT},
    {"plain.pt", LOCATOR, 0, 16, 4, 2, CF_E_ZIP_STRUCT},
    {"deflated_pkl.pt", CENTRAL, 0, 16, 4, 0, CF_OK},
    {"deflated_pkl.pt", CENTRAL, 0, 16, 4, 1, CF_E_ZIP_CRC},
    {"deflated_pkl.pt", CENTRAL, 0, 24, 4, 138, CF_E_STORAGE_SIZE},
    {"deflated_pkl.pt", CENTRAL, 0, 24, 4, 140, CF_E_STORAGE_SIZE},
    {"deflated_pkl.pt", CENTRAL, 0, 24, 4, 1 << 30, CF_E_ZIP_STRUCT},  /* beyond deflate's ratio */
    {"deflated_pkl.pt", CENTRAL, 0, 10, 2, 97, CF_E_ZIP_METHOD},       /* of no build */
    {"deflated_pkl.pt", LOCAL, 0, 64, 4, 0xffffffff, CF_E_ZIP_STRUCT}, /* in the stream */
};

START_TEST(refuses_changes)
{
    const struct change *c = &changes[_i];
    load(c->file);
    put(record(c->record, c->n) + (size_t)c->field, c->value, c->width);
    const cf_code code = read_all();
    ck_assert_msg(code == c->code, "row %d: %s", _i, cf_code_name(code));
}
END_TEST

START_TEST(refuses_duplicates)
{
    load("objects.pt");
    uint8_t *name = NULL; /* "ck/data/1" becomes "ck/data/0" in the directory */
    for (size_t i = record(CENTRAL, 0); i + 9 < size; i++)
        if (memcmp(file + i, "ck/data/1", 9) == 0 && !name) name = file + i;
    ck_assert_ptr_nonnull(name);
    name[8] = '0';
    ck_assert_int_eq(read_all(), CF_E_ZIP_DUP);
}
END_TEST

START_TEST(refuses_trailing_and_nested)
{
    const size_t whole = size;
    file[size++] = 0;
    ck_assert_int_eq(read_all(), CF_E_ZIP_STRUCT);
    put(whole - 2, 1, 2); /* the same byte as a comment */
    ck_assert_int_eq(read_all(), CF_OK);
    size = whole;
    put(whole - 2, whole, 2); /* a whole archive as a comment */
    memcpy(file + whole, file, whole);
    size = 2 * whole;
    put(2 * whole - 2, 0, 2);
    ck_assert_int_eq(read_all(), CF_E_ZIP_STRUCT);
}
END_TEST

START_TEST(refuses_every_cut)
{
    for (const size_t whole = size; size-- > 0;) {
        const cf_code code = read_all();
        ck_assert_int_eq(code, size < 22 ? CF_E_TRUNCATED : CF_E_ZIP_STRUCT);
        ck_assert_uint_lt(size, whole);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zip");
    TCase *tcase = tcase_create("zip");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, reads_torch);
    tcase_add_test(tcase, nothing_lies_before_it);
    tcase_add_test(tcase, reads_part_of_a_file);
    tcase_add_test(tcase, reads_deflated);
    tcase_add_test(tcase, decoding_stops);
    tcase_add_loop_test(tcase, refuses_changes, 0, (int)(sizeof changes / sizeof *changes));
    tcase_add_test(tcase, refuses_duplicates);
    tcase_add_test(tcase, refuses_trailing_and_nested);
    tcase_add_test(tcase, refuses_every_cut);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
