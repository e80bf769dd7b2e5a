/* A place in a JSON tree, as a chain of steps up to the root: RFC 6901 when it is spelt out. */
#ifndef CF_JSON_PATH_H
#define CF_JSON_PATH_H

#include "text.h"

typedef struct cf_json_step {
    const struct cf_json_step *up; /* NULL in the root */
    const char *key;               /* NULL: an index */
    size_t number;                 /* length of the key, or the index */
} cf_json_step;

/* "/a~1b/3"; nothing for the root. Defined in json_value.c. */
void cf_json_path(cf_text *out, const cf_json_step *at);

#endif
