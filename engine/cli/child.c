#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "beside.h"
#include "confine.h"
#include "host.h"
#include "hub.h"
#include "print.h"
#include "signals.h"

enum {
    MOST_LEFT = 64 << 20, /* of a job that failed */
    PAGE = 4096,          /* of the memfd: first the verdict, then the bytes */
    OVERTIME = 70         /* exit status of a child that a script would not leave */
};

typedef struct verdict {
    bool ok;
    cf_err err;
    uint64_t notes;       /* of a job that failed: bytes of them; what is behind them is JSON */
    char unconfined[128]; /* why, or what is lacking */
} verdict;

_Static_assert(sizeof(verdict) <= PAGE, "the verdict has a page");

static bool put(int fd, const void *bytes, size_t size, off_t at)
{
    const char *p = bytes;
    while (size) {
        const ssize_t n = pwrite(fd, p, size, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* What a script of that name may be: a path, or a file of the working directory. */
static void add_script(cf_arena *arena, const char *name, const char **paths, size_t *count)
{
    char *file = cf_alloc(arena, strlen(name) + 5);
    paths[(*count)++] = name;
    if (file) paths[(*count)++] = strcat(strcpy(file, name), ".lua");
}

/* A checkpoint, and where its links lead. */
static void add_root(cf_arena *arena, const char *root, const char **paths, size_t *count)
{
    char blobs[PATH_MAX];
    paths[(*count)++] = root;
    if (cf_hub_blobs(root, blobs, sizeof blobs))
        paths[(*count)++] = cf_strndup(arena, blobs, strlen(blobs));
}

/* Whatever the command line names to be read, where links of it may lead, and the scripts of the
 * search path: those may be links to elsewhere. */
static bool confine(int fd, const cf_options *o, char *lacks, size_t size, cf_err *err)
{
    cf_scripts scripts;
    for (int i = 0; i < o->n_roots; i++) cf_beside_open(o->inputs[i]);
    if (o->no_confine) return true;
    if (!cf_scripts_list(&scripts, err)) return false;
    size_t most = 2 * (size_t)o->n_roots + (size_t)o->plugins.count + 2 * o->n_given +
                  scripts.n_folders + 3,
           n = 0;
    for (size_t i = 0; i < scripts.count; i++)
        for (const cf_script *s = &scripts.items[i]; s; s = s->shadows) most++;
    const char **paths = CF_NEWS(&scripts.arena, const char *, most);
    if (!paths) return cf_arena_ok(&scripts.arena, err);
    for (int i = 0; i < o->n_roots; i++) add_root(&scripts.arena, o->inputs[i], paths, &n);
    if (o->follow_links) paths[n++] = "/";
    for (int i = 0; i < o->plugins.count; i++) paths[n++] = o->plugins.list[i];
    for (size_t i = 0; i < o->n_given; i++)
        add_script(&scripts.arena, o->given[i].value, paths, &n);
    for (size_t i = 0; i < scripts.n_folders; i++) paths[n++] = scripts.folders[i];
    for (size_t i = 0; i < scripts.count; i++)
        for (const cf_script *s = &scripts.items[i]; s; s = s->shadows)
            if (s->path) paths[n++] = s->path;
    if (o->recipe) add_script(&scripts.arena, o->recipe, paths, &n);
    cf_confine(fd, paths, n, lacks, size);
    cf_scripts_free(&scripts);
    return true;
}

/* Of an error what it says, and nothing of the stack that it was on. */
static void tell(cf_err *to, const cf_err *err)
{
    to->code = err->code;
    to->sys = err->sys;
    to->offset = err->offset;
    to->resumable = err->resumable;
    strcpy(to->file, err->file);
    strcpy(to->member, err->member);
    strcpy(to->message, err->message);
    strcpy(to->hint, err->hint);
}

static _Noreturn void be_child(int fd, cf_child_job *job, const void *ctx, const cf_options *o)
{
    cf_text out = {0}, notes = {0};
    verdict v;
    cf_err err = {0};
    memset(&v, 0, sizeof v);
    v.ok = confine(fd, o, v.unconfined, sizeof v.unconfined, &err) && job(ctx, &out, &notes, &err);
    if (!v.ok) v.notes = notes.size;
    if (!put(fd, notes.at, v.notes, PAGE) || !put(fd, out.at, out.size, PAGE + (off_t)v.notes))
        v.ok = cf_fail_sys(&err, errno, "cannot hand over the plan");
    if (!v.ok) tell(&v.err, &err);
    const bool told =
        put(fd, &v, sizeof v, 0) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
    _exit(told ? 0 : 1); /* no atexit, no flush of what the parent had buffered */
}

static bool wait_for(pid_t pid, cf_err *err)
{
    int status;
    siginfo_t info;
    cf_signals_child(pid);
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        ;
    cf_signals_child(0); /* its number is its own until it is waited for */
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) return cf_fail_sys(err, errno, "cannot wait for the planner");
    if (cf_stop_signal)
        return cf_fail(err, CF_E_INTERRUPTED, "stopped by signal %d", (int)cf_stop_signal);
    if (WIFSIGNALED(status))
        return cf_fail(err, CF_E_INTERNAL, "the planner died of signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == OVERTIME)
        return cf_fail(err, CF_L_LIMIT_CPU, "a script is over its time");
    return WEXITSTATUS(status) == 0
               ? true
               : cf_fail(err, CF_E_INTERNAL, "the planner left without a word");
}

/* A text of the child's, ended within its field. */
static void end(char *field, size_t size)
{
    field[size - 1] = '\0';
}

/* What a job that failed left behind its verdict. */
static void take_failure(const char *bytes, size_t size, uint64_t notes, bool quiet)
{
    if (size > MOST_LEFT || notes > size) return;
    char *text = strndup(bytes, notes);
    if (text && !quiet) cf_print_notes(text);
    free(text);
    cf_print_more(bytes + notes, size - notes);
}

static bool take(int fd, const cf_options *o, cf_reply *reply, cf_err *err)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat is;
    if ((fcntl(fd, F_GET_SEALS) & seals) != seals || fstat(fd, &is) != 0 ||
        is.st_size < (off_t)sizeof(verdict))
        return cf_fail(err, CF_E_INTERNAL, "the planner's answer is not sealed");
    void *map = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return cf_fail_sys(err, errno, "cannot map the plan");
    verdict v;
    memcpy(&v, map, sizeof v);
    const bool quiet = o->quiet || o->json;
    end(v.unconfined, sizeof v.unconfined);
    if (o->verbose && !quiet) cf_print_notes(v.unconfined);
    if (!v.ok) {
        take_failure((const char *)map + PAGE, is.st_size > PAGE ? (size_t)is.st_size - PAGE : 0,
                     v.notes, quiet);
        munmap(map, (size_t)is.st_size);
        if (v.err.code == CF_OK || v.err.code > CF_E_INTERRUPTED) v.err.code = CF_E_INTERNAL;
        end(v.err.file, sizeof v.err.file);
        end(v.err.member, sizeof v.err.member);
        end(v.err.message, sizeof v.err.message);
        end(v.err.hint, sizeof v.err.hint);
        *err = v.err;
        return false;
    }
    *reply = (cf_reply){.map = map,
                        .mapped = (size_t)is.st_size,
                        .bytes = (const char *)map + PAGE,
                        .size = is.st_size > PAGE ? (size_t)is.st_size - PAGE : 0};
    return true;
}

bool cf_child_run(cf_child_job *job, const void *ctx, const cf_options *o, cf_reply *reply,
                  cf_err *err)
{
    *reply = (cf_reply){0};
    const int fd = memfd_create("ckptflow-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return cf_fail_sys(err, errno, "cannot make a place for the plan");
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        cf_fail_sys(err, errno, "cannot start the planner");
        close(fd);
        return false;
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        cf_signals_leave();
        cf_host_watch(OVERTIME);
        be_child(fd, job, ctx, o);
    }
    const bool ok = wait_for(pid, err) && take(fd, o, reply, err);
    close(fd);
    return ok;
}

void cf_reply_free(cf_reply *reply)
{
    if (reply->map) munmap(reply->map, reply->mapped);
    *reply = (cf_reply){0};
}
