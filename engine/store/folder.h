/* Folder trees as a whole: emptied, synced. Links are never followed, depth is bounded. */
#ifndef CF_FOLDER_H
#define CF_FOLDER_H

#include <dirent.h>

#include <stdint.h>

#include "err.h"

/* A sub-folder for reading; -1 with errno if it is none (a link is none). */
int cf_folder_open(int parent, const char *name);
/* The entries of an open folder, from the first one; NULL with errno. The descriptor stays open. */
DIR *cf_folder_read(int dir);
/* The next entry that is not "." or ".."; NULL at the end. */
const char *cf_folder_next(DIR *entries);

/* Removes a file, link or folder with all that is in it; none there is fine. False with errno in
 * *sys. */
bool cf_folder_remove(int parent, const char *name, int *sys);
/* Removes what is in an open folder. */
bool cf_folder_empty(int dir, int *sys);
/* Removes every file below an open folder that `keep` does not want (path: relative to it), and
 * folders that are left empty; *held grows by the bytes on disk of what is kept. */
bool cf_folder_prune(int dir, bool keep(const void *ctx, const char *path), const void *ctx,
                     uint64_t *held, int *sys);
/* fsync of a folder and of all folders below. */
bool cf_folder_sync(int dir, int *sys);

#endif
