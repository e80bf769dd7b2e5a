/* Rank files that are compressed as a whole, unpacked before anything is planned. */
#ifndef CF_UNPACK_H
#define CF_UNPACK_H

#include <signal.h>

#include "err.h"

/* Lists the paths (those that exist) and unpacks each compressed checkpoint file that has no plain
 * twin beside it, each into a file without a name in `folder`, several at a time, in bounded
 * memory. A file that cannot be unpacked is an error for who opens it, not here. Fills the table of
 * packed.h; to be called once, before any fork. Only E_INTERRUPTED, E_SPACE, E_IO (of the folder)
 * and E_MEMORY fail. */
bool cf_unpack(const char *const *paths, int n_paths, const char *folder, int threads,
               const volatile sig_atomic_t *stop, cf_err *err);

#endif
