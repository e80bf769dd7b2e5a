/* --only-rank: what one rank holds, and nothing else. */
#ifndef CF_ALONE_H
#define CF_ALONE_H

#include "catalogue.h"

/* Its pieces of a row become a tensor of their own, of the shape that the rank has in memory: a
 * box; boxes that lie apart in one dimension joined in it; a range of the flattened tensor flat.
 * A row that the rank holds nothing of becomes no row. E_COVERAGE for boxes that fit together in
 * no such way. */
bool cf_row_alone(cf_catalogue *cat, cf_row *row, cf_err *err);
/* The same for a recipe of pieces: they and the shape stay as they are; numel is what is there. A
 * tensor without elements is whole. */
void cf_row_in_part(cf_row *row);
/* E_USAGE if the rank holds nothing at all (parts of a whole: if there is no such rank); a note of
 * how much it is otherwise. */
bool cf_alone_check(cf_catalogue *cat, cf_err *err);

#endif
