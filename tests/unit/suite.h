/* What every check_*.c ends with, and how those of the formats come to a fixture. */
#ifndef CF_TEST_SUITE_H
#define CF_TEST_SUITE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* For main to return: not 0 if a test failed. Frees the suite. */
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

/* The first `most` bytes of a file of a folder of tests/fixtures; their number. */
static inline size_t load_fixture(const char *folder, const char *name, void *bytes, size_t most)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", getenv("CF_FIXTURES"), folder, name);
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    const size_t size = fread(bytes, 1, most, f);
    fclose(f);
    return size;
}

#endif
