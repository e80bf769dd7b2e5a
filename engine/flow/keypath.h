/* Where a value lies in a tree of dicts and lists: what its key, "a.0.b", does not tell. A key has
 * no path (NULL) where it is one string of one dict, as in most state dicts.
 */
#ifndef CF_KEYPATH_H
#define CF_KEYPATH_H

#include "node.h"

typedef enum cf_step_kind {
    CF_STEP_TEXT,   /* a string key of a dict */
    CF_STEP_NUMBER, /* an integer key of one */
    CF_STEP_KEY,    /* another key of one: None, a float, a tuple ... */
    CF_STEP_LIST,   /* a place in a list, from 0 */
    CF_STEP_TUPLE
} cf_step_kind;

typedef struct cf_step {
    cf_step_kind kind;
    uint32_t length; /* of the text */
    union {
        const char *text; /* not NUL-terminated */
        int64_t number;
        const cf_node *key;
    };
} cf_step;

typedef struct cf_path {
    size_t count;
    const cf_step *steps;
} cf_path;

/* The path that a key (dict keys and places joined with ".", as file:walk gives it) has in a tree;
 * where only the part behind its first component is found, that one is a string key in front. NULL:
 * it is one string, or not found; or the arena failed. Texts are borrowed from the key. */
const cf_path *cf_path_find(cf_arena *arena, const cf_node *root, const char *key);

/* With everything in arena, but texts that lie in `from` (a key): they lie in `to`, an equal one,
 * then. from NULL: none does. NULL for NULL, or if the arena failed. */
const cf_path *cf_path_copy(cf_arena *arena, const cf_path *path, const char *from, const char *to);

/* A value with what lies at a path in it replaced; what does not lead there is shared with the old
 * one. NULL: E_TYPE, nothing lies there. */
const cf_node *cf_path_replace(cf_arena *arena, const cf_node *value, const cf_path *path,
                               const cf_node *by, cf_err *err);

#endif
