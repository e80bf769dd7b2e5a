/* Is a path that came from a file or a script one of a place inside a folder? The one answer, for
 * paths that are read, planned and written. */
#ifndef CF_PATH_H
#define CF_PATH_H

#include <stddef.h>

typedef enum cf_path_kind {
    CF_PATH_PLAIN, /* names with one "/" between them: the only way to write that place */
    CF_PATH_ODD,   /* inside too, but with "." or an empty component: "./a", "a//b", "a/" */
    CF_PATH_OUT    /* "", absolute, with a ".." or a NUL: no place inside */
} cf_path_kind;

/* path is NUL-terminated; length is what its owner says, so that a NUL within it is seen. */
cf_path_kind cf_path_kind_of(const char *path, size_t length);

#endif
