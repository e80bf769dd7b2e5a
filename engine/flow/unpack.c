/* A bomb is refused: content may be MOST_RATIO times the file (gzip's own limit is 1032; weights
 * seldom reach 2), small files whatever they like. zstd can do more with zeros alone: who has such
 * a file unpacks it by hand. */
#include "unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dir.h"
#include "gzip.h"
#include "item.h"
#include "packed.h"
#include "pool.h"
#include "records.h"

enum { MOST_RATIO = 1200, ALWAYS = 64 << 20 };

typedef struct unpacking {
    const cf_dir *dir;
    uint32_t *files; /* numbers in the listing */
    cf_packed *list; /* one each */
    size_t count;
    const char *folder;
    const volatile sig_atomic_t *stop;
} unpacking;

typedef struct writing {
    int fd;
    uint64_t size;
    const volatile sig_atomic_t *stop;
} writing;

static bool take(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    writing *w = ctx;
    if (w->stop && *w->stop)
        return cf_fail(err, CF_E_INTERRUPTED, "stopped by signal %d", (int)*w->stop);
    CF_TRY(cf_write_all(w->fd, bytes, size, w->size, err));
    w->size += size;
    return true;
}

/* A file without a name. */
static bool scratch(const char *folder, int *fd, cf_err *err)
{
    *fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd >= 0) return true;
    char name[4096]; /* no O_TMPFILE there: a name, for a moment */
    const int n = snprintf(name, sizeof name, "%s/.ckptflow-scratch-XXXXXX", folder);
    *fd = n < (int)sizeof name ? mkostemp(name, O_CLOEXEC) : -1;
    if (*fd < 0) return cf_fail_sys(err, errno, "cannot make a scratch file in %s", folder);
    unlink(name);
    return true;
}

static bool unpack(const unpacking *u, uint32_t file, cf_packed *p, writing *w, cf_err *err)
{
    const cf_dir_file *f = &u->dir->files[file];
    int fd;
    CF_TRY(cf_dir_open(u->dir, file, &fd, err));
    const uint64_t most = f->size > ALWAYS / MOST_RATIO ? f->size * MOST_RATIO : ALWAYS;
    const cf_span span = cf_span_of_file(fd, f->size);
    uint8_t magic[4] = {0};
    bool ok = f->size ? cf_span_read(&span, 0, magic, f->size < 4 ? f->size : 4, err)
                      : cf_fail(err, CF_E_TRUNCATED, "an empty file");
    const bool gzip = magic[0] == 0x1f && magic[1] == 0x8b;
    const bool zstd = (memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0) ||
                      (memcmp(magic + 1, "\x2a\x4d\x18", 3) == 0 && (magic[0] & 0xf0) == 0x50);
    if (ok && (p->packing == CF_GZIP ? !gzip : !zstd))
        ok = cf_fail(err, CF_E_MAGIC, "no %s file", p->packing == CF_GZIP ? "gzip" : "zstd");
    else if (ok && p->packing == CF_GZIP)
        ok = cf_gzip_unpack(&span, most, take, w, err);
    else if (ok)
        ok = cf_item_unpack(&span, most, take, w, err);
    close(fd);
    if (!ok && err->code == CF_E_LIMIT)
        cf_err_set_hint(err, "%d times its own size; if that is right, unpack it by hand",
                        MOST_RATIO);
    return ok;
}

static bool job(void *ctx, uint64_t number, int thread, cf_err *err)
{
    (void)thread;
    const unpacking *u = ctx;
    cf_packed *p = &u->list[number];
    const uint32_t file = u->files[number];
    writing w = {.stop = u->stop};
    CF_TRY(scratch(u->folder, &w.fd, err));
    if (unpack(u, file, p, &w, &p->err)) {
        p->fd = w.fd;
        p->unpacked = w.size;
        return true;
    }
    close(w.fd);
    cf_err_in_file(&p->err, u->dir->files[file].path);
    if (p->err.code != CF_E_INTERRUPTED && p->err.code != CF_E_SPACE && p->err.code != CF_E_MEMORY)
        return true;
    *err = p->err;
    if (err->code == CF_E_SPACE)
        cf_err_set_hint(err, "it is unpacked to a file without a name in %s", u->folder);
    return false;
}

/* What is compressed, with no plain file of that name in the same folder. */
static bool collect(unpacking *u, cf_arena *arena, cf_err *err)
{
    const cf_dir *dir = u->dir;
    u->files = CF_NEWS(arena, uint32_t, dir->count + 1u);
    for (uint32_t i = 0; u->files && i < dir->count; i++) {
        const char *path = dir->files[i].path;
        size_t stem;
        uint32_t plain;
        if (!cf_packed_suffix(path, &stem)) continue;
        const char *name = cf_strndup(arena, path, stem);
        if (name && !cf_dir_find_in(dir, name, dir->files[i].root, &plain))
            u->files[u->count++] = i;
    }
    return cf_arena_ok(arena, err);
}

static bool unpack_all(unpacking *u, int threads, cf_err *err)
{
    u->list = calloc(u->count, sizeof *u->list); /* for the life of the process */
    if (!u->list) return cf_fail(err, CF_E_MEMORY, "out of memory");
    for (size_t i = 0; i < u->count; i++) {
        const cf_dir_file *f = &u->dir->files[u->files[i]];
        size_t stem;
        u->list[i] = (cf_packed){.device = f->device,
                                 .inode = f->inode,
                                 .size = f->size,
                                 .mtime_ns = f->mtime_ns,
                                 .packing = cf_packed_suffix(f->path, &stem),
                                 .fd = -1};
    }
    cf_packed_set(u->list, u->count);
    return cf_pool_run(threads, u->count, job, u, err);
}

bool cf_unpack(const char *const *paths, int n_paths, const char *folder, int threads,
               const volatile sig_atomic_t *stop, cf_err *err)
{
    cf_arena arena;
    cf_dir dir;
    cf_err none;
    cf_arena_init(&arena, 0);
    const char **there = CF_NEWS(&arena, const char *, (size_t)n_paths + 1);
    int n = 0;
    struct stat st;
    for (int i = 0; there && i < n_paths; i++)
        if (stat(paths[i], &st) == 0) there[n++] = paths[i];
    unpacking u = {.dir = &dir, .folder = folder, .stop = stop};
    /* what cannot be listed is told when the checkpoint is opened */
    bool ok = true;
    if (n && cf_dir_list(&dir, there, n, &arena, &none))
        ok = collect(&u, &arena, err) && (!u.count || unpack_all(&u, threads, err));
    cf_arena_free(&arena);
    return ok;
}
