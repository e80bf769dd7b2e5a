/* The listing of a checkpoint's folders.
 *
 * Everything is looked at through the descriptor of the folder above it (openat, fstatat), so that
 * a path is never resolved twice in two ways. What is listed is a hint: a file is looked at again
 * when it is opened (beneath.c) and refused if it is not the one that was listed. A folder that
 * cannot be read is left out here; a format that needs its files names them as missing.
 */
#include "dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "packed.h"
#include "pattern.h"

enum { MOST_FILES = 1000000, MOST_LEVELS = 64 };

/* A folder that was entered, or a link to one: told by what it is, not by its name. */
typedef struct subfolder {
    const char *path;
    uint64_t device, inode;
} subfolder;

typedef struct folders {
    subfolder *items;
    size_t count, cap;
} folders;

typedef struct walk {
    cf_dir *dir;
    cf_arena *arena;
    size_t cap;
    uint32_t root;
    folders entered, linked;
    cf_err *err;
} walk;

cf_dir_file cf_dir_file_of(const char *path, uint32_t root, const struct stat *st)
{
    /* unsigned: a time far away may wrap, it is only compared */
    const uint64_t ns = (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
    return (cf_dir_file){.path = path,
                         .stored = path,
                         .root = root,
                         .size = (uint64_t)st->st_size,
                         .device = (uint64_t)st->st_dev,
                         .inode = (uint64_t)st->st_ino,
                         .mtime_ns = (int64_t)ns};
}

static bool add(walk *w, const char *path, const struct stat *st)
{
    cf_dir *dir = w->dir;
    if (dir->count == MOST_FILES)
        return cf_fail(w->err, CF_E_LIMIT, "more than %d files", MOST_FILES);
    size_t count = dir->count;
    const char *copy = cf_strndup(w->arena, path, strlen(path));
    cf_dir_file *file = copy ? CF_PUSH(w->arena, dir->files, count, w->cap) : NULL;
    if (!file) return cf_arena_ok(w->arena, w->err);
    *file = cf_dir_file_of(copy, w->root, st);
    dir->count = (uint32_t)count;
    size_t stem;
    file->packed = cf_packed_find(file->device, file->inode, file->size, file->mtime_ns);
    if (!file->packed || !cf_packed_suffix(path, &stem)) return true;
    file->path = cf_strndup(w->arena, path, stem);
    file->size = file->packed->unpacked;
    return file->path ? true : cf_arena_ok(w->arena, w->err);
}

static bool add_folder(walk *w, folders *list, const char *path, const struct stat *st)
{
    if (list->count == MOST_FILES)
        return cf_fail(w->err, CF_E_LIMIT, "more than %d folders", MOST_FILES);
    const char *copy = cf_strndup(w->arena, path, strlen(path));
    subfolder *item = copy ? CF_PUSH(w->arena, list->items, list->count, list->cap) : NULL;
    if (!item) return cf_arena_ok(w->arena, w->err);
    *item = (subfolder){copy, (uint64_t)st->st_dev, (uint64_t)st->st_ino};
    return true;
}

/* What cannot be listed may hold a part of the checkpoint: left out, it would be a shorter one. */
static bool unreadable(walk *w, const char *path, int sys)
{
    cf_err_set(w->err, CF_E_IO, "cannot list the folder: %s", strerror(sys));
    w->err->sys = sys;
    return cf_err_in_file(w->err, path);
}

/* path: the folder's, with "/" behind it, or ""; the names in it are added in place. */
static bool list_folder(walk *w, int folder, char *path, size_t length, int levels)
{
    struct stat own;
    DIR *entries = fstat(folder, &own) == 0 ? cf_folder_read(folder) : NULL;
    if (!entries) return unreadable(w, path, errno);
    bool ok = add_folder(w, &w->entered, path, &own);
    const char *name;
    while (ok && (name = cf_folder_next(entries))) {
        const size_t n = strlen(name);
        struct stat st;
        if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) continue; /* it went meanwhile */
            ok = unreadable(w, path, errno);
            break;
        }
        const bool is_folder = S_ISDIR(st.st_mode);
        if (is_folder && levels == 1)
            ok = cf_fail(w->err, CF_E_LIMIT, "folders are nested over %d deep", MOST_LEVELS);
        else if (length + n + 2 > PATH_MAX)
            ok = cf_fail(w->err, CF_E_LIMIT, "a path is longer than %d bytes", PATH_MAX - 2);
        if (!ok) break;
        memcpy(path + length, name, n + 1);
        if (is_folder) {
            const int sub = cf_folder_open(folder, name);
            if (sub < 0) {
                ok = errno == ENOENT || unreadable(w, path, errno);
                continue;
            }
            memcpy(path + length + n, "/", 2);
            ok = list_folder(w, sub, path, length + n + 1, levels - 1);
            close(sub);
            continue;
        }
        struct stat to;
        /* a link that dangles or leads to what is no file stays one, and says so when it is opened
         */
        if (S_ISLNK(st.st_mode) && fstatat(folder, name, &to, 0) == 0 &&
            (S_ISREG(to.st_mode) || S_ISDIR(to.st_mode)))
            st = to;
        if (S_ISDIR(st.st_mode)) ok = add_folder(w, &w->linked, path, &st);
        if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) ok = add(w, path, &st);
    }
    if (ok && !name && errno) ok = unreadable(w, path, errno);
    closedir(entries);
    return ok;
}

static bool list_root(walk *w, const char *root)
{
    struct stat st;
    if (stat(root, &st) != 0) return cf_fail_sys(w->err, errno, "cannot read the checkpoint");
    if (S_ISREG(st.st_mode)) {
        const char *slash = strrchr(root, '/');
        return add(w, slash ? slash + 1 : root, &st);
    }
    if (!S_ISDIR(st.st_mode))
        return cf_fail(w->err, CF_E_NOT_REGULAR, "neither a folder nor a regular file");
    const int folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return cf_fail_sys(w->err, errno, "cannot read the folder");
    char path[PATH_MAX] = "";
    const bool ok = list_folder(w, folder, path, 0, MOST_LEVELS);
    close(folder);
    return ok;
}

static int by_path(const void *a, const void *b)
{
    const cf_dir_file *x = a, *y = b;
    const int order = cf_natural_compare(x->path, y->path);
    return order ? order : x->root < y->root ? -1 : x->root > y->root;
}

static int by_identity(const void *a, const void *b)
{
    const subfolder *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static int by_link(const void *a, const void *b)
{
    return cf_natural_compare(((const cf_dir_link *)a)->path, ((const cf_dir_link *)b)->path);
}

/* Which of the links to folders lead to one that was entered. */
static bool resolve_links(walk *w)
{
    cf_dir *dir = w->dir;
    if (!w->linked.count) return true;
    qsort(w->entered.items, w->entered.count, sizeof(subfolder), by_identity);
    dir->links = CF_NEWS(w->arena, cf_dir_link, w->linked.count);
    if (!dir->links) return cf_arena_ok(w->arena, w->err);
    for (size_t i = 0; i < w->linked.count; i++) {
        const subfolder *link = &w->linked.items[i];
        const subfolder *to =
            bsearch(link, w->entered.items, w->entered.count, sizeof(subfolder), by_identity);
        if (to) dir->links[dir->n_links++] = (cf_dir_link){link->path, to->path};
    }
    qsort(dir->links, dir->n_links, sizeof *dir->links, by_link);
    return true;
}

bool cf_dir_list(cf_dir *dir, const char *const *roots, int n_roots, cf_arena *arena, cf_err *err)
{
    *dir = (cf_dir){.roots = roots, .n_roots = n_roots};
    cf_map_init(&dir->paths, arena);
    walk w = {.dir = dir, .arena = arena, .err = err};
    for (; w.root < (uint32_t)n_roots; w.root++)
        if (!list_root(&w, roots[w.root])) return cf_err_in_file(err, roots[w.root]);
    CF_TRY(resolve_links(&w));

    if (dir->count) qsort(dir->files, dir->count, sizeof *dir->files, by_path);
    for (uint32_t i = 0; i < dir->count; i++) {
        const char *path = dir->files[i].path;
        bool fresh;
        uint64_t *at = cf_map_put(&dir->paths, path, strlen(path), &fresh);
        if (!at) return cf_arena_ok(arena, err);
        if (fresh) *at = i;
        dir->files[i].twin = !fresh;
    }
    return true;
}

bool cf_dir_find(const cf_dir *dir, const char *path, uint32_t *file)
{
    uint64_t number;
    if (!cf_map_get(&dir->paths, path, strlen(path), &number)) return false;
    *file = (uint32_t)number;
    return true;
}

bool cf_dir_twin(const cf_dir *dir, uint32_t file, uint32_t *next)
{
    if (file + 1 >= dir->count || !dir->files[file + 1].twin) return false;
    *next = file + 1;
    return true;
}

bool cf_dir_find_in(const cf_dir *dir, const char *path, uint32_t root, uint32_t *file)
{
    uint32_t at;
    for (bool more = cf_dir_find(dir, path, &at); more; more = cf_dir_twin(dir, at, &at)) {
        *file = at;
        if (dir->files[at].root == root) return true;
    }
    return false;
}

bool cf_dir_open(const cf_dir *dir, uint32_t file, int *fd, cf_err *err)
{
    const cf_dir_file *was = &dir->files[file];
    cf_dir_file is;
    int got;
    if (was->packed) return cf_packed_open(was->packed, fd, err);
    CF_TRY(cf_beneath_open(dir->roots[was->root], was->path, &got, &is, err));
    if (is.device == was->device && is.inode == was->inode && is.size == was->size &&
        is.mtime_ns == was->mtime_ns) {
        *fd = got;
        return true;
    }
    close(got);
    cf_fail(err, CF_E_IO, "the file has changed since the checkpoint was opened");
    return cf_err_in_file(err, was->path);
}
