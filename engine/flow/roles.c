#include "roles.h"

#include <string.h>

/* Does key fit pattern? from..to is what {name} took. `*` and {name} are at least one character;
 * `*` ends at a dot. Two wildcards at most lie next to a literal, so that backtracking is small. */
static bool fits(const char *pattern, const char *key, const char **from, const char **to)
{
    static const char NAME[] = "{name}";
    for (;; pattern++, key++) {
        if (*pattern == '*') {
            for (const char *end = key; *end && *end != '.';) {
                end++;
                if (fits(pattern + 1, end, from, to)) return true;
            }
            return false;
        }
        if (strncmp(pattern, NAME, sizeof NAME - 1) == 0) {
            for (const char *end = key + strlen(key); end > key; end--) {
                if (!fits(pattern + sizeof NAME - 1, end, from, to)) continue;
                *from = key;
                *to = end;
                return true;
            }
            return false;
        }
        if (*pattern != *key) return false;
        if (!*pattern) return true;
    }
}

bool cf_role_find(cf_arena *arena, cf_row *row, const cf_role *roles, size_t n_roles)
{
    if (row->role) return true;
    row->role = "rest";
    row->name = row->key;
    for (size_t i = 0; i < n_roles; i++) {
        const char *from = NULL, *to = NULL;
        if (!fits(roles[i].pattern, row->key, &from, &to)) continue;
        row->role = roles[i].role;
        if (from) row->name = cf_strndup(arena, from, (size_t)(to - from));
        return row->name != NULL;
    }
    return true;
}
