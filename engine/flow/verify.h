/* verify: is a checkpoint whole and sound?
 *
 * The planner (cf_verify_plan, where the catalogue is) lists what there is to hold together: units,
 * which are files and items whose records have checksums, and replicas; the tensors with the
 * records that they lie in; and the faults it met. cf_verify reads, in parallel and in bounded
 * memory, and adds the faults that only the bytes show. Nothing ends at the first fault.
 *
 *   checked    by what
 *   zip        each member, also those that nothing refers to, by its CRC-32
 *   items      opened, held against the metadata's claims; members of their archives by CRC-32
 *   our output each tensor and each file by ckptflow-manifest.json
 *   replicas   by stored CRC-32, by all bytes or by samples (--replicas)
 *   the rest   read: that it can be is all that is known then
 */
#ifndef CF_VERIFY_H
#define CF_VERIFY_H

#include "execute.h"
#include "faults.h"
#include "plan.h"

/* Fills the sections of a block; texts are the caller's. cat NULL: there is no catalogue, because
 * of a fault that a manifest explains. quick: no unit is listed, so nothing will be read. */
bool cf_verify_plan(cf_source *source, cf_catalogue *cat, cf_replicas replicas, bool quick,
                    cf_blocker *b, cf_err *err);
/* Before anything is read: holds the files against the manifest among them, if there is one. */
bool cf_manifest_check(cf_source *source, cf_err *err);

typedef enum cf_look {
    CF_LOOK_FULL,
    CF_LOOK_SAMPLE,
    CF_LOOK_QUICK, /* at metadata alone */
} cf_look;

/* Part `part` of `parts` (from 0): units and records fall into parts by what they are called and
 * where they lie, the same on every machine; all parts together are everything. */
typedef struct cf_sample {
    double from, to; /* of [0, 1): what is read is hashed into it */
} cf_sample;

enum { CF_DAMAGED = CF_REPLICA_COMPARED + 1, CF_VERDICTS };

typedef struct cf_verdict {
    cf_arena arena;
    cf_faults faults;
    uint8_t *subject; /* cf_checked or CF_DAMAGED, by number */
    uint64_t n_subjects[CF_VERDICTS];
    uint64_t *covered; /* by source: bytes that a checksum was held against as they are */
    uint64_t bytes, all_covered, read; /* of all sources */
} cf_verdict;

/* x->progress counts bytes of units. False for what is no fault of the input: E_IO, E_MEMORY,
 * E_INTERRUPTED, a source that changed. */
bool cf_verify(const cf_execution *x, cf_look look, const cf_sample *sample, cf_verdict *verdict,
               cf_err *err);
void cf_verdict_free(cf_verdict *verdict);

#endif
