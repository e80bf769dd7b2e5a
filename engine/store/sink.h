/* Output: whole or not at all.
 *
 * Bytes go to OUT.ckptflow-partial/ beside OUT, which is locked (flock) while it is written and
 * renamed to OUT when all is done. Nothing else ever appears beside OUT. What a run left that died
 * or was stopped stays in the folder until the next one has looked at it: it is kept
 * (cf_sink_keep) or emptied (cf_sink_empty).
 */
#ifndef CF_SINK_H
#define CF_SINK_H

#include "err.h"

/* Names in OUT that no plan may write. The journal is there only while OUT is partial. */
#define CF_MANIFEST_NAME "ckptflow-manifest.json"
#define CF_JOURNAL_NAME  ".ckptflow-journal"
bool cf_sink_reserved(const char *path);

typedef struct cf_sink {
    char *out, *partial; /* absolute paths, heap */
    int parent;          /* descriptor of the folder that holds both */
    int dir;             /* of the partial folder, locked */
    bool overwrite;
    bool kept; /* there are files of a run before */
} cf_sink;

/* E_EXISTS if OUT is there and !overwrite; E_IO if the parent folder is missing or read-only;
 * the check that runs before anything is planned. */
bool cf_sink_check(const char *out, bool overwrite, cf_err *err);
/* Makes and locks the partial folder, or takes over a dead run's, as it is. E_BUSY, E_EXISTS, E_IO.
 */
bool cf_sink_begin(cf_sink *sink, const char *out, bool overwrite, cf_err *err);
/* Removes all that is in the partial folder. */
bool cf_sink_empty(cf_sink *sink, cf_err *err);
/* Goes on with what is in it: removes what `planned` does not name (and the journal stays), and
 * tells the bytes on disk of what it keeps. From now on cf_sink_create opens a file that is there
 * and has the size, with what is in it. */
bool cf_sink_keep(cf_sink *sink, bool planned(const void *ctx, const char *path), const void *ctx,
                  uint64_t *held, cf_err *err);
/* A new file of the output with its folders, of its final size, preallocated where the file system
 * can: E_SPACE now rather than later. path: relative, already validated, but checked again. */
bool cf_sink_create(cf_sink *sink, const char *path, uint64_t size, int *fd, cf_err *err);
/* A file without a name in the partial folder: it is gone when it is closed. */
bool cf_sink_scratch(cf_sink *sink, uint64_t size, int *fd, cf_err *err);
/* The same in $TMPDIR, else /var/tmp or /tmp: for work that has no output. */
bool cf_temporary(int *fd, cf_err *err);
/* The journal goes, then the rename (RENAME_NOREPLACE; with overwrite the old OUT is replaced and
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
