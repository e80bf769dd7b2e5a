#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "journal_lines.h"

/* Names: of the undivided run, of a share under way, of one that is done. */
#define UNDER_WAY CF_JOURNAL_NAME "-"
#define DONE      CF_OWN_PREFIX "share-"

enum { NAME = 64 };

static void name_of(char name[NAME], cf_share share, bool done)
{
    snprintf(name, NAME, "%s%u-of-%u", done ? DONE : UNDER_WAY, share.rank, share.of);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int open_named(const cf_sink *sink, const char *name, int flags)
{
    return openat(sink->dir, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags,
                  0666);
}

static bool append(cf_journal *j, const cf_text *line, cf_err *err)
{
    if (!cf_text_ok(line, err)) return false;
    pthread_mutex_lock(&j->lock);
    ssize_t n;
    size_t at = 0;
    do {
        n = write(j->fd, line->at + at, line->size - at);
        if (n > 0) at += (size_t)n;
    } while ((n < 0 && errno == EINTR) || (n > 0 && at < line->size));
    const int sys = errno;
    pthread_mutex_unlock(&j->lock);
    return at == line->size || cf_fail_sys(err, sys, "cannot write the journal");
}

static bool write_head(cf_journal *j, cf_err *err)
{
    cf_text head = {0};
    cf_text_add(&head, j->head.at, j->head.size);
    cf_line_share(&head, j->share);
    const bool ok = append(j, &head, err);
    cf_text_free(&head);
    return ok;
}

static void start(cf_journal *j)
{
    cf_arena_init(&j->arena, 0);
    cf_map_init(&j->windows, &j->arena);
    j->entries = NULL;
    j->count = j->cap = 0;
    j->items.count = 0;
    j->finished = 0;
}

static bool init(cf_journal *j, const cf_block *b, cf_share share, cf_err *err)
{
    *j = (cf_journal){.fd = -1, .share = share};
    pthread_mutex_init(&j->lock, NULL);
    start(j);
    cf_line_head(&j->head, b);
    return cf_text_ok(&j->head, err);
}

void cf_journal_close(cf_journal *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
    pthread_mutex_destroy(&j->lock);
    free(j->items.items);
    cf_text_free(&j->head);
    cf_arena_free(&j->arena);
}

/* ---- an undivided run --------------------------------------------------------------------------
 */

/* The paths of the block's files, for cf_sink_keep. */
static bool is_planned(const void *ctx, const char *path)
{
    uint64_t file;
    return (starts(path, CF_OWN_PREFIX) && !strchr(path, '/')) ||
           strcmp(path, CF_MANIFEST_NAME) == 0 || cf_map_get(ctx, path, strlen(path), &file);
}

static bool keep(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    cf_map paths;
    cf_map_init(&paths, &j->arena);
    for (uint64_t i = 0; i < b->n_files; i++) {
        bool fresh;
        cf_map_put(&paths, cf_block_text(b, b->files[i].path), b->files[i].path.size, &fresh);
    }
    return cf_arena_ok(&j->arena, err) && cf_sink_keep(sink, is_planned, &paths, &j->held, err);
}

/* Another's journal, read: its windows are taken over where they are of this plan. */
static cf_journal_state read_other(cf_journal *j, const cf_sink *sink, const cf_block *b,
                                   const char *name, cf_share *share)
{
    uint64_t good;
    const int fd = open_named(sink, name, 0);
    *share = (cf_share){0, 0};
    if (fd < 0) return CF_JOURNAL_NEW;
    const cf_journal_state state = cf_journal_read(j, b, fd, false, share, &good);
    close(fd);
    return state;
}

/* Journals of shares that were stopped: an undivided run goes on with them too. */
static bool read_shares(cf_journal *j, const cf_sink *sink, const cf_block *b, cf_err *err)
{
    DIR *entries = cf_folder_read(sink->dir);
    if (!entries) return cf_fail_sys(err, errno, "cannot look into the partial folder");
    for (const char *name; (name = cf_folder_next(entries));) {
        cf_share share;
        if (!starts(name, UNDER_WAY) && !starts(name, DONE)) continue;
        const cf_journal_state state = read_other(j, sink, b, name, &share);
        if (j->state == CF_JOURNAL_NEW || state == CF_JOURNAL_RESUMED) j->state = state;
    }
    closedir(entries);
    return true;
}

static bool begin(cf_journal *j, cf_sink *sink, cf_err *err)
{
    if (j->fd >= 0) close(j->fd);
    cf_arena_free(&j->arena); /* what was read of a journal that is not to be used */
    start(j);
    if (!cf_sink_empty(sink, err)) return false;
    j->fd = open_named(sink, CF_JOURNAL_NAME, O_CREAT | O_EXCL);
    if (j->fd < 0) return cf_fail_sys(err, errno, "cannot make the journal");
    return write_head(j, err);
}

/* What is behind the last good line is cut off. */
static cf_journal_state read_own(cf_journal *j, const cf_block *b)
{
    cf_share share;
    uint64_t good;
    const cf_journal_state state = cf_journal_read(j, b, j->fd, true, &share, &good);
    if (state == CF_JOURNAL_RESUMED && ftruncate(j->fd, (off_t)good) != 0)
        return CF_JOURNAL_VERSION;
    return state;
}

static bool open_undivided(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    if (!read_shares(j, sink, b, err)) return false;
    const bool shares = j->state == CF_JOURNAL_RESUMED;
    j->fd = open_named(sink, CF_JOURNAL_NAME, shares ? O_CREAT : 0);
    const cf_journal_state own = j->fd >= 0 ? read_own(j, b) : CF_JOURNAL_NEW;
    if (own != CF_JOURNAL_NEW) j->state = own;
    if (j->state != CF_JOURNAL_RESUMED) return begin(j, sink, err);
    if (own == CF_JOURNAL_NEW && (ftruncate(j->fd, 0) != 0 || !write_head(j, err)))
        return cf_fail_sys(err, errno, "cannot write the journal");
    return keep(j, sink, b, err);
}

bool cf_journal_open(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    const bool ok = init(j, b, (cf_share){0, 0}, err) && open_undivided(j, sink, b, err) &&
                    (flock(j->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK ||
                     cf_fail(err, CF_E_BUSY, "another run writes the journal"));
    if (!ok) cf_journal_close(j);
    return ok;
}

/* ---- shares ------------------------------------------------------------------------------------
 */

/* What is in the folder must be of this plan and of this division. */
static bool fits(const cf_journal *j, const char *name, cf_journal_state state, cf_share share,
                 cf_err *err)
{
    char who[NAME] = "the run that was stopped";
    if (share.of) snprintf(who, sizeof who, "--rank %u/%u", share.rank, share.of);
    switch (state) {
    case CF_JOURNAL_INPUTS:
        cf_fail(err, CF_E_BUSY, "the checkpoint is not what it was for %s", who);
        break;
    case CF_JOURNAL_PLAN:
        cf_fail(err, CF_E_BUSY, "the options or scripts are not those of %s", who);
        break;
    case CF_JOURNAL_VERSION:
        cf_fail(err, CF_E_BUSY, "%s is there, which this version cannot use", name);
        break;
    default:
        if (!share.of || share.of == j->share.of) return true;
        cf_fail(err, CF_E_BUSY, "this is a share of %u, %s is there already", j->share.of, who);
    }
    return cf_err_hint(err, "all shares need the same command but for R; "
                            "to begin anew, remove the folder when none is running");
}

/* An undivided run that is alive on another node holds its journal. */
static bool dead(const cf_sink *sink, cf_err *err)
{
    const int fd = open_named(sink, CF_JOURNAL_NAME, 0);
    if (fd < 0) return true;
    const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    close(fd);
    return free || cf_fail(err, CF_E_BUSY, "a run that is not divided writes it");
}

/* Files that a share which is done wrote into: they are not made anew when they are gone. */
static bool still_there(const cf_journal *j, size_t from, const cf_sink *sink, const cf_block *b,
                        cf_err *err)
{
    for (size_t i = from; i < j->count; i++) {
        const cf_b_file *f = &b->files[j->entries[i].file];
        const char *path = cf_block_text(b, f->path);
        if (cf_sink_holds(sink, path, f->size)) continue;
        cf_fail(err, CF_E_IO, "%s: a share that is done wrote it, and it is not there", path);
        return cf_err_hint(err, "remove the folder and begin anew");
    }
    return true;
}

static bool read_others(cf_journal *j, const cf_sink *sink, const cf_block *b, cf_err *err)
{
    DIR *entries = cf_folder_read(sink->dir);
    if (!entries) return cf_fail_sys(err, errno, "cannot look into the partial folder");
    bool ok = true;
    char own[NAME];
    name_of(own, j->share, false);
    for (const char *name; ok && (name = cf_folder_next(entries));) {
        cf_share share;
        if (!starts(name, CF_JOURNAL_NAME) && !starts(name, DONE)) continue;
        if (strcmp(name, own) == 0) continue;
        const size_t from = j->count;
        const cf_journal_state state = read_other(j, sink, b, name, &share);
        ok = fits(j, name, state, share, err) &&
             (!starts(name, DONE) || still_there(j, from, sink, b, err));
    }
    closedir(entries);
    return ok;
}

static bool open_share(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    char name[NAME], done[NAME];
    name_of(name, j->share, false);
    name_of(done, j->share, true);
    if (!read_others(j, sink, b, err) || !dead(sink, err)) return false;
    j->done = faccessat(sink->dir, done, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (j->done) return true;
    j->fd = open_named(sink, name, O_CREAT);
    if (j->fd < 0) return cf_fail_sys(err, errno, "cannot make the journal");
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return cf_fail(err, CF_E_BUSY, "--rank %u/%u is under way already", j->share.rank,
                       j->share.of);
    j->done = faccessat(sink->dir, done, F_OK, AT_SYMLINK_NOFOLLOW) == 0; /* just now */
    if (j->done) return true;
    j->state = read_own(j, b);
    if (j->state != CF_JOURNAL_NEW && !fits(j, name, j->state, j->share, err)) return false;
    for (uint64_t i = 0; i < b->n_files; i++)
        j->held += cf_sink_held(sink, cf_block_text(b, b->files[i].path));
    return j->state == CF_JOURNAL_RESUMED || (ftruncate(j->fd, 0) == 0 && write_head(j, err)) ||
           cf_fail_sys(err, errno, "cannot write the journal");
}

bool cf_journal_join(cf_journal *j, cf_sink *sink, const cf_block *b, cf_share share, cf_err *err)
{
    if (init(j, b, share, err) && open_share(j, sink, b, err)) return true;
    cf_journal_close(j);
    return cf_err_in_file(err, strrchr(sink->partial, '/') + 1);
}

bool cf_journal_finish(cf_journal *j, cf_sink *sink, cf_err *err)
{
    char name[NAME], done[NAME];
    int sys;
    name_of(name, j->share, false);
    name_of(done, j->share, true);
    if (fdatasync(j->fd) != 0) return cf_fail_sys(err, errno, "cannot finish the journal");
    if (!cf_folder_sync(sink->dir, &sys)) return cf_fail_sys(err, sys, "cannot sync the folder");
    if (renameat(sink->dir, name, sink->dir, done) != 0)
        return cf_fail_sys(err, errno, "cannot finish the journal");
    j->done = true;
    return fsync(sink->dir) == 0 || errno == EINVAL ||
           cf_fail_sys(err, errno, "cannot sync the folder");
}

bool cf_journal_collect(cf_journal *j, cf_sink *sink, const cf_block *b, cf_share share,
                        bool *missing, cf_err *err)
{
    if (!init(j, b, share, err)) return false;
    for (uint32_t i = 0; i < share.of; i++) {
        cf_share said;
        char name[NAME];
        name_of(name, (cf_share){i, share.of}, true);
        missing[i] = read_other(j, sink, b, name, &said) != CF_JOURNAL_RESUMED || said.rank != i ||
                     said.of != share.of;
    }
    return cf_arena_ok(&j->arena, err);
}

bool cf_journal_clear(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    return keep(j, sink, b, err);
}

bool cf_journal_only(const cf_journal *j, const cf_sink *sink)
{
    char own[NAME];
    DIR *entries = cf_folder_read(sink->dir);
    if (!entries) return false;
    bool only = true;
    name_of(own, j->share, false);
    for (const char *name; only && (name = cf_folder_next(entries));)
        only = (!starts(name, CF_JOURNAL_NAME) && !starts(name, DONE)) || strcmp(name, own) == 0;
    closedir(entries);
    return only;
}

/* ---- windows -----------------------------------------------------------------------------------
 */

const cf_journaled *cf_journal_find(const cf_journal *j, const cf_window *w)
{
    uint64_t number;
    return cf_map_get(&j->windows, w, CF_WINDOW_KEY, &number) ? &j->entries[number] : NULL;
}

bool cf_journal_add(cf_journal *j, const cf_window *w, uint32_t crc, const cf_stretches *checked,
                    const cf_stretches *parts, cf_err *err)
{
    cf_text line = {0};
    cf_line_window(&line, w, crc, checked, j->share.of ? parts : NULL);
    const bool ok = append(j, &line, err);
    cf_text_free(&line);
    if (ok) j->finished++;
    return ok;
}

bool cf_journal_items(cf_journal *j, const cf_stretches *items, cf_err *err)
{
    cf_text line = {0};
    cf_line_items(&line, items);
    const bool ok = append(j, &line, err);
    cf_text_free(&line);
    return ok;
}

const char *cf_journal_afresh(const cf_journal *j)
{
    switch (j->state) {
    case CF_JOURNAL_INPUTS: return "the checkpoint is not the one of the run that was stopped";
    case CF_JOURNAL_PLAN: return "its options or scripts are not those of the run that was stopped";
    case CF_JOURNAL_VERSION: return "what the run that was stopped left cannot be used";
    default: return NULL;
    }
}
