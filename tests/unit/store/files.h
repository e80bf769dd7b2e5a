/* A fresh working directory for each test, files in it, and kernels that lack a system call. */
#ifndef CF_TEST_FILES_H
#define CF_TEST_FILES_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "suite.h"

static char test_folder[64];

static void enter_folder(void)
{
    strcpy(test_folder, "/tmp/ckptflow-check-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(test_folder));
    ck_assert_int_eq(chdir(test_folder), 0);
}

static void leave_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", test_folder);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

static void put_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ck_assert_msg(fd >= 0, "%s", path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* From now on the call fails so in this process; false if that cannot be had. */
static bool refuse_call(unsigned number, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static int run_in_folders(const char *name, TCase *tests)
{
    Suite *suite = suite_create(name);
    tcase_add_checked_fixture(tests, enter_folder, leave_folder);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

#endif
