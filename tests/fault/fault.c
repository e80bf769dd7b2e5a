/* A faulty disk, or a batch system: FAULT=CALL:N:WHAT LD_PRELOAD=libfault.so ckptflow run ...
 *
 *   CALL   pwrite, write or pread, of files that have a name
 *   N      which one, counted from 1 over all threads
 *   WHAT   EIO, ENOSPC, ENOMEM: it and all after it fail so; KILL, STOP, INT, TERM, HUP, USR1: the
 * signal comes before it; FLIP: one bit of its bytes is not what it was
 */
#undef _FORTIFY_SOURCE /* its inline definitions of what is defined here come first */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long count;

typedef enum what { NOTHING, FAIL, FLIP } what;

/* glibc's names: its headers turn pwrite into the first with 64-bit offsets */
ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at);
ssize_t pread64(int fd, void *bytes, size_t size, off_t at);

static what now(const char *call, int fd)
{
    static const struct {
        const char *name;
        int number, sys;
    } whats[] = {{"KILL", SIGKILL, 0}, {"INT", SIGINT, 0},    {"TERM", SIGTERM, 0},
                 {"STOP", SIGSTOP, 0}, {"HUP", SIGHUP, 0},    {"USR1", SIGUSR1, 0},
                 {"EIO", 0, EIO},      {"ENOSPC", 0, ENOSPC}, {"ENOMEM", 0, ENOMEM},
                 {"FLIP", 0, 0}};
    const char *fault = getenv("FAULT");
    char name[16], kind[16];
    long which;
    struct stat st;
    if (!fault || sscanf(fault, "%15[a-z]:%ld:%15[A-Z0-9]", name, &which, kind) != 3 ||
        strcmp(name, call) != 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !st.st_nlink)
        return NOTHING;
    const long n = atomic_fetch_add(&count, 1) + 1;
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) {
        if (strcmp(whats[i].name, kind) != 0) continue;
        if (whats[i].sys) {
            errno = whats[i].sys;
            return n >= which ? FAIL : NOTHING;
        }
        if (n != which) return NOTHING;
        if (!whats[i].number) return FLIP;
        kill(getpid(), whats[i].number);
        return NOTHING;
    }
    return NOTHING;
}

#define NEXT(type, name)                                                                           \
    static type next;                                                                              \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, name)

typedef ssize_t pwriter(int fd, const void *bytes, size_t size, off_t at);
typedef ssize_t preader(int fd, void *bytes, size_t size, off_t at);
typedef ssize_t writer(int fd, const void *bytes, size_t size);

__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *bytes, size_t size,
                                                        off_t at)
{
    NEXT(pwriter *, "pwrite64");
    const what w = now("pwrite", fd);
    if (w == FAIL) return -1;
    if (w != FLIP || !size) return next(fd, bytes, size, at);
    char *copy = malloc(size);
    memcpy(copy, bytes, size);
    copy[size / 2] ^= 4;
    const ssize_t n = next(fd, copy, size, at);
    free(copy);
    return n;
}

__attribute__((visibility("default"))) ssize_t pread64(int fd, void *bytes, size_t size, off_t at)
{
    NEXT(preader *, "pread64");
    const what w = now("pread", fd);
    if (w == FAIL) return -1;
    const ssize_t n = next(fd, bytes, size, at);
    if (w == FLIP && n > 0) ((char *)bytes)[n / 2] ^= 4;
    return n;
}

__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t size)
{
    NEXT(writer *, "write");
    const what w = now("write", fd);
    return w == FAIL ? -1 : next(fd, bytes, size);
}
