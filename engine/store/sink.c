/* The output folder: made beside its place, locked, and renamed when it is whole.
 *
 * The lock is flock on the partial folder itself, so that it goes when its process goes. Its name
 * can change hands between the open and the lock (a run that ends renames or removes it), so the
 * locked folder is looked up once more. Everything below goes through descriptors and refuses
 * links. Publishing is renameat2: NOREPLACE, or EXCHANGE with the old output, which then carries
 * the partial name, locked, until it is removed. File systems that know neither get a check and a
 * plain rename.
 */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "folder.h"
#include "path.h"

static const char SUFFIX[] = ".ckptflow-partial", GUARD[] = CF_OWN_PREFIX "lock";

static const char *base(const char *path)
{
    return strrchr(path, '/') + 1;
}

static bool present(int parent, const char *name)
{
    struct stat st;
    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A file that is missing here, or a link, is no fault of the checkpoint. */
static bool fail(cf_err *err, int sys, const char *what, const char *name)
{
    cf_fail_sys(err, sys, "%s %s", what, name);
    if (err->code == CF_E_MISSING_FILE || err->code == CF_E_PATH) err->code = CF_E_IO;
    return false;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void release(cf_sink *sink)
{
    close_fd(&sink->guard);
    close_fd(&sink->dir);
    close_fd(&sink->parent);
    free(sink->out);
    free(sink->partial);
    sink->out = sink->partial = NULL;
}

bool cf_sink_reserved(const char *path)
{
    return strcmp(path, CF_MANIFEST_NAME) == 0 ||
           strncmp(path, CF_OWN_PREFIX, strlen(CF_OWN_PREFIX)) == 0;
}

/* Fills paths and parent; what cf_sink_check says. */
static bool locate(cf_sink *sink, const char *out, bool overwrite, cf_err *err)
{
    *sink = (cf_sink){.parent = -1, .dir = -1, .guard = -1, .overwrite = overwrite};
    char copies[2][PATH_MAX]; /* both functions may write into theirs */
    if (strlen(out) >= sizeof *copies)
        return cf_fail(err, CF_E_USAGE, "the output's path is longer than %d bytes", PATH_MAX - 1);
    const char *name = basename(strcpy(copies[0], out));
    const char *parent = dirname(strcpy(copies[1], out));
    if (strcmp(name, "/") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cf_fail(err, CF_E_USAGE, "\"%s\" is no name for an output folder", out);

    char *real = realpath(parent, NULL);
    if (!real) return fail(err, errno, "cannot write to the folder", parent);
    sink->parent = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sink->parent < 0 || faccessat(sink->parent, ".", W_OK | X_OK, AT_EACCESS) != 0)
        fail(err, errno, "cannot write to the folder", real);
    else if (!overwrite && present(sink->parent, name)) {
        cf_fail(err, CF_E_EXISTS, "the output exists: %s", out);
        cf_err_hint(err, "--overwrite replaces it, -o names another place");
    } else if (asprintf(&sink->out, "%s/%s", real[1] ? real : "", name) < 0 ||
               asprintf(&sink->partial, "%s%s", sink->out, SUFFIX) < 0)
        cf_fail(err, CF_E_MEMORY, "out of memory");
    else {
        free(real);
        return true;
    }
    free(real);
    release(sink);
    return false;
}

bool cf_sink_check(const char *out, bool overwrite, cf_err *err)
{
    cf_sink sink;
    CF_TRY(locate(&sink, out, overwrite, err));
    release(&sink);
    return true;
}

/* Is the locked folder still the one of that name? */
static bool still_there(const cf_sink *sink)
{
    struct stat named, held;
    return fstatat(sink->parent, base(sink->partial), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(sink->dir, &held) == 0 && named.st_ino == held.st_ino &&
           named.st_dev == held.st_dev;
}

static int open_guard(const cf_sink *sink, int flags)
{
    return openat(sink->dir, GUARD, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
}

/* The folder is locked: is the file in it free too? True where nothing can be locked: shares write
 * disjoint bytes, and those of one share are always the same. */
static bool lock_guard(cf_sink *sink)
{
    sink->guard = open_guard(sink, sink->shared ? O_CREAT : 0);
    if (sink->guard < 0) return !sink->shared || errno != ENOENT;
    return flock(sink->guard, (sink->shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 ||
           errno != EWOULDBLOCK;
}

/* Makes the partial folder, or takes over a dead run's, or (shared) joins others, and locks it. */
static bool lock(cf_sink *sink, bool *made, cf_err *err)
{
    const char *name = base(sink->partial);
    for (int tries = 0; tries < 16; tries++) {
        const bool fresh = *made = mkdirat(sink->parent, name, 0777) == 0;
        if (!fresh && errno != EEXIST) return fail(err, errno, "cannot make", name);
        sink->dir = cf_folder_open(sink->parent, name);
        if (sink->dir < 0 && errno == ENOENT) continue;
        if (sink->dir < 0) return fail(err, errno, "cannot open", name);
        const bool locked = flock(sink->dir, (sink->shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0;
        if (!locked && errno == EWOULDBLOCK) {
            return cf_fail(err, CF_E_BUSY, "another run writes %s", name);
        } else if (!locked && !fresh && !sink->shared) {
            cf_fail(err, CF_E_BUSY, "another run may be writing %s, and nothing here can lock it",
                    name);
            return cf_err_hint(err, "if no run is alive, remove it");
        }
        const bool guarded = lock_guard(sink);
        if (guarded && (!locked || still_there(sink))) return true;
        if (!guarded && still_there(sink))
            return cf_fail(err, CF_E_BUSY,
                           sink->shared ? "another share finishes %s" : "shares of a run write %s",
                           name);
        close_fd(&sink->guard);
        close_fd(&sink->dir);
    }
    return cf_fail(err, CF_E_BUSY, "other runs write %s", name);
}

static bool enter(cf_sink *sink, const char *out, bool overwrite, bool shared, cf_err *err)
{
    CF_TRY(locate(sink, out, overwrite, err));
    sink->shared = shared;
    bool made, ok = lock(sink, &made, err);
    if (ok && shared && !overwrite && present(sink->parent, base(sink->out))) {
        /* the others were through while this one came */
        if (made) unlinkat(sink->dir, GUARD, 0);
        if (made) unlinkat(sink->parent, base(sink->partial), AT_REMOVEDIR);
        ok = cf_fail(err, CF_E_EXISTS, "the output exists: %s", out);
    }
    if (!ok) release(sink);
    return ok;
}

bool cf_sink_begin(cf_sink *sink, const char *out, bool overwrite, cf_err *err)
{
    return enter(sink, out, overwrite, false, err);
}

bool cf_sink_join(cf_sink *sink, const char *out, bool overwrite, cf_err *err)
{
    return enter(sink, out, overwrite, true, err);
}

void cf_sink_rest(cf_sink *sink)
{
    if (sink->guard >= 0) flock(sink->guard, LOCK_UN);
}

bool cf_sink_gone(const cf_sink *sink)
{
    return !still_there(sink);
}

bool cf_sink_alone(cf_sink *sink)
{
    struct stat named, held;
    if (flock(sink->guard, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return still_there(sink) && fstatat(sink->dir, GUARD, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(sink->guard, &held) == 0 && named.st_ino == held.st_ino;
}

static bool look(const cf_sink *sink, const char *path, struct stat *st)
{
    return fstatat(sink->dir, path, st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st->st_mode);
}

bool cf_sink_holds(const cf_sink *sink, const char *path, uint64_t size)
{
    struct stat st;
    return look(sink, path, &st) && (uint64_t)st.st_size == size;
}

uint64_t cf_sink_held(const cf_sink *sink, const char *path)
{
    struct stat st;
    return look(sink, path, &st) ? (uint64_t)st.st_blocks * 512 : 0;
}

bool cf_sink_empty(cf_sink *sink, cf_err *err)
{
    int sys = 0;
    return cf_folder_empty(sink->dir, &sys) || fail(err, sys, "cannot empty", base(sink->partial));
}

bool cf_sink_keep(cf_sink *sink, bool planned(const void *ctx, const char *path), const void *ctx,
                  uint64_t *held, cf_err *err)
{
    int sys = 0;
    *held = 0;
    sink->kept = true;
    return cf_folder_prune(sink->dir, planned, ctx, held, &sys) ||
           fail(err, sys, "cannot clear", base(sink->partial));
}

/* Space for all of a file, where the file system can promise it. */
static bool reserve(int fd, uint64_t size, cf_err *err)
{
    if (size > INT64_MAX) return cf_fail(err, CF_E_OVERFLOW, "a file of more than 2^63 bytes");
    if (size == 0) return true;
    int rc;
    do {
        rc = fallocate(fd, 0, 0, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) rc = ftruncate(fd, (off_t)size);
    return rc == 0 ||
           cf_fail_sys(err, errno, "cannot make room for %llu bytes", (unsigned long long)size);
}

/* A file that a run before left, of just this size; -1. Another one in its place is removed. */
static int reopen(int dir, const char *name, uint64_t size)
{
    struct stat st;
    const int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
        (uint64_t)st.st_size == size)
        return fd;
    if (fd >= 0) close(fd);
    unlinkat(dir, name, 0);
    return -1;
}

/* A file that others of the run may have made, or are making: it only grows, and is never removed.
 */
static int share_file(int dir, const char *name, uint64_t size, cf_err *err)
{
    struct stat st;
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, &st) != 0)
        fail(err, errno, "cannot create", name);
    else if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || (uint64_t)st.st_size > size)
        cf_fail(err, CF_E_IO, "another file than the plan's is in its place");
    else if ((uint64_t)st.st_size == size || reserve(fd, size, err))
        return fd;
    close_fd(&fd);
    return -1;
}

static int create_file(const cf_sink *sink, int dir, const char *name, uint64_t size, cf_err *err)
{
    if (sink->shared) return share_file(dir, name, size, err);
    int fd = sink->kept ? reopen(dir, name, size) : -1;
    if (fd >= 0) return fd;
    fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        fail(err, errno, "cannot create", name);
    else if (!reserve(fd, size, err))
        close_fd(&fd);
    return fd;
}

static int create_folder(int dir, const char *name, cf_err *err)
{
    int fd = -1;
    if (mkdirat(dir, name, 0777) == 0 || errno == EEXIST) fd = cf_folder_open(dir, name);
    if (fd < 0) fail(err, errno, "cannot create", name);
    return fd;
}

bool cf_sink_create(cf_sink *sink, const char *path, uint64_t size, int *fd, cf_err *err)
{
    if (cf_path_kind_of(path, strlen(path)) != CF_PATH_PLAIN) {
        cf_fail(err, CF_E_PATH, "no name for an output file");
        return cf_err_in_file(err, path);
    }
    int at = sink->dir;
    for (const char *rest = path; rest && at >= 0;) {
        char name[NAME_MAX + 1];
        const size_t n = strcspn(rest, "/");
        const bool last = !rest[n];
        int next = -1;
        if (n >= sizeof name) {
            fail(err, ENAMETOOLONG, "cannot create", rest);
        } else {
            memcpy(name, rest, n);
            name[n] = '\0';
            next = last ? create_file(sink, at, name, size, err) : create_folder(at, name, err);
        }
        if (at != sink->dir) close(at);
        at = next;
        rest = last ? NULL : rest + n + 1;
    }
    if (at < 0) return cf_err_in_file(err, path);
    *fd = at;
    return true;
}

/* A file without a name in a folder; -1 with errno. */
static int nameless(int dir)
{
    int got = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    for (int i = 0; got < 0 && i < 1000; i++) { /* no O_TMPFILE: a name, for a moment */
        char name[32];
        snprintf(name, sizeof name, ".scratch-%d", i);
        got = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (got >= 0)
            unlinkat(dir, name, 0);
        else if (errno != EEXIST)
            break;
    }
    return got;
}

bool cf_temporary(int *fd, cf_err *err)
{
    const char *places[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    *fd = -1;
    for (size_t i = 0; *fd < 0 && i < sizeof places / sizeof *places; i++) {
        const int dir =
            places[i] && *places[i] ? open(places[i], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        if (dir < 0) continue;
        *fd = nameless(dir);
        const int sys = errno;
        close(dir);
        errno = sys;
    }
    return *fd >= 0 || cf_fail_sys(err, errno, "cannot make a temporary file");
}

bool cf_sink_scratch(cf_sink *sink, uint64_t size, int *fd, cf_err *err)
{
    const int got = nameless(sink->dir);
    if (got < 0) return cf_fail_sys(err, errno, "cannot make a scratch file");
    if (!reserve(got, size, err)) {
        close(got);
        return false;
    }
    *fd = got;
    return true;
}

static bool lacks_flags(int sys)
{
    return sys == EINVAL || sys == ENOSYS || sys == ENOTSUP;
}

/* RENAME_EXCHANGE's stand-in. 0, or errno. */
static int exchange_by_steps(int p, const char *from, const char *to)
{
    char aside[NAME_MAX + 1];
    int sys;
    if (snprintf(aside, sizeof aside, "%s.ckptflow-old", to) >= (int)sizeof aside)
        return ENAMETOOLONG;
    if (!cf_folder_remove(p, aside, &sys)) return sys;
    if (renameat(p, to, p, aside) != 0) return errno;
    if (renameat(p, from, p, to) == 0) return renameat(p, aside, p, from) == 0 ? 0 : errno;
    sys = errno;
    renameat(p, aside, p, to);
    return sys;
}

/* 0, or errno. *replaced: what was there has the partial name now. */
static int publish(const cf_sink *sink, bool *replaced)
{
    const char *from = base(sink->partial), *to = base(sink->out);
    const int p = sink->parent;
    if (sink->overwrite) {
        int sys = renameat2(p, from, p, to, RENAME_EXCHANGE) == 0 ? 0 : errno;
        if (lacks_flags(sys) && present(p, to)) sys = exchange_by_steps(p, from, to);
        *replaced = sys == 0;
        if (sys != ENOENT && !lacks_flags(sys)) return sys;
    }
    if (renameat2(p, from, p, to, RENAME_NOREPLACE) == 0) return 0;
    if (!lacks_flags(errno)) return errno;
    if (present(p, to)) return EEXIST;
    return renameat(p, from, p, to) == 0 ? 0 : errno;
}

/* What is there only while OUT is partial; the lock file goes after the rename. */
static bool remove_own(const cf_sink *sink, int *sys)
{
    DIR *entries = cf_folder_read(sink->dir);
    *sys = errno;
    if (!entries) return false;
    bool ok = true;
    for (const char *name; ok && (name = cf_folder_next(entries));)
        if (strncmp(name, CF_OWN_PREFIX, strlen(CF_OWN_PREFIX)) == 0 && strcmp(name, GUARD) != 0)
            ok = cf_folder_remove(sink->dir, name, sys);
    closedir(entries);
    return ok;
}

bool cf_sink_commit(cf_sink *sink, bool fsync_all, cf_err *err)
{
    const char *from = base(sink->partial), *to = base(sink->out);
    int sys = 0;
    /* last: without its journal the folder is worth nothing to a run that would go on */
    const bool gone = (!fsync_all || cf_folder_sync(sink->dir, &sys)) && remove_own(sink, &sys) &&
                      (!fsync_all || cf_folder_sync(sink->dir, &sys));
    if (!gone) return fail(err, sys, "cannot finish", from);

    /* What is replaced carries the partial name until it is removed: locked, or another run would
     * take it for a dead run's. Only a run that is just ending can hold that lock. */
    int old = sink->overwrite ? cf_folder_open(sink->parent, to) : -1;
    if (old >= 0) flock(old, LOCK_EX);
    bool ok = false, replaced = false;
    sys = publish(sink, &replaced);
    if (sys == EEXIST)
        cf_fail(err, CF_E_EXISTS, "%s appeared while it was written", to);
    else if (sys)
        fail(err, sys, "cannot rename", from);
    else {
        if (sink->guard >= 0) unlinkat(sink->dir, GUARD, 0);
        close_fd(&sink->dir);
        ok = !fsync_all || fsync(sink->parent) == 0 || errno == EINVAL ||
             fail(err, errno, "cannot sync the folder of", to);
        if (replaced && !cf_folder_remove(sink->parent, from, &sys))
            ok = fail(err, sys, "the output is complete; cannot remove what it replaced:", from);
        free(sink->partial);
        sink->partial = NULL;
    }
    close_fd(&old);
    return ok;
}

void cf_sink_discard(cf_sink *sink)
{
    if (!sink->out) return; /* never begun */
    int sys;
    if (sink->partial) cf_folder_remove(sink->parent, base(sink->partial), &sys);
    release(sink);
}

void cf_sink_leave(cf_sink *sink)
{
    if (sink->out) release(sink);
}

bool cf_free_space(const char *path, uint64_t *bytes, cf_err *err)
{
    char at[PATH_MAX];
    if ((size_t)snprintf(at, sizeof at, "%s", path) >= sizeof at)
        return cf_fail(err, CF_E_IO, "the path is longer than %d bytes", PATH_MAX - 1);
    struct statvfs fs;
    for (const char *p = at; statvfs(p, &fs) != 0; p = dirname(at))
        if ((errno != ENOENT && errno != ENOTDIR) || strcmp(p, ".") == 0 || strcmp(p, "/") == 0)
            return cf_fail_sys(err, errno, "cannot ask for free space in %s", path);
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, bytes))
        *bytes = INT64_MAX;
    return true;
}
