/* Facts: landlock(7), seccomp(2). Which calls the planner makes was seen with strace, of glibc 2.36
 * and 2.41; a call that is missing here fails with EPERM, and the tests of every format say so. */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sanitized.h"

/* ---- Landlock ----------------------------------------------------------------------------------
 */

/* Newer than the headers of Debian 12. */
enum {
    ACCESS_FS_ABI_1 = 13, /* bits of rights that a first version knows; each name is a bit */
    SCOPE_ALL = 3,        /* abstract Unix sockets, signals */
    NET_ALL = 3           /* TCP: bind, connect */
};

typedef struct ruleset {
    uint64_t fs, net, scoped;
} ruleset;

static uint64_t rights_of(long abi)
{
    const int bits = ACCESS_FS_ABI_1 + (abi >= 2) + (abi >= 3) + (abi >= 5);
    return (1ULL << bits) - 1;
}

static void allow(int rules, const char *path)
{
    struct stat st;
    struct landlock_path_beneath_attr beneath = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE};
    beneath.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (beneath.parent_fd < 0) return;
    if (fstat(beneath.parent_fd, &st) == 0) {
        if (S_ISDIR(st.st_mode)) beneath.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
        if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
            syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    }
    close(beneath.parent_fd);
}

static bool landlock(const char *const *paths, size_t n_paths)
{
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) return false;
    const ruleset all = {.fs = rights_of(abi), .net = NET_ALL, .scoped = SCOPE_ALL};
    const size_t known = abi >= 6   ? sizeof all
                         : abi >= 4 ? offsetof(ruleset, scoped)
                                    : offsetof(ruleset, net);
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &all, known, 0);
    if (rules < 0) return false;
    for (size_t i = 0; i < n_paths; i++) allow(rules, paths[i]);
    const bool ok = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return ok;
}

/* ---- seccomp -----------------------------------------------------------------------------------
 */

#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH

static const int ALLOWED[] = {
    SYS_pread64,
    SYS_read,
    SYS_futex,
    SYS_openat2,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_lseek,
    SYS_preadv,
    SYS_readv,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_getcwd,
    SYS_fadvise64,
    SYS_fstatfs,
    /* memory */
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    /* time */
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_delete,
    SYS_getrusage,
    SYS_times,
    /* threads and signals of our own */
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_getcpu,
    /* what there is */
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
#ifdef __x86_64__
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_time,
#endif
};

/* A system call that is allowed if one or two of its arguments (their low halves) are as wanted. */
typedef struct test {
    int call;
    struct {
        int argument;                               /* -1: no second one */
        enum { EQUAL, OTHER, NONE_OF, ALL_OF } how; /* the value; of its bits */
        uint32_t value;
    } want[2];
} test;

typedef struct program {
    struct sock_filter code[512];
    unsigned short length;
} program;

static void emit(program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    p->code[p->length++] = (struct sock_filter){code, yes, no, k};
}

static void load(program *p, size_t offset)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(program *p, uint32_t action)
{
    emit(p, BPF_RET | BPF_K, action, 0, 0);
}

enum { EQ = BPF_JMP | BPF_JEQ | BPF_K, AND = BPF_ALU | BPF_AND | BPF_K };

static void allow_if(program *p, const test *t)
{
    uint8_t steps[2] = {0};
    for (int i = 0; i < 2; i++)
        if (t->want[i].argument >= 0) steps[i] = t->want[i].how >= NONE_OF ? 3 : 2;
    /* the number of the call is loaded; where it is another one, all of this is stepped over */
    uint8_t left = (uint8_t)(steps[0] + steps[1] + 2);
    emit(p, EQ, (uint32_t)t->call, 0, left);
    for (int i = 0; i < 2 && steps[i]; i++) {
        left = (uint8_t)(left - steps[i]);
        load(p, offsetof(struct seccomp_data, args) + 8 * (size_t)t->want[i].argument);
        if (t->want[i].how >= NONE_OF) emit(p, AND, t->want[i].value, 0, 0);
        const uint8_t fails = (uint8_t)(left - 1); /* to where the number is loaded again */
        emit(p, EQ, t->want[i].how == NONE_OF ? 0 : t->want[i].value,
             t->want[i].how == OTHER ? fails : 0, t->want[i].how == OTHER ? 0 : fails);
    }
    answer(p, SECCOMP_RET_ALLOW);
    load(p, offsetof(struct seccomp_data, nr));
}

static bool seccomp(int fd)
{
    const uint32_t writing =
        O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    const uint32_t own = (uint32_t)fd, thread = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND;
#define ONE(argument, how, value)                                                                  \
    {                                                                                              \
        {argument, how, value},                                                                    \
        {                                                                                          \
            -1, EQUAL, 0                                                                           \
        }                                                                                          \
    }
    const test tests[] = {
        {SYS_openat, ONE(2, NONE_OF, writing)},
#ifdef __x86_64__
        {SYS_open, ONE(1, NONE_OF, writing)},
#endif
        {SYS_close, ONE(0, OTHER, own)}, /* or another file could get its number */
        {SYS_write, ONE(0, EQUAL, own)},
        {SYS_pwrite64, ONE(0, EQUAL, own)},
        {SYS_mmap, {{2, NONE_OF, PROT_EXEC}, {3, NONE_OF, MAP_SHARED}}},
        {SYS_mprotect, ONE(2, NONE_OF, PROT_EXEC)},
        {SYS_clone, ONE(0, ALL_OF, thread)},
        {SYS_tgkill, ONE(0, EQUAL, (uint32_t)getpid())}, /* abort() */
        {SYS_prlimit64, {{0, EQUAL, 0}, {2, EQUAL, 0}}},
        {SYS_fcntl, ONE(1, EQUAL, F_GETFL)},
        {SYS_fcntl, ONE(1, EQUAL, F_GETFD)},
        {SYS_fcntl, ONE(1, EQUAL, F_SETFD)},
        {SYS_fcntl, ONE(1, EQUAL, F_DUPFD_CLOEXEC)}, /* of what was unpacked, to read */
        {SYS_fcntl, {{0, EQUAL, own}, {1, EQUAL, F_ADD_SEALS}}},
    };
#undef ONE
    program p = {.length = 0};
    load(&p, offsetof(struct seccomp_data, arch));
    emit(&p, EQ, ARCH, 1, 0);
    answer(&p, SECCOMP_RET_KILL_PROCESS);
    load(&p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof ALLOWED / sizeof *ALLOWED; i++) {
        emit(&p, EQ, (uint32_t)ALLOWED[i], 0, 1);
        answer(&p, SECCOMP_RET_ALLOW);
    }
    /* its flags lie in memory, where no filter sees them; glibc then takes clone */
    emit(&p, EQ, SYS_clone3, 0, 1);
    answer(&p, SECCOMP_RET_ERRNO | ENOSYS);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) allow_if(&p, &tests[i]);
    answer(&p, SECCOMP_RET_ERRNO | EPERM);
    const struct sock_fprog filter = {.len = p.length, .filter = p.code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

#else

static bool seccomp(int fd)
{
    (void)fd;
    return false;
}

#endif

void cf_confine(int fd, const char *const *paths, size_t n_paths, char *lacks, size_t size)
{
    lacks[0] = '\0';
    if (CF_SANITIZED) {
        snprintf(lacks, size, "a build with sanitizers is not confined");
        return;
    }
    const bool bound = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    const bool files = bound && landlock(paths, n_paths), calls = bound && seccomp(fd);
    if (!files || !calls)
        snprintf(lacks, size, "the planner is not confined by %s, which is not to be had here",
                 files   ? "seccomp"
                 : calls ? "Landlock"
                         : "Landlock and seccomp");
}
