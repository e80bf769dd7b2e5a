/* A second checkpoint in one plan: what a recipe's option of type checkpoint names.
 *
 * It is read by itself, as the first was; then its files get numbers behind those of the first, so
 * that its rows can be written beside the other's. Storages carry the number of their file, in
 * views and deep inside values: all of them are moved at once here. */
#ifndef CF_JOIN_H
#define CF_JOIN_H

#include "catalogue.h"

/* other was opened (of one root, number `root` of the command line) and cat read from it; from now
 * on cat's source is `first`. Both must live as long as `first` is used. */
bool cf_join(cf_source *first, cf_source *other, cf_catalogue *cat, uint32_t root, cf_err *err);

#endif
