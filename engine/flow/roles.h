/* Role and name of a row, from its key and the patterns of a format plugin. */
#ifndef CF_ROLES_H
#define CF_ROLES_H

#include "catalogue.h"

/* Sets row->role and row->name where they are not set: the first pattern that fits the key decides;
 * `*` is one component, `{name}` takes the name (without it, the key is the name). What nothing
 * fits is "rest" under its key. False: the arena failed. */
bool cf_role_find(cf_arena *arena, cf_row *row, const cf_role *roles, size_t n_roles);

#endif
