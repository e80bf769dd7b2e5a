/* Do the pieces of a row cover it, each element once? */
#ifndef CF_COVER_H
#define CF_COVER_H

#include "catalogue.h"
#include "shape.h"

/* Equal boxes are replicas of the smallest rank's (replica_of is set); the others must tile the
 * tensor. False: a piece sticks out (E_BOUNDS), or memory. scratch is the caller's to free. */
bool cf_row_cover(const cf_catalogue *cat, cf_row *row, cf_arena *scratch, cf_cover *cover,
                  cf_cover_fault *fault, cf_err *err);
/* The same, a hole (E_COVERAGE) and an overlap (E_OVERLAP) in words. */
bool cf_row_whole(const cf_catalogue *cat, cf_row *row, cf_arena *scratch, cf_err *err);

#endif
