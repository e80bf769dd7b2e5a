/* Output: whole or not at all.
 *
 * Bytes go to OUT.ckptflow-partial/ beside OUT, which is locked (flock) while it is written and
 * renamed to OUT when all is done. Nothing else ever appears beside OUT. What a run left that died
 * or was stopped stays in the folder until the next one has looked at it: it is kept
 * (cf_sink_keep) or emptied (cf_sink_empty).
 *
 * Several processes may fill one folder together, each its share (cf_sink_join): they hold the
 * folder's lock, and that of a file in it, as readers. Whoever finds that all is written takes the
 * file's lock alone (cf_sink_alone) and commits. The file is there because network file systems
 * lock files between nodes, and folders within one.
 */
#ifndef CF_SINK_H
#define CF_SINK_H

#include "err.h"

/* Names in OUT that no plan may write. What has the prefix is there only while OUT is partial. */
#define CF_MANIFEST_NAME "ckptflow-manifest.json"
#define CF_OWN_PREFIX    ".ckptflow-"
#define CF_JOURNAL_NAME  CF_OWN_PREFIX "journal"
bool cf_sink_reserved(const char *path);

typedef struct cf_sink {
    char *out, *partial; /* absolute paths, heap */
    int parent;          /* descriptor of the folder that holds both */
    int dir;             /* of the partial folder, locked */
    int guard;           /* of the lock file; -1: there is none */
    bool overwrite;
    bool kept;   /* there are files of a run before */
    bool shared; /* others may be writing into the same folder */
} cf_sink;

/* E_EXISTS if OUT is there and !overwrite; E_IO if the parent folder is missing or read-only;
 * the check that runs before anything is planned. */
bool cf_sink_check(const char *out, bool overwrite, cf_err *err);
/* Makes and locks the partial folder, or takes over a dead run's, as it is. E_BUSY, E_EXISTS, E_IO.
 */
bool cf_sink_begin(cf_sink *sink, const char *out, bool overwrite, cf_err *err);
/* The same for one of several processes: makes the folder or joins those that are at it. E_BUSY
 * while a run is there that is not divided, or while the output is being finished. */
bool cf_sink_join(cf_sink *sink, const char *out, bool overwrite, cf_err *err);
/* This process writes no more: others may find themselves alone. */
void cf_sink_rest(cf_sink *sink);
/* Is the folder no more what it was, as another process has finished or removed it? */
bool cf_sink_gone(const cf_sink *sink);
/* Is nobody else at work in the folder, and is it still there? Then nobody can come, until the sink
 * is committed, discarded or left. */
bool cf_sink_alone(cf_sink *sink);
/* Is there a file of just this size? */
bool cf_sink_holds(const cf_sink *sink, const char *path, uint64_t size);
/* Bytes on disk of a file of the partial folder; 0 if there is none. */
uint64_t cf_sink_held(const cf_sink *sink, const char *path);
/* Removes all that is in the partial folder. */
bool cf_sink_empty(cf_sink *sink, cf_err *err);
/* Goes on with what is in it: removes what `planned` does not name (and the journal stays), and
 * tells the bytes on disk of what it keeps. From now on cf_sink_create opens a file that is there
 * and has the size, with what is in it. */
bool cf_sink_keep(cf_sink *sink, bool planned(const void *ctx, const char *path), const void *ctx,
                  uint64_t *held, cf_err *err);
/* A new file of the output with its folders, of its final size, preallocated where the file system
 * can: E_SPACE now rather than later. path: relative, already validated, but checked again. In a
 * folder that is shared another may have made it, or be making it. */
bool cf_sink_create(cf_sink *sink, const char *path, uint64_t size, int *fd, cf_err *err);
/* A file without a name in the partial folder: it is gone when it is closed. */
bool cf_sink_scratch(cf_sink *sink, uint64_t size, int *fd, cf_err *err);
/* The same in $TMPDIR, else /var/tmp or /tmp: for work that has no output. */
bool cf_temporary(int *fd, cf_err *err);
/* The journals go, then the rename (RENAME_NOREPLACE; with overwrite the old OUT is replaced and
 * then removed). fsync: files were synced by the caller; folders and parent are synced here. */
bool cf_sink_commit(cf_sink *sink, bool fsync, cf_err *err);
/* Removes the partial folder. Safe after a failure at any point, and after commit (then it only
 * closes). */
void cf_sink_discard(cf_sink *sink);
/* Leaves the partial folder as it is, for a run that goes on. */
void cf_sink_leave(cf_sink *sink);

/* Bytes that the file system of a folder (or of the nearest parent that exists) has free for us. */
bool cf_free_space(const char *path, uint64_t *bytes, cf_err *err);

#endif
