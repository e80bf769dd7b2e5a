/* --include, --exclude and --rename: what the user asks of the catalogue before a recipe sees it.
 */
#ifndef CF_FILTER_H
#define CF_FILTER_H

#include "catalogue.h"

typedef struct cf_filter {
    const char *const *include, *const *exclude, *const *rename; /* globs over keys; OLD=NEW */
    int n_include, n_exclude, n_rename;
    bool *included, *excluded; /* NULL, or which of them fit: told by the caller if none does */
} cf_filter;

/* Leaves out the rows that no --include fits (where there are any) or an --exclude does, then
 * renames: the one `*` of OLD takes what NEW's `*` gives. Roles stay; the name within the role
 * follows the key. E_USAGE: a glob (see cf_filter_fit) or OLD that fits nothing, a rename that is
 * none; E_DUP_KEY. */
bool cf_catalogue_filter(cf_catalogue *cat, const cf_filter *filter, cf_err *err);

/* E_USAGE where a glob fitted nothing, of `included` and `excluded`. */
bool cf_filter_fit(const cf_filter *filter, cf_err *err);

#endif
