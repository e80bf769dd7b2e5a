/* From what a recipe recorded to a block: output files to the byte, and the moves that fill them.
 */
#ifndef CF_LAYOUT_H
#define CF_LAYOUT_H

#include "block.h"
#include "plan.h"

typedef struct cf_write {
    const char *path;
    cf_writer writer;
    cf_entry *entries;
    size_t count;
    cf_write_options options;
    struct cf_dcp *dcp; /* of a dcp write: its items */
} cf_write;

typedef struct cf_copy {
    const char *glob;
} cf_copy;

/* Lays out every file and fills the sections of a block; its texts are the caller's.
 * E_META_CONFLICT for replicas whose stored checksums differ; E_LIMIT for a header that no reader
 * opens. */
bool cf_plan_layout(cf_plan *plan, cf_blocker *b, cf_err *err);

#endif
