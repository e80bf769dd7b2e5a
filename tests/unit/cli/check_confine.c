/* What the planner can do from inside, were one of its parsers taken over: every forbidden thing is
 * tried in a real child, in its first thread and in another. Builds with sanitizers are not
 * confined, and have nothing to try. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "child.h"
#include "suite.h"

static char folder[] = "/tmp/ckptflow-confine-XXXXXX", inside[64], outside[64], plugin[64];

/* Neither a build with sanitizers, nor another kind of machine, nor a kernel without filters. */
static bool has_filters(void)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ &&                               \
    (defined __x86_64__ || defined __aarch64__)
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
#else
    return false;
#endif
}

static bool has_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, 1u) >= 1;
}

/* ---- the things tried: -1 and errno where they are refused; harmless where they are not
 * -------------------------------------
 */

static char stack[1 << 14] __attribute__((aligned(16)));

static int nothing(void *arg)
{
    (void)arg;
    _exit(0);
}

static int in(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", inside, name);
    return open(path, flags, 0600);
}

static long in_path(long (*call)(const char *path))
{
    char path[128];
    snprintf(path, sizeof path, "%s/file", inside);
    return call(path);
}

static long write_it(void)
{
    return in("file", O_WRONLY);
}
static long write_both(void)
{
    return in("file", O_RDWR);
}
static long append_it(void)
{
    return in("file", O_RDONLY | O_APPEND);
}
static long cut_it(void)
{
    return in("file", O_RDONLY | O_TRUNC);
}
static long create(void)
{
    return in("new", O_RDONLY | O_CREAT);
}
static long no_name(void)
{
    return in(".", O_TMPFILE | O_RDWR);
}
static long write_by_openat2(void)
{
    struct open_how how = {.flags = O_RDWR};
    char path[128];
    snprintf(path, sizeof path, "%s/file", inside);
    const long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    return fd < 0 ? fd : write((int)fd, "x", 1); /* without Landlock it opens, no more */
}
static long unlink_path(const char *path)
{
    return unlink(path);
}
static long truncate_path(const char *path)
{
    return truncate(path, 0);
}
static long chmod_path(const char *path)
{
    return chmod(path, 0777);
}
static long rename_path(const char *path)
{
    return rename(path, outside);
}
static long link_path(const char *path)
{
    return link(path, outside);
}
static long symlink_path(const char *path)
{
    return symlink("/", strcat(strcpy(outside, path), "2"));
}
static long xattr_path(const char *path)
{
    return syscall(SYS_setxattr, path, "user.x", "x", 1, 0);
}
static long remove_it(void)
{
    return in_path(unlink_path);
}
static long truncate_it(void)
{
    return in_path(truncate_path);
}
static long chmod_it(void)
{
    return in_path(chmod_path);
}
static long rename_it(void)
{
    return in_path(rename_path);
}
static long link_it(void)
{
    return in_path(link_path);
}
static long symlink_it(void)
{
    return in_path(symlink_path);
}
static long xattr_it(void)
{
    return in_path(xattr_path);
}
static long make_folder(void)
{
    return mkdirat(AT_FDCWD, "/tmp/ckptflow-confine-new", 0777);
}
static long make_fifo(void)
{
    return mknod("/tmp/ckptflow-confine-fifo", S_IFIFO | 0600, 0);
}
static long own_memory(void)
{
    return open("/proc/self/mem", O_RDWR);
}

static long network(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}
static long local_socket(void)
{
    return socket(AF_UNIX, SOCK_DGRAM, 0);
}
static long pair(void)
{
    int fds[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}
static long pipes(void)
{
    int fds[2];
    return pipe(fds);
}

static long run_program(void)
{
    char *argv[] = {"true", NULL};
    return execve("/bin/true", argv, NULL);
}
static long forked(void)
{
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    return pid;
}
static long cloned(void)
{
    return clone(nothing, stack + sizeof stack, SIGCHLD, NULL);
}
static long new_namespace(void)
{
    return unshare(CLONE_NEWUSER);
}
static long kill_parent(void)
{
    return kill(getppid(), 0);
}
static long kill_all(void)
{
    return kill(-1, 0);
}
static long thread_kill(void)
{
    return syscall(SYS_tgkill, getppid(), getppid(), 0);
}
static long queue_signal(void)
{
    siginfo_t info = {.si_code = SI_QUEUE};
    return syscall(SYS_rt_sigqueueinfo, getppid(), 0, &info);
}
static long traced(void)
{
    return ptrace(PTRACE_PEEKDATA, getppid(), NULL, NULL);
}
static long read_memory(void)
{
    struct iovec here = {stack, 1}, there = {stack, 1};
    return process_vm_readv(getppid(), &here, 1, &there, 1, 0);
}
static long pid_handle(void)
{
    return syscall(SYS_pidfd_open, getppid(), 0);
}

static long ring(void)
{
    char params[256] = {0};
    return syscall(SYS_io_uring_setup, 4, params);
}
static long memory_file(void)
{
    return memfd_create("x", 0);
}
static long by_handle(void)
{
    return syscall(SYS_open_by_handle_at, AT_FDCWD, stack, O_RDONLY);
}
static long mounted(void)
{
    return syscall(SYS_mount, "/nonexistent", "/nonexistent", NULL, 4096ul, NULL);
}
static long bpf(void)
{
    return syscall(SYS_bpf, 0, stack, 64);
}
static long perf(void)
{
    return syscall(SYS_perf_event_open, stack, 0, -1, -1, 0ul);
}
static long keys(void)
{
    return syscall(SYS_keyctl, 0, -3, 0);
}
static long faults(void)
{
    return syscall(SYS_userfaultfd, 0);
}
static long names(void)
{
    return prctl(PR_SET_NAME, "other");
}
static long filter_more(void)
{
    return syscall(SYS_seccomp, 0, 0, NULL);
}
static long terminal(void)
{
    return ioctl(0, TIOCGPGRP, stack);
}
static long limits(void)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    return setrlimit(RLIMIT_CORE, &all);
}
static long limits_of_parent(void)
{
    struct rlimit is;
    return syscall(SYS_prlimit64, getppid(), RLIMIT_NOFILE, NULL, &is);
}
static long owner(void)
{
    return setuid(0);
}
static long root(void)
{
    return chroot("/");
}
static long scheduler(void)
{
    return setpriority(PRIO_PROCESS, 0, 19);
}
static long to_stdout(void)
{
    return write(STDOUT_FILENO, "x", 1);
}
static long to_stderr(void)
{
    return write(STDERR_FILENO, "x", 1);
}
static long vector(void)
{
    struct iovec v = {stack, 1};
    return writev(STDERR_FILENO, &v, 1);
}
static long copied(void)
{
    return dup2(0, 99);
}
static long copied_otherwise(void)
{
    return fcntl(0, F_DUPFD, 50);
}
static long locked(void)
{
    struct flock all = {.l_type = F_WRLCK};
    return fcntl(0, F_SETLK, &all);
}
static long mapping(int prot, int flags)
{
    const int fd = in("file", O_RDONLY);
    void *at = mmap(NULL, 4096, prot, flags, flags & MAP_ANONYMOUS ? -1 : fd, 0);
    const int sys = errno;
    close(fd);
    errno = sys;
    return at == MAP_FAILED ? -1 : 0;
}
static long code(void)
{
    return mapping(PROT_READ | PROT_EXEC, MAP_PRIVATE);
}
static long own_code(void)
{
    return mapping(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS);
}
static long shared(void)
{
    return mapping(PROT_READ, MAP_SHARED);
}
static long made_code(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(at, 4096, PROT_READ | PROT_EXEC);
}
/* The plan's own file: its number may not come to mean another one. */
static long close_plan(void)
{
    for (int fd = 3; fd < 32; fd++) {
        char path[32], name[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, name, sizeof name - 1);
        if (n > 0 && memmem(name, (size_t)n, "memfd:ckptflow-plan", 19)) return close(fd);
    }
    return 0;
}

static long read_password(void)
{
    return open("/etc/passwd", O_RDONLY);
}
static long read_beside(void)
{
    return open(outside, O_RDONLY);
}
static long read_upwards(void)
{
    return in("../outside", O_RDONLY);
}
static long read_by_link(void)
{
    return in("link", O_RDONLY);
}
static long read_memory_of_parent(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    return open(path, O_RDONLY);
}
static long list_root(void)
{
    return open("/", O_RDONLY | O_DIRECTORY);
}
static long list_beside(void)
{
    return open(folder, O_RDONLY | O_DIRECTORY);
}

#define SECCOMP(name)                                                                              \
    {                                                                                              \
#name, name, false                                                                         \
    }
#define LANDLOCK(name)                                                                             \
    {                                                                                              \
#name, name, true                                                                          \
    }

static const struct {
    const char *name;
    long (*call)(void);
    bool landlock;
} THINGS[] = {
    SECCOMP(write_it),
    SECCOMP(write_both),
    SECCOMP(append_it),
    SECCOMP(cut_it),
    SECCOMP(create),
    SECCOMP(no_name),
    SECCOMP(write_by_openat2),
    SECCOMP(remove_it),
    SECCOMP(truncate_it),
    SECCOMP(chmod_it),
    SECCOMP(rename_it),
    SECCOMP(link_it),
    SECCOMP(symlink_it),
    SECCOMP(xattr_it),
    SECCOMP(make_folder),
    SECCOMP(make_fifo),
    SECCOMP(own_memory),
    SECCOMP(network),
    SECCOMP(local_socket),
    SECCOMP(pair),
    SECCOMP(pipes),
    SECCOMP(run_program),
    SECCOMP(forked),
    SECCOMP(cloned),
    SECCOMP(new_namespace),
    SECCOMP(kill_parent),
    SECCOMP(kill_all),
    SECCOMP(thread_kill),
    SECCOMP(queue_signal),
    SECCOMP(traced),
    SECCOMP(read_memory),
    SECCOMP(pid_handle),
    SECCOMP(ring),
    SECCOMP(memory_file),
    SECCOMP(by_handle),
    SECCOMP(mounted),
    SECCOMP(bpf),
    SECCOMP(perf),
    SECCOMP(keys),
    SECCOMP(faults),
    SECCOMP(names),
    SECCOMP(filter_more),
    SECCOMP(terminal),
    SECCOMP(limits),
    SECCOMP(limits_of_parent),
    SECCOMP(owner),
    SECCOMP(root),
    SECCOMP(scheduler),
    SECCOMP(to_stdout),
    SECCOMP(to_stderr),
    SECCOMP(vector),
    SECCOMP(copied),
    SECCOMP(copied_otherwise),
    SECCOMP(locked),
    SECCOMP(code),
    SECCOMP(own_code),
    SECCOMP(shared),
    SECCOMP(made_code),
    SECCOMP(close_plan),
    LANDLOCK(read_password),
    LANDLOCK(read_beside),
    LANDLOCK(read_upwards),
    LANDLOCK(read_by_link),
    LANDLOCK(read_memory_of_parent),
    LANDLOCK(list_root),
    LANDLOCK(list_beside),
};

/* ---- the child ---------------------------------------------------------------------------------
 */

static void try_all(cf_text *out, const char *where)
{
    for (size_t i = 0; i < sizeof THINGS / sizeof *THINGS; i++) {
        if (THINGS[i].landlock && !has_landlock()) continue;
        errno = 0;
        if (THINGS[i].call() >= 0 || (errno != EPERM && errno != EACCES))
            cf_text_printf(out, "%s%s: %s\n", where, THINGS[i].name, strerror(errno));
    }
}

static void *in_thread(void *arg)
{
    try_all(arg, "in a thread: ");
    return NULL;
}

static bool try_job(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    (void)ctx;
    (void)notes;
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, out) != 0)
        return cf_fail(err, CF_E_INTERNAL, "no threads");
    pthread_join(thread, NULL);
    try_all(out, "");
    return true;
}

/* What it is there for still works. */
static bool use_job(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    (void)ctx;
    (void)notes;
    char bytes[8] = "";
    const int fd = in("file", O_RDONLY);
    if (fd < 0 || pread(fd, bytes, 4, 0) != 4 || strcmp(bytes, "data") != 0 || close(fd) != 0)
        return cf_fail_sys(err, errno, "a file of the checkpoint");
    FILE *script = fopen(plugin, "re");
    if (!script || fread(bytes, 1, 6, script) != 6)
        return cf_fail_sys(err, errno, "a plugin's text");
    fclose(script);
    DIR *list = opendir(inside);
    int n = 0;
    while (list && readdir(list)) n++;
    if (n != 4) return cf_fail_sys(err, errno, "a listing of %d", n);
    closedir(list);
    char *large = malloc(64 << 20);
    if (!large) return cf_fail(err, CF_E_MEMORY, "memory");
    memset(large, 1, 64 << 20);
    free(large);
    cf_text_str(out, "used");
    return true;
}

/* A call by another door of the kernel: the filter ends the process. */
static bool other_door_job(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    (void)ctx;
    (void)out;
    (void)notes;
    (void)err;
#ifdef __x86_64__
    long got;
    __asm__ volatile("int $0x80" : "=a"(got) : "a"(20 /* getpid of 32 bits */) : "memory");
#else
    abort();
#endif
    return true;
}

/* ---- the tests ---------------------------------------------------------------------------------
 */

static void put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void set_up(void)
{
    char path[128];
    strcpy(folder, "/tmp/ckptflow-confine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/checkpoint", folder);
    snprintf(outside, sizeof outside, "%s/outside", folder);
    snprintf(plugin, sizeof plugin, "%s/p.lua", folder);
    ck_assert_int_eq(mkdir(inside, 0700), 0);
    snprintf(path, sizeof path, "%s/file", inside);
    put(path, "data");
    put(outside, "secret");
    put(plugin, "return");
    snprintf(path, sizeof path, "%s/link", inside);
    ck_assert_int_eq(symlink("../outside", path), 0);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static bool run(cf_child_job *job, bool free, cf_reply *reply, cf_err *err)
{
    const char *inputs[] = {inside}, *plugins[] = {plugin};
    const cf_options o = {.inputs = inputs,
                          .n_inputs = 1,
                          .n_roots = 1,
                          .plugins = {.list = plugins, .count = 1},
                          .quiet = true,
                          .no_confine = free};
    return cf_child_run(job, NULL, &o, reply, err);
}

START_TEST(everything_is_refused)
{
    cf_reply reply;
    cf_err err;
    if (!has_filters()) return;
    ck_assert_msg(run(try_job, false, &reply, &err), "%s", err.message);
    ck_assert_msg(reply.size == 0, "not refused:\n%.*s", (int)reply.size,
                  (const char *)reply.bytes);
    cf_reply_free(&reply);
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/file", inside);
    ck_assert(stat(path, &st) == 0 && st.st_size == 4 && (st.st_mode & 0777) == 0600);
}
END_TEST

START_TEST(reading_works)
{
    cf_reply reply;
    cf_err err;
    for (int free = 0; free < 2; free++) {
        ck_assert_msg(run(use_job, free, &reply, &err), "%s", err.message);
        ck_assert_mem_eq(reply.bytes, "used", 4);
        cf_reply_free(&reply);
    }
}
END_TEST

START_TEST(other_doors_are_shut)
{
    cf_reply reply;
    cf_err err;
    if (!has_filters()) return;
    ck_assert(!run(other_door_job, false, &reply, &err));
    ck_assert_int_eq(err.code, CF_E_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "died of signal"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("confine");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, everything_is_refused);
    tcase_add_test(c, reading_works);
    tcase_add_test(c, other_doors_are_shut);
    suite_add_tcase(s, c);
    return run_suite(s);
}
