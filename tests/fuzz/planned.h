/* A fixture, read by its format and planned by the recipe `convert`. */
#ifndef CF_FUZZ_PLANNED_H
#define CF_FUZZ_PLANNED_H

#include "host.h"

/* The scripts that are embedded, and no others. */
void fuzz_scripts(cf_scripts *scripts);
/* A path below $CF_FIXTURES, kept. */
const char *fuzz_fixture(const char *name);
/* Plans the catalogue and makes the block; false where the recipe has a reason to refuse. */
bool fuzz_plan(cf_scripts *scripts, cf_catalogue *cat, cf_text *block, cf_err *err);

#endif
