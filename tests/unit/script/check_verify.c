/* verify on small checkpoints of each container, with every bit flipped in turn: what a checksum
 * covers is found, and what is not found are bytes that were counted as covered by none. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff.h"
#include "host.h"
#include "suite.h"
#include "verify.h"
#include "zipfile.h"

static char folder[64];
static cf_scripts scripts;

static void setup(void)
{
    cf_err err;
    strcpy(folder, "/tmp/check-verify-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    unsetenv("CKPTFLOW_PATH");
    ck_assert(cf_scripts_find(&scripts, NULL, 0, &err));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
    cf_scripts_free(&scripts);
}

static void copy(const char *from)
{
    char command[4096];
    snprintf(command, sizeof command, "cp -r %s/%s %s && chmod -R u+w %s", getenv("CF_FIXTURES"),
             from, folder, folder);
    ck_assert_int_eq(system(command), 0);
}

typedef struct result {
    bool sound; /* read, and no fault */
    uint64_t total, uncovered, tensors[CF_VERDICTS];
    cf_code code; /* of what could not be read */
} result;

static void ignore(void *ctx, const cf_block *b)
{
    (void)ctx;
    (void)b;
}

/* All that the verb does, in one process. look: what is done with the block. */
static result verify_with(const char *format, const cf_sample *sample, bool quick, int threads,
                          void (*look)(void *ctx, const cf_block *block), void *ctx)
{
    const char *path = folder;
    cf_err err = {0};
    cf_source source;
    cf_catalogue cat;
    cf_faults faults;
    cf_blocker b = {0};
    cf_text bytes = {0};
    cf_block block;
    cf_verdict v;
    result r = {0};
    cf_faults_init(&faults);
    ck_assert(cf_source_open(&source, &path, 1, false, &err));
    source.faults = &faults;
    cf_catalogue_init(&cat, &source);
    const bool read =
        cf_manifest_check(&source, &err) && cf_host_read(&scripts, &source, format, 1, &cat, &err);
    r.code = read ? CF_OK : err.code;
    if (read || faults.count) {
        ck_assert_msg(
            cf_verify_plan(&source, read ? &cat : NULL, CF_REPLICAS_AUTO, quick, &b, &err), "%s",
            err.message);
        for (int i = 0; i < CF_B_TEXTS; i++) b.text[i] = cf_blocker_text(&b, "", 0);
        ck_assert(cf_blocker_finish(&b, &bytes, &err));
        ck_assert_msg(cf_block_open(&block, bytes.at, bytes.size, 1, &err), "%s", err.message);
        look(ctx, &block);
        cf_means means;
        ck_assert(cf_means_fit(&means, &block, threads, CF_IO_PREAD, CF_MAX_MEM, &err));
        const cf_execution x = {.block = &block,
                                .roots = &path,
                                .n_roots = 1,
                                .threads = means.threads,
                                .means = &means};
        ck_assert_msg(cf_verify(&x,
                                quick    ? CF_LOOK_QUICK
                                : sample ? CF_LOOK_SAMPLE
                                         : CF_LOOK_FULL,
                                sample, &v, &err),
                      "%s: %s", err.file, err.message);
        r.sound = read && !v.faults.total;
        r.total = v.bytes;
        r.uncovered = v.bytes - v.all_covered;
        uint64_t sum = 0;
        for (int i = 0; i < CF_VERDICTS; i++) sum += r.tensors[i] = v.n_subjects[i];
        ck_assert_uint_eq(sum, block.n_subjects);
        cf_verdict_free(&v);
        cf_text_free(&bytes);
    }
    cf_blocker_free(&b);
    cf_catalogue_free(&cat);
    cf_source_close(&source);
    cf_faults_free(&faults);
    return r;
}

static result verify(const char *format)
{
    return verify_with(format, NULL, false, 1, ignore, NULL);
}

/* ---- what checksums cover, byte by byte ---- */

typedef struct cover {
    char path[256];
    uint64_t size;
    bool *bytes;
} cover;

typedef struct covers {
    cover files[16];
    int count;
} covers;

static void mark(cover *c, uint64_t at, uint64_t size)
{
    for (uint64_t i = at; i < at + size; i++) c->bytes[i] = true;
}

/* Members of an archive in a slice. */
static void mark_members(cover *c, uint64_t at, uint64_t size)
{
    char path[512];
    cf_zip zip;
    cf_arena arena;
    cf_err err;
    cf_span slice;
    cf_arena_init(&arena, 0);
    snprintf(path, sizeof path, "%s/%s", folder, c->path);
    const int fd = open(path, O_RDONLY);
    const cf_span span = cf_span_of_file(fd, c->size);
    ck_assert(cf_span_part(&span, at, size, &slice, &err));
    ck_assert(cf_zip_open(&zip, &slice, &arena, &err));
    for (size_t i = 0; i < zip.count; i++) {
        uint64_t payload;
        ck_assert(cf_zip_payload(&zip, &zip.entries[i], &payload, &err));
        const bool stored = zip.entries[i].method == CF_ZIP_STORED;
        if (zip.entries[i].crc && stored) mark(c, at + payload, zip.entries[i].size);
    }
    close(fd);
    cf_arena_free(&arena);
}

static void note_covers(void *ctx, const cf_block *b)
{
    covers *all = ctx;
    for (uint64_t i = 0; i < b->n_sources; i++) {
        cover *c = &all->files[all->count++];
        ck_assert_int_lt(all->count, 16);
        snprintf(c->path, sizeof c->path, "%s", cf_block_text(b, b->sources[i].path));
        c->size = b->sources[i].size;
        c->bytes = calloc(c->size + 1, 1);
    }
    for (uint64_t i = 0; i < b->n_units; i++) {
        const cf_b_unit *u = &b->units[i];
        cover *c = &all->files[u->source];
        if (u->kind != CF_UNIT_RECORDS) {
            mark_members(c, u->offset, u->size);
            continue;
        }
        if (u->has_crc) mark(c, u->offset, u->size);
        for (uint64_t k = u->record; k < u->record + u->records; k++) {
            const cf_b_record *r = &b->records[k];
            if (r->has_crc && r->place == CF_IN_FILE) mark(c, r->offset, r->size);
        }
    }
}

/* Flips bits of every step-th byte: all eight where step is 1, else one that changes. */
static void flip_all(const char *format, uint64_t step)
{
#ifdef __SANITIZE_ADDRESS__
    step *= 16;
#endif
    covers all = {0};
    const result whole = verify_with(format, NULL, false, 1, note_covers, &all);
    ck_assert(whole.sound);
    uint64_t uncovered = 0, silent = 0;
    for (int f = 0; f < all.count; f++) {
        cover *c = &all.files[f];
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, c->path);
        const int fd = open(path, O_RDWR);
        ck_assert_int_ge(fd, 0);
        for (uint64_t i = 0; i < c->size; i++) {
            uncovered += !c->bytes[i];
            if (i % step) continue;
            uint8_t byte;
            bool missed = false;
            ck_assert_int_eq(pread(fd, &byte, 1, (off_t)i), 1);
            for (int bit = 0; bit < 8; bit++) {
                if (step > 1 && (uint64_t)bit != i / step % 8) continue;
                const uint8_t other = (uint8_t)(byte ^ 1 << bit);
                ck_assert_int_eq(pwrite(fd, &other, 1, (off_t)i), 1);
                const bool found = !verify(format).sound;
                missed |= !found;
                ck_assert_msg(found || !c->bytes[i], "%s: bit %d of byte %llu", c->path, bit,
                              (unsigned long long)i);
            }
            ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)i), 1);
            silent += missed;
        }
        close(fd);
        free(c->bytes);
    }
    ck_assert_uint_eq(whole.uncovered, uncovered);
    ck_assert_uint_le(silent, uncovered);
    ck_assert(verify(format).sound);
}

START_TEST(torch_zip)
{
    copy("torch/plain.pt");
    flip_all("torch-file", 1);
}
END_TEST

START_TEST(torch_zip_shared_storage)
{
    copy("torch/shared.pt");
    flip_all("torch-file", 7);
}
END_TEST

START_TEST(torch_zip_deflated)
{
    copy("torch/deflated_storage.pt");
    flip_all("torch-file", 1);
}
END_TEST

START_TEST(dcp_items)
{
    copy("dcp/empty_scalar/ckpt/.");
    flip_all("torch-dcp", 31);
}
END_TEST

START_TEST(own_output)
{
    copy("ckptflow/objects/.");
    flip_all("ckptflow", 7);
}
END_TEST

/* ---- a plan that lies ---- */

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* Flips bits of a block, or sets numbers in it to what hurts. */
static void spoil(uint8_t *bytes, uint64_t size)
{
    static const uint64_t HURT[] = {0, 1, 0xffffffff, INT64_MAX, UINT64_MAX, 1ull << 32, 8};
    for (uint64_t n = next_random() % 3 + 1; n; n--) {
        const uint64_t at = next_random() % size;
        if (next_random() % 2)
            bytes[at] ^= (uint8_t)(1u << next_random() % 8);
        else if (at / 8 * 8 + 8 <= size)
            memcpy(bytes + at / 8 * 8, &HURT[next_random() % 7], 8);
    }
}

/* Opens spoilt copies, and carries out those that pass: nothing may happen but errors. */
static void attack(void *ctx, const cf_block *block)
{
    bool (*const carry_out)(const cf_execution *x, cf_err *err) =
        *(bool (**)(const cf_execution *, cf_err *))ctx;
    const char *roots[] = {folder, folder};
    const uint64_t size = block->head->size;
    uint8_t *bytes = malloc(size);
    for (int i = 0; i < 4000; i++) {
        cf_block b;
        cf_err err = {0};
        cf_means means;
        memcpy(bytes, block->head, size);
        spoil(bytes, size);
        if (!cf_block_open(&b, bytes, size, 2, &err)) continue;
        if (!cf_means_fit(&means, &b, 1, CF_IO_PREAD, CF_MAX_MEM, &err)) continue;
        const cf_execution x = {
            .block = &b, .roots = roots, .n_roots = 2, .threads = 1, .means = &means};
        if (!carry_out(&x, &err)) ck_assert_int_ne(err.code, CF_OK);
    }
    free(bytes);
}

static bool verify_block(const cf_execution *x, cf_err *err)
{
    cf_verdict v;
    const bool ok = cf_verify(x, CF_LOOK_FULL, NULL, &v, err);
    cf_verdict_free(&v);
    return ok;
}

static bool diff_block(const cf_execution *x, cf_err *err)
{
    const cf_tolerance exact = {CF_TOL_ABS, 0};
    cf_differences d;
    const bool ok = cf_diff(x, &exact, &d, err);
    cf_differences_free(&d);
    return ok;
}

static bool (*const VERIFY)(const cf_execution *, cf_err *) = verify_block;
static bool (*const DIFF)(const cf_execution *, cf_err *) = diff_block;

START_TEST(lying_plans_of_verify)
{
    copy("torch/shared.pt");
    verify_with("torch-file", NULL, false, 1, attack, (void *)&VERIFY);
    teardown();
    setup();
    copy("dcp/empty_scalar/ckpt/.");
    verify_with("torch-dcp", NULL, false, 1, attack, (void *)&VERIFY);
}
END_TEST

START_TEST(lying_plans_of_diff)
{
    copy("dcp/empty_scalar/ckpt/.");
    const char *path = folder;
    cf_err err = {0};
    cf_source sources[2];
    cf_catalogue cats[2], *const both[] = {&cats[0], &cats[1]};
    cf_blocker b = {0};
    cf_text bytes = {0};
    cf_block block;
    for (int i = 0; i < 2; i++) {
        ck_assert(cf_source_open(&sources[i], &path, 1, false, &err));
        cf_catalogue_init(&cats[i], &sources[i]);
        ck_assert(cf_host_read(&scripts, &sources[i], "torch-dcp", 1, &cats[i], &err));
    }
    ck_assert(cf_diff_plan(both, 0, &b, &err));
    for (int i = 0; i < CF_B_TEXTS; i++) b.text[i] = cf_blocker_text(&b, "", 0);
    ck_assert(cf_blocker_finish(&b, &bytes, &err));
    ck_assert_msg(cf_block_open(&block, bytes.at, bytes.size, 2, &err), "%s", err.message);
    attack((void *)&DIFF, &block);
    for (int i = 0; i < 2; i++) {
        cf_catalogue_free(&cats[i]);
        cf_source_close(&sources[i]);
    }
    cf_text_free(&bytes);
    cf_blocker_free(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify");
    TCase *tests = tcase_create("flips");
    tcase_set_timeout(tests, 250);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, torch_zip);
    tcase_add_test(tests, torch_zip_shared_storage);
    tcase_add_test(tests, torch_zip_deflated);
    tcase_add_test(tests, dcp_items);
    tcase_add_test(tests, own_output);
    tcase_add_test(tests, lying_plans_of_verify);
    tcase_add_test(tests, lying_plans_of_diff);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
