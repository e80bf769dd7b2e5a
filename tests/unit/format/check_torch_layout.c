/* torch.save's zip laid out again from what a real one holds, byte for byte; large ones by their
 * numbers. */
#include <check.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#include "torch_layout.h"
#include "zipfile.h"

enum { MOST = 1 << 14, RECORDS = 64 };

static uint8_t file[MOST];
static cf_err err;
static cf_torch_layout z;

/* An archive as a caller makes it: gaps and payloads in turn, then the CRCs. */
typedef struct archive {
    cf_text bytes;
    size_t patches[4 * RECORDS];
    uint64_t of[4 * RECORDS];
    size_t n;
} archive;

static void add_gap(archive *a)
{
    const cf_torch_patch *p = (const cf_torch_patch *)(const void *)z.patches.at;
    for (size_t i = 0; i < cf_torch_patches(&z); i++) {
        ck_assert_uint_lt(a->n, 4 * RECORDS);
        a->patches[a->n] = a->bytes.size + p[i].at;
        a->of[a->n++] = p[i].storage;
    }
    cf_text_add(&a->bytes, z.gap.at, z.gap.size);
    ck_assert_uint_eq(a->bytes.size, z.at);
}

static void set_crcs(archive *a, const uint32_t *crcs, uint32_t id_crc)
{
    for (size_t i = 0; i < a->n; i++) {
        const uint32_t crc = a->of[i] == CF_TORCH_THE_ID ? id_crc : crcs[a->of[i]];
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(a->bytes.at[a->patches[i] + (size_t)k], 0);
            a->bytes.at[a->patches[i] + (size_t)k] = (char)(crc >> 8 * k);
        }
    }
}

static const cf_zip_entry *record(const cf_zip *zip, const char *top, const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "%s/%s", top, name);
    return cf_zip_find(zip, full, strlen(full));
}

static const uint8_t *bytes_of(const cf_zip *zip, const cf_zip_entry *entry)
{
    uint64_t at;
    ck_assert(entry && cf_zip_payload(zip, entry, &at, &err));
    return zip->span.bytes + at;
}

static void rebuild(const char *name)
{
    cf_arena arena;
    cf_arena_init(&arena, 0);
    const size_t size = load_fixture("torch", name, file, sizeof file);
    const cf_span span = cf_span_of_bytes(file, size);
    cf_zip zip;
    ck_assert(cf_zip_open(&zip, &span, &arena, &err));
    char top[64] = {0};
    memcpy(top, zip.entries[0].name, strcspn(zip.entries[0].name, "/"));

    archive a = {.n = 0};
    uint32_t crcs[RECORDS];
    const cf_zip_entry *pkl = record(&zip, top, "data.pkl");
    cf_torch_layout_begin(&z, top, bytes_of(&zip, pkl), pkl->size);
    for (size_t k = 0;; k++) {
        char number[32];
        snprintf(number, sizeof number, "data/%zu", k);
        const cf_zip_entry *e = record(&zip, top, number);
        if (!e) break;
        cf_torch_layout_storage(&z, e->size);
        add_gap(&a);
        cf_text_add(&a.bytes, bytes_of(&zip, e), e->size);
        crcs[k] = e->crc;
    }
    cf_torch_layout_id(&z);
    add_gap(&a);
    /* torch hashes otherwise: its own digits are taken */
    const cf_zip_entry *id = record(&zip, top, ".data/serialization_id");
    for (int i = 0; i < CF_TORCH_ID; i++) ck_assert(z.id[i] >= '0' && z.id[i] <= '9');
    cf_text_add(&a.bytes, bytes_of(&zip, id), CF_TORCH_ID);
    ck_assert(cf_torch_layout_end(&z, &err));
    add_gap(&a);
    set_crcs(&a, crcs, id->crc);
    ck_assert_uint_eq(a.bytes.size, size);
    ck_assert_mem_eq(a.bytes.at, file, size);
    cf_text_free(&a.bytes);
    cf_torch_layout_free(&z);
    cf_arena_free(&arena);
}

START_TEST(is_byte_for_byte_torchs)
{
    rebuild("objects.pt");
    rebuild("views.pt");
}
END_TEST

static uint64_t le(const char *at, int size)
{
    uint64_t value = 0;
    for (int i = size; i--;) value = value << 8 | (uint8_t)at[i];
    return value;
}

/* A storage of 5 GiB, a small one behind it: what users/08 has of torch 2.13. */
START_TEST(zip64_where_needed)
{
    const uint64_t large = (uint64_t)5 << 30;
    cf_torch_layout_begin(&z, "archive", "\x80\x02N.", 4);
    cf_torch_layout_storage(&z, large);
    const char *header = z.gap.at + (z.gap.size - z.at % 64 - 64); /* of the last record */
    while (memcmp(header, "PK\x03\x04", 4) != 0) header--;
    ck_assert_uint_eq(z.at % 64, 0);
    ck_assert_uint_eq(le(header + 14, 12), 0); /* no CRC, no sizes, here */
    const char *extra = header + 30 + le(header + 26, 2);
    ck_assert_uint_eq(le(extra, 2), 1);
    ck_assert_uint_eq(le(extra + 2, 2), 16);
    ck_assert_uint_eq(le(extra + 4, 8), large);
    ck_assert_uint_eq(le(extra + 12, 8), large);
    ck_assert_mem_eq(extra + 20, "FB", 2);
    const uint64_t first = z.at;

    cf_torch_layout_storage(&z, 4);
    ck_assert_mem_eq(z.gap.at, "PK\x07\x08\0\0\0\0", 8);
    ck_assert_uint_eq(le(z.gap.at + 8, 8), large);
    ck_assert_uint_eq(le(z.gap.at + 16, 8), large);
    extra = z.gap.at + 24 + 30 + strlen("archive/data/1");
    ck_assert_uint_eq(le(extra, 4), 1 | 8 << 16);
    ck_assert_uint_eq(le(extra + 4, 8), first + large + 24);
    ck_assert_uint_eq(z.at % 64, 0);

    cf_torch_layout_id(&z);
    ck_assert_uint_eq(le(z.gap.at + 8, 8), 4); /* 64 bits too, as its header lies behind 4 GiB */
    ck_assert(cf_torch_layout_end(&z, &err));
    ck_assert_uint_gt(z.at, large);
    cf_torch_layout_free(&z);
}
END_TEST

/* The id is a fingerprint of pickle and sizes. */
START_TEST(id_is_not_random)
{
    char ids[3][CF_TORCH_ID];
    for (int i = 0; i < 3; i++) {
        cf_torch_layout_begin(&z, "m", "\x80\x02N.", 4);
        cf_torch_layout_storage(&z, i < 2 ? 8 : 12);
        cf_torch_layout_id(&z);
        memcpy(ids[i], z.id, sizeof z.id);
        ck_assert(cf_torch_layout_end(&z, &err));
        cf_torch_layout_free(&z);
    }
    ck_assert_mem_eq(ids[0], ids[1], CF_TORCH_ID);
    ck_assert_mem_ne(ids[0], ids[2], CF_TORCH_ID);
}
END_TEST

/* No storage at all, only empty ones. */
START_TEST(without_storages)
{
    for (int n = 0; n < 3; n++) {
        archive a = {.n = 0};
        cf_torch_layout_begin(&z, "m", "\x80\x02}.", 4);
        for (int i = 0; i < n; i++) {
            cf_torch_layout_storage(&z, 0);
            add_gap(&a);
        }
        cf_torch_layout_id(&z);
        add_gap(&a);
        cf_text_add(&a.bytes, z.id, sizeof z.id);
        ck_assert(cf_torch_layout_end(&z, &err));
        add_gap(&a);
        ck_assert_uint_eq(a.n, 2); /* the id's */
        set_crcs(&a, NULL, libdeflate_crc32(0, z.id, sizeof z.id));
        cf_arena arena;
        cf_arena_init(&arena, 0);
        cf_zip zip;
        const cf_span span = cf_span_of_bytes(a.bytes.at, a.bytes.size);
        ck_assert_msg(cf_zip_open(&zip, &span, &arena, &err), "%s", err.message);
        ck_assert_uint_eq(zip.count, 6 + (size_t)n);
        cf_arena_free(&arena);
        cf_text_free(&a.bytes);
        cf_torch_layout_free(&z);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("torch_layout");
    TCase *t = tcase_create("torch_layout");
    tcase_add_test(t, is_byte_for_byte_torchs);
    tcase_add_test(t, zip64_where_needed);
    tcase_add_test(t, id_is_not_random);
    tcase_add_test(t, without_storages);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
