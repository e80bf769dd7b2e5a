/* Late chunks: checksums that are written when what they are of is known; and plans whose seals
 * cannot be right. */
#include <check.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seal.h"
#include "suite.h"

enum { LONG = 100000, EDGE = 64 << 10 }; /* EDGE: where a piece of the sealer ends */

static cf_blocker b;
static cf_text bytes;
static cf_block block;
static cf_err err;
static char filling[LONG];

static void setup(void)
{
    b = (cf_blocker){0};
    bytes = (cf_text){0};
    for (int i = 0; i < CF_B_TEXTS; i++) b.text[i] = cf_blocker_text(&b, "", 0);
    memset(filling, 'x', sizeof filling);
}

static void teardown(void)
{
    cf_blocker_free(&b);
    cf_text_free(&bytes);
}

static void add_chunk(uint64_t begin, const char *text, size_t size, bool late)
{
    const cf_b_chunk chunk = {.begin = begin,
                              .end = begin + size,
                              .bytes = cf_blocker_text(&b, text, size),
                              .tensor = CF_B_NONE,
                              .late = late};
    cf_blocker_add(&b, CF_B_CHUNKS, &chunk, sizeof chunk);
}

static void add_file(const char *path, uint64_t size, uint64_t chunk, uint64_t chunks)
{
    const cf_b_file file = {.path = cf_blocker_text(&b, path, strlen(path)),
                            .size = size,
                            .chunk = chunk,
                            .chunks = chunks};
    cf_blocker_add(&b, CF_B_FILES, &file, sizeof file);
}

static void add_seal(cf_b_seal seal)
{
    cf_blocker_add(&b, CF_B_SEALS, &seal, sizeof seal);
}

static bool open_block(void)
{
    ck_assert(cf_blocker_finish(&b, &bytes, &err));
    return cf_block_open(&block, bytes.at, bytes.size, 1, &err);
}

START_TEST(checksums_of_chunks)
{
    static char late[LONG];
    memset(late, '0', sizeof late);
    memset(late + 3, 0, 4);
    memset(late + EDGE - 1, 0, 4);
    add_chunk(0, "", 0, false);
    add_file("empty", 0, 0, 1);
    add_chunk(0, "abc", 3, false);
    add_chunk(3, filling, LONG, false);
    add_chunk(3 + LONG, late, LONG, true);
    add_chunk(3 + 2 * LONG, "0000", 4, true);
    add_file("sealed", 7 + 2 * LONG, 1, 4);
    add_seal((cf_b_seal){.chunk = 3, .first = 1, .count = 1, .at = 3});
    add_seal((cf_b_seal){.chunk = 3, .first = 1, .count = 2, .at = EDGE - 1});
    add_seal((cf_b_seal){.chunk = 3, .first = 2, .count = 1, .digits = 20, .at = LONG - 20});
    add_seal((cf_b_seal){.chunk = 4, .first = 1, .count = 3, .at = 0});
    ck_assert_msg(open_block(), "%s", err.message);

    uint32_t crc[5] = {0, libdeflate_crc32(0, "abc", 3), libdeflate_crc32(0, filling, LONG)};
    FILE *out = tmpfile();
    ck_assert_ptr_nonnull(out);
    ck_assert(cf_seal(&block, crc, (int[]){-1, fileno(out)}, &err));
    static char have[7 + 2 * LONG];
    rewind(out);
    memset(have, 0, sizeof have);
    ck_assert_uint_eq(fread(have, 1, sizeof have, out), sizeof have);
    fclose(out);

    char text[32];
    const uint32_t both = libdeflate_crc32(crc[1], filling, LONG);
    memcpy(late + 3, &crc[1], 4);
    memcpy(late + EDGE - 1, &both, 4);
    snprintf(text, sizeof text, "%020u", crc[2]);
    memcpy(late + LONG - 20, text, 20);
    ck_assert_mem_eq(have + 3 + LONG, late, LONG);
    ck_assert_uint_eq(crc[3], libdeflate_crc32(0, late, LONG));
    const uint32_t all = libdeflate_crc32(both, late, LONG);
    ck_assert_mem_eq(have + 3 + 2 * LONG, &all, 4);
    ck_assert_uint_eq(crc[4], libdeflate_crc32(0, &all, 4));
}
END_TEST

/* Two files of one chunk and a late one each; the seal as given. */
static bool sound(cf_b_seal seal, bool late)
{
    teardown();
    setup();
    add_chunk(0, "abcd", 4, false);
    add_file("a", 4, 0, 1);
    add_chunk(0, "abcd", 4, false);
    add_chunk(4, "000000000000", 12, late);
    add_file("b", 16, 1, 2);
    add_seal(seal);
    return open_block();
}

START_TEST(seals_that_cannot_be)
{
    const cf_b_seal good = {.chunk = 2, .first = 1, .count = 1, .at = 8};
    cf_b_seal bad;
    ck_assert(sound(good, true));
    ck_assert(!sound(good, false));
    bad = good, bad.at = 9; /* leaves the chunk */
    ck_assert(!sound(bad, true));
    bad = good, bad.digits = 12, bad.at = 0;
    ck_assert(sound(bad, true));
    bad.digits = 13;
    ck_assert(!sound(bad, true));
    bad.digits = 9; /* too few for 32 bits */
    ck_assert(!sound(bad, true));
    bad = good, bad.first = 0, bad.count = 2; /* another file's */
    ck_assert(!sound(bad, true));
    bad = good, bad.first = 2; /* itself */
    ck_assert(!sound(bad, true));
    bad = good, bad.count = 2;
    ck_assert(!sound(bad, true));
    bad = good, bad.chunk = 7;
    ck_assert(!sound(bad, true));
    ck_assert_int_eq(err.code, CF_E_INTERNAL);
}
END_TEST

START_TEST(seals_in_order)
{
    add_chunk(0, "abcd", 4, false);
    add_chunk(4, "00000000", 8, true);
    add_file("a", 12, 0, 2);
    add_seal((cf_b_seal){.chunk = 1, .first = 0, .count = 1, .at = 2});
    add_seal((cf_b_seal){.chunk = 1, .first = 0, .count = 1, .at = 4}); /* overlaps */
    ck_assert(!open_block());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seal");
    TCase *t = tcase_create("seal");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, checksums_of_chunks);
    tcase_add_test(t, seals_that_cannot_be);
    tcase_add_test(t, seals_in_order);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
