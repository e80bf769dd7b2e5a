/* The folders beside a checkpoint: which one is a whole save, where this is none?
 *
 * Names, sizes and times only: nothing in them is opened, and none is listed. The folders that
 * checkpoints lie in are opened once for the process, before it is confined (they could not be
 * afterwards).
 */
#ifndef CF_BESIDE_H
#define CF_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

/* Opens the folder that holds `root`, which is borrowed; a root that is no folder, or whose folder
 * cannot be read, has no neighbours. */
void cf_beside_open(const char *root);

/* The name of the newest neighbour of `root`, and of no other root, that has each of `marks` as a
 * file with something in it, in one of `within` (sub-folders that end in "/", "" the folder
 * itself), and none of those that begin with
 * "!". Newest: of names like the root's but for digits (step-20 beside step-30) before others, of
 * names with a number the largest last one, else by the time of the first mark. */
bool cf_beside_newest(const char *root, const char *const *within, size_t n_within,
                      const char *const *marks, size_t n_marks, char *name, size_t size);

#endif
