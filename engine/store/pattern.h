/* The pattern language of plugins: `*` within a name, `**` across folders, `{n}` digits, `{n*}`
 * text without "/", `{n**}` any text (API.md, "dir"). And globs over names, where `*` takes
 * everything. Matching is linear in practice and bounded: no pattern makes it exponential.
 */
#ifndef CF_PATTERN_H
#define CF_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum { CF_MOST_CAPTURES = 8 };

typedef struct cf_capture {
    char name[32]; /* of the placeholder */
    bool number;   /* {n}: value; else text of the path */
    int64_t value;
    size_t from, length; /* in the path that was matched */
} cf_capture;

typedef struct cf_captures {
    cf_capture items[CF_MOST_CAPTURES];
    int count;
} cf_captures;

/* Is it a pattern at all? E_LAYOUT for an unclosed brace, a bad or repeated placeholder, a name
 * that is a field of file handles (name folder root meta size kind walk refuse), too many
 * placeholders.
 */
bool cf_pattern_check(const char *pattern, cf_err *err);
/* Does the whole path fit? captures (may be NULL) takes what the placeholders took; digits that do
 * not fit in 63 bits do not match. The pattern was checked. */
bool cf_pattern_match(const char *pattern, const char *path, cf_captures *captures);

/* fnmatch-like over names: only `*` (any text, also dots and slashes) and `?` are special. */
bool cf_glob_match(const char *glob, const char *name);

/* Natural order: runs of digits compare as numbers, so that rank10 comes after rank9. <0, 0, >0;
 * equal only for equal strings. */
int cf_natural_compare(const char *a, const char *b);

#endif
