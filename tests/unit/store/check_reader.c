/* Ways of reading: the same bytes at any place; a file that is cut is an error in each of them. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reader.h"
#include "suite.h"

enum { SIZE = (20 << 20) + 12345 };

static uint8_t *bytes;

static int new_file(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ckptflow-reader-XXXXXX", folder);
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    if (!bytes) {
        bytes = malloc(SIZE);
        uint64_t state = 88172645463325252ULL;
        for (size_t i = 0; i < SIZE; i++)
            bytes[i] = (uint8_t)((state = state * 6364136223846793005ULL + 1) >> 56);
    }
    ck_assert_int_eq(write(fd, bytes, SIZE), SIZE);
    return fd;
}

static const cf_io WAYS[] = {CF_IO_AUTO, CF_IO_PREAD, CF_IO_MMAP, CF_IO_DIRECT};

static void read_all_over(const char *folder, cf_io io, uint64_t memory)
{
    const int fd = new_file(folder);
    cf_input input;
    cf_reader reader;
    cf_err err;
    cf_input_open(&input, io, fd, SIZE);
    cf_reader_start(&reader, io, memory);
    uint8_t *to = malloc(4 << 20);
    srand(1);
    for (int i = 0; i < 200; i++) {
        const uint64_t at = i % 7 ? (uint64_t)rand() % SIZE : 0;
        uint64_t n = (uint64_t)rand() % (i % 3 ? 70000 : 3 << 20);
        if (i % 5 == 0 || n > SIZE - at) n = SIZE - at < 4 << 20 ? SIZE - at : 4096;
        memset(to, 0, n);
        ck_assert_msg(cf_reader_read(&reader, &input, at, to, n, &err), "%s", err.message);
        ck_assert_mem_eq(to, bytes + at, n);
    }
    for (uint64_t at = 0; at + 64 * 3000 < SIZE; at += 3 << 20) {
        struct iovec iov[64];
        memset(to, 0xee, 64 * 4096);
        for (int i = 0; i < 64; i++) iov[i] = (struct iovec){to + i * 4096, 3000};
        ck_assert(cf_reader_scatter(&reader, &input, at, iov, 64, &err));
        for (int i = 0; i < 64; i++) {
            ck_assert_mem_eq(to + i * 4096, bytes + at + (uint64_t)i * 3000, 3000);
            ck_assert_uint_eq(to[i * 4096 + 3000], 0xee);
        }
    }
    free(to);
    cf_reader_end(&reader);
    cf_input_close(&input);
    close(fd);
}

START_TEST(same_bytes)
{
    const cf_io io = WAYS[_i];
    read_all_over("/tmp", io, cf_reader_memory(io));
    read_all_over("/tmp", io, cf_reader_memory(io) / 16);
    if (access("/dev/shm", W_OK) == 0) /* where O_DIRECT is not to be had */
        read_all_over("/dev/shm", io, cf_reader_memory(io));
}
END_TEST

START_TEST(a_file_that_was_cut)
{
    const cf_io io = WAYS[_i];
    const int fd = new_file("/tmp");
    cf_input input;
    cf_reader reader;
    cf_err err = {0};
    cf_input_open(&input, io, fd, SIZE);
    cf_reader_start(&reader, io, cf_reader_memory(io));
    static uint8_t to[1 << 20];
    ck_assert(cf_reader_read(&reader, &input, 0, to, sizeof to, &err));
    ck_assert_int_eq(ftruncate(fd, 123456), 0);
    ck_assert(!cf_reader_read(&reader, &input, 5, to, sizeof to, &err)); /* mapped already */
    ck_assert_int_eq(err.code, CF_E_TRUNCATED);
    ck_assert_int_ge(err.offset, 123456); /* direct holds some bytes that it read before */
    ck_assert(!cf_reader_read(&reader, &input, 9 << 20, to, 100, &err));
    ck_assert_int_eq(err.code, CF_E_TRUNCATED);
    ck_assert(cf_reader_read(&reader, &input, 1000, to, 100000, &err)); /* what is left is right */
    ck_assert_mem_eq(to, bytes + 1000, 100000);
    cf_reader_end(&reader);
    cf_input_close(&input);
    close(fd);
}
END_TEST

/* ---- cut while it is read ---- */

typedef struct cutter {
    int fd;
    atomic_bool end;
} cutter;

static void *cut_and_restore(void *arg)
{
    cutter *c = arg;
    while (!atomic_load(&c->end))
        if (ftruncate(c->fd, 4096) != 0 || ftruncate(c->fd, SIZE) != 0) break;
    return NULL;
}

static void *read_on(void *arg)
{
    const cf_input *shared = arg;
    static _Thread_local uint8_t to[1 << 20];
    cf_input input;
    cf_reader reader;
    cf_err err;
    cf_input_open(&input, CF_IO_MMAP, shared->fd, SIZE);
    cf_reader_start(&reader, CF_IO_MMAP, cf_reader_memory(CF_IO_MMAP));
    for (int i = 0; i < 300; i++) {
        const uint64_t at = (uint64_t)(i * 7919 % 19) << 20;
        if (!cf_reader_read(&reader, &input, at, to, sizeof to, &err))
            ck_assert_int_eq(err.code, CF_E_TRUNCATED);
    }
    cf_reader_end(&reader);
    return NULL;
}

START_TEST(cut_while_it_is_read)
{
    cutter c = {.fd = new_file("/tmp")};
    cf_input shared = {.fd = c.fd};
    pthread_t threads[3];
    ck_assert_int_eq(pthread_create(&threads[0], NULL, cut_and_restore, &c), 0);
    for (int i = 1; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, &shared), 0);
    for (int i = 1; i < 3; i++) pthread_join(threads[i], NULL);
    atomic_store(&c.end, true);
    pthread_join(threads[0], NULL);
    close(c.fd);
}
END_TEST

/* Mapped pages leave with their windows. */
static long resident(const char *field)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0) kib = atol(line + strlen(field));
    if (f) fclose(f);
    return kib;
}

START_TEST(maps_stay_small)
{
    const int fd = new_file("/tmp");
    cf_input input;
    cf_reader reader;
    cf_err err;
    static uint8_t to[1 << 16];
    cf_input_open(&input, CF_IO_MMAP, fd, SIZE);
    cf_reader_start(&reader, CF_IO_MMAP, cf_reader_memory(CF_IO_MMAP));
    const long before = resident("RssFile:");
    for (uint64_t at = 0; at + sizeof to <= SIZE; at += sizeof to)
        ck_assert(cf_reader_read(&reader, &input, at, to, sizeof to, &err));
    const long after = resident("RssFile:");
    if (before >= 0)
        ck_assert_int_le(after - before, (long)(cf_reader_memory(CF_IO_MMAP) >> 10) + 1024);
    cf_reader_end(&reader);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reader");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, same_bytes, 0, 4);
    tcase_add_loop_test(c, a_file_that_was_cut, 0, 4);
    tcase_add_test(c, cut_while_it_is_read);
    tcase_add_test(c, maps_stay_small);
    suite_add_tcase(s, c);
    return run_suite(s);
}
