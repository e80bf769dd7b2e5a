/* The files of a checkpoint: one or several folders seen as one.
 *
 * A root is a folder, or one file (then a folder that holds it alone). Paths are relative to their
 * root, with "/". The listing is made once; a file is opened beneath its root (openat2,
 * RESOLVE_BENEATH: no link and no ".." leads out, E_PATH; but see hub.h), must be regular
 * (E_NOT_REGULAR) and the same as when it was listed.
 *
 * The same path in several roots is several files, one behind the other in the order of the roots:
 * a path names the first, the others are its twins. What is compressed as a whole and was unpacked
 * (packed.h) is listed with its content's size, without the suffix.
 */
#ifndef CF_DIR_H
#define CF_DIR_H

#include "arena.h"
#include "map.h"

typedef struct cf_dir_file {
    const char *path;
    const char *stored;             /* the same, with the suffix where it is packed */
    const struct cf_packed *packed; /* NULL: as it is */
    uint32_t root;
    bool twin; /* an earlier root has the path too */
    uint64_t size, device, inode;
    int64_t mtime_ns;
} cf_dir_file;

struct stat;
cf_dir_file cf_dir_file_of(const char *path, uint32_t root, const struct stat *st);

/* A link to a folder that was listed too; `to` is that folder's path with "/" behind it, "" for the
 * root's own. */
typedef struct cf_dir_link {
    const char *path, *to;
} cf_dir_link;

typedef struct cf_dir {
    const char *const *roots; /* as the user wrote them; borrowed */
    int n_roots;
    cf_dir_file *files; /* in natural order of path */
    uint32_t count;
    cf_map paths;
    cf_dir_link *links; /* in natural order of path */
    size_t n_links;
} cf_dir;

/* Lists the roots, sub-folders too. Links to folders are not entered, but where they lead is kept
 * if that is in a root; what cannot be read or is no regular file is left out, links that dangle or
 * lead out are kept and fail when opened. E_MISSING_FILE if a root does not exist, E_LIMIT beyond a
 * million files or folders or 64 levels. */
bool cf_dir_list(cf_dir *dir, const char *const *roots, int n_roots, cf_arena *arena, cf_err *err);

bool cf_dir_find(const cf_dir *dir, const char *path, uint32_t *file);
/* That of one root. */
bool cf_dir_find_in(const cf_dir *dir, const char *path, uint32_t root, uint32_t *file);
/* The next twin of a file, or false. */
bool cf_dir_twin(const cf_dir *dir, uint32_t file, uint32_t *next);

/* Links are followed wherever they lead: the user says that they may. Set before anything is
 * opened. */
extern bool cf_follow_links;

/* A read-only descriptor; `is` (may be NULL) takes what the file is now. path "" is refused;
 * E_PATH for absolute paths, "..", NULs and links that lead out, E_MISSING_FILE, E_NOT_REGULAR.
 * Errors name the path. */
bool cf_beneath_open(const char *root, const char *path, int *fd, cf_dir_file *is, cf_err *err);

/* The same for a listed file; E_IO "changed since" if it is not the file that was listed. */
bool cf_dir_open(const cf_dir *dir, uint32_t file, int *fd, cf_err *err);

#endif
