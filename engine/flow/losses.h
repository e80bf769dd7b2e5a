/* What a damaged checkpoint lost, and what of it is still whole. */
#ifndef CF_LOSSES_H
#define CF_LOSSES_H

#include "catalogue.h"

/* Things lost with a file that is missing or cut: an error that counts them, the list of them and
 * of what is whole among the catalogue's notes. With a list of faults at the source: rows that are
 * broken, and a fault for each file. */
bool cf_losses_check(cf_catalogue *cat, cf_err *err);

/* --salvage, behind cf_catalogue_finish: rows that are not whole go, and the notes and `missing`
 * say so. E_COVERAGE if nothing is left. */
bool cf_losses_drop(cf_catalogue *cat, cf_text *missing, cf_err *err);

#endif
