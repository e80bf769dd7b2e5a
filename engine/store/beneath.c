/* Opening a file by a name that came from a checkpoint.
 *
 * openat2 (Linux 5.6) resolves the name without ever leaving the root: "..", absolute links and
 * /proc links that lead out are EXDEV or ELOOP. Where the kernel or a container filter lacks it,
 * the name is walked component by component and no link is followed at all. Only what fstat calls a
 * regular file is handed out; O_NONBLOCK keeps a FIFO from blocking the open.
 */
#include "dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hub.h"
#include "path.h"

bool cf_follow_links;

enum { FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

/* openat2's stand-in; descriptor or -1 with errno. */
static int open_by_steps(int root, const char *path)
{
    int dir = root, fd;
    for (;;) {
        char name[256];
        const size_t n = strcspn(path, "/");
        if (n >= sizeof name) {
            fd = -1;
            errno = ENAMETOOLONG;
            break;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        const bool last = !path[n];
        path += n + !last;
        if (n == 0 && !last) continue;
        fd = openat(dir, n ? name : ".",
                    O_NOFOLLOW | (last ? FLAGS : O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (last || fd < 0) break;
        if (dir != root) close(dir);
        dir = fd;
    }
    const int sys = errno;
    if (dir != root) close(dir);
    errno = sys;
    return fd;
}

static int open_inside(int root, const char *path)
{
    if (cf_follow_links) return openat(root, path, FLAGS);
    struct open_how how = {.flags = FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd = -1;
    /* EAGAIN: something was renamed while it looked */
    for (int tries = 0; tries < 16; tries++) {
        fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
    }
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) fd = open_by_steps(root, path);
    return fd;
}

static int open_linked(int root, const char *path)
{
    char name[256];
    const int sys = errno, blobs = cf_hub_follow(root, path, name, sizeof name);
    errno = sys;
    if (blobs < 0) return -1;
    const int fd = open_inside(blobs, name);
    const int why = errno;
    close(blobs);
    errno = why;
    return fd;
}

/* A root that is a file holds that file alone; the user named it, so a link is followed. */
static int open_alone(const char *root, const char *path)
{
    const char *slash = strrchr(root, '/');
    errno = ENOENT;
    return strcmp(slash ? slash + 1 : root, path) == 0 ? open(root, FLAGS) : -1;
}

static bool fail_open(cf_err *err, int sys)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR: return cf_fail(err, CF_E_MISSING_FILE, "no such file in the checkpoint");
    case EXDEV:
        cf_fail(err, CF_E_PATH, "a link leads out of the checkpoint's folder");
        return cf_err_hint(err, "--follow-links follows it, if you trust whoever made it");
    case ELOOP: return cf_fail(err, CF_E_PATH, "a link that is not followed, or a circle of links");
    case ENXIO: return cf_fail(err, CF_E_NOT_REGULAR, "not a regular file");
    default: return cf_fail_sys(err, sys, "cannot open");
    }
}

bool cf_beneath_open(const char *root, const char *path, int *fd, cf_dir_file *is, cf_err *err)
{
    if (cf_path_kind_of(path, strlen(path)) == CF_PATH_OUT) {
        cf_fail(err, CF_E_PATH, "\"%s\" is no name inside the checkpoint's folder", path);
        return cf_err_in_file(err, path);
    }
    int got = -1;
    const int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        got = open_inside(dir, path);
        if (got < 0 && (errno == EXDEV || errno == ELOOP)) got = open_linked(dir, path);
    } else if (errno == ENOTDIR)
        got = open_alone(root, path);
    const int sys = errno;
    if (dir >= 0) close(dir);

    struct stat st;
    if (got < 0)
        fail_open(err, sys);
    else if (fstat(got, &st) != 0)
        cf_fail_sys(err, errno, "cannot look at it");
    else if (!S_ISREG(st.st_mode))
        cf_fail(err, CF_E_NOT_REGULAR, "not a regular file");
    else {
        *fd = got;
        if (is) *is = cf_dir_file_of(path, 0, &st);
        return true;
    }
    if (got >= 0) close(got);
    return cf_err_in_file(err, path);
}
