/* The tree of dicts and lists that the entries of a file make up, from the path of each.
 *
 * Branches come in the order in which they were first named, as a dict keeps it. A level is a list
 * or a tuple if every path says so and places 0..n-1 are all there; with holes (some were left out)
 * it becomes a dict with integer keys.
 */
#ifndef CF_NEST_H
#define CF_NEST_H

#include "keypath.h"

enum { CF_NO_BRANCH = UINT32_MAX };

typedef struct cf_branch {
    cf_step step;         /* from the level above */
    uint32_t first, last; /* below; CF_NO_BRANCH: none */
    uint32_t next;        /* beside */
    uint32_t count;       /* of those below */
    uint32_t leaf;        /* what was added here; CF_NO_BRANCH: it is a level */
    uint32_t up;
} cf_branch;

typedef struct cf_nest {
    cf_arena *arena;
    cf_branch *branches; /* number 0: the root */
    size_t count, cap;
    cf_map known; /* level and step -> branch */
} cf_nest;

void cf_nest_init(cf_nest *nest, cf_arena *arena);
/* path NULL: the name is one string key. Both are borrowed. E_DUP_KEY: something is there, or
 * above; E_LIMIT. */
bool cf_nest_add(cf_nest *nest, const char *name, const cf_path *path, uint32_t leaf, cf_err *err);
/* When all are added: lists in the order of their places. */
bool cf_nest_finish(cf_nest *nest, cf_err *err);

/* What a level is: CF_STEP_LIST, CF_STEP_TUPLE, or a dict (CF_STEP_TEXT). */
cf_step_kind cf_nest_kind(const cf_nest *nest, const cf_branch *level);

#endif
