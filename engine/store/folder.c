/* One bounded walk, and what is done at each entry of it. Every step goes through the descriptor of
 * the folder above and refuses links, so that nobody can swap a link in while it runs and have
 * something elsewhere removed.
 */
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LEVELS = 128 }; /* a descriptor each */

int cf_folder_open(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

DIR *cf_folder_read(int dir)
{
    const int fd = cf_folder_open(dir, ".");
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) close(fd);
    return entries;
}

const char *cf_folder_next(DIR *entries)
{
    const struct dirent *e;
    do {
        errno = 0; /* tells the end from an error */
        e = readdir(entries);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}

typedef bool visit(int parent, const char *name, int levels, int *sys);

/* Calls `each` for every entry; false at the first that fails. */
static bool for_each(int dir, int levels, visit *each, int *sys)
{
    *sys = EMLINK;
    if (levels == 0) return false;
    DIR *entries = cf_folder_read(dir);
    *sys = errno;
    if (!entries) return false;
    const char *name;
    bool ok = true;
    while (ok && (name = cf_folder_next(entries))) ok = each(dir, name, levels - 1, sys);
    if (ok && errno) {
        *sys = errno;
        ok = false;
    }
    closedir(entries);
    return ok;
}

static bool remove_entry(int parent, const char *name, int levels, int *sys)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;
    *sys = errno;
    const int dir = cf_folder_open(parent, name);
    if (dir < 0) return false;
    /* some file systems skip entries while others go: then the folder is not empty yet */
    bool ok = false;
    for (int pass = 0; pass < 3 && !ok; pass++) {
        if (!for_each(dir, levels, remove_entry, sys)) break;
        ok = unlinkat(parent, name, AT_REMOVEDIR) == 0;
        *sys = errno;
    }
    close(dir);
    return ok;
}

bool cf_folder_remove(int parent, const char *name, int *sys)
{
    return remove_entry(parent, name, MOST_LEVELS, sys);
}

bool cf_folder_empty(int dir, int *sys)
{
    return for_each(dir, MOST_LEVELS, remove_entry, sys);
}

typedef struct pruning {
    bool (*keep)(const void *ctx, const char *path);
    const void *ctx;
    uint64_t *held;
    int *sys;
    char path[PATH_MAX];
} pruning;

/* length: of the folder's own path, with "/" behind it, in p->path. */
static bool prune(pruning *p, int dir, size_t length, int levels)
{
    DIR *entries = levels ? cf_folder_read(dir) : NULL;
    *p->sys = levels ? errno : EMLINK;
    if (!entries) return false;
    bool ok = true;
    const char *name;
    while (ok && (name = cf_folder_next(entries))) {
        const size_t n = strlen(name);
        struct stat st;
        const int sub = cf_folder_open(dir, name);
        const bool fits = length + n + 2 <= sizeof p->path;
        if (fits) memcpy(p->path + length, name, n + 1);
        if (sub >= 0) {
            if (fits) memcpy(p->path + length + n, "/", 2);
            ok = fits ? prune(p, sub, length + n + 1, levels - 1) : cf_folder_empty(sub, p->sys);
            close(sub);
            if (ok) unlinkat(dir, name, AT_REMOVEDIR); /* stays where it is not empty */
        } else if (fits && p->keep(p->ctx, p->path) &&
                   fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            *p->held += (uint64_t)st.st_blocks * 512;
        } else if (unlinkat(dir, name, 0) != 0 && errno != ENOENT) {
            *p->sys = errno;
            ok = false;
        }
    }
    if (ok && !name && errno) {
        *p->sys = errno;
        ok = false;
    }
    closedir(entries);
    return ok;
}

bool cf_folder_prune(int dir, bool keep(const void *ctx, const char *path), const void *ctx,
                     uint64_t *held, int *sys)
{
    pruning p = {.keep = keep, .ctx = ctx, .held = held, .sys = sys};
    return prune(&p, dir, 0, MOST_LEVELS);
}

static bool sync_tree(int dir, int levels, int *sys);

static bool sync_entry(int parent, const char *name, int levels, int *sys)
{
    const int dir = cf_folder_open(parent, name);
    if (dir < 0) {
        *sys = errno;
        return errno == ENOTDIR || errno == ELOOP;
    }
    const bool ok = sync_tree(dir, levels, sys);
    close(dir);
    return ok;
}

static bool sync_tree(int dir, int levels, int *sys)
{
    if (!for_each(dir, levels, sync_entry, sys)) return false;
    if (fsync(dir) == 0 || errno == EINVAL) return true; /* EINVAL: folders need none there */
    *sys = errno;
    return false;
}

bool cf_folder_sync(int dir, int *sys)
{
    return sync_tree(dir, MOST_LEVELS, sys);
}
