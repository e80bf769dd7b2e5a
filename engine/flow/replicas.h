/* Two copies of one piece, held together. */
#ifndef CF_REPLICAS_H
#define CF_REPLICAS_H

#include "gather.h"

/* The error of two copies that differ; ranks -1: not known. */
void cf_replica_conflict(cf_err *err, int32_t a, const char *in_a, int32_t b, const char *in_b);

/* All of it, or 16 blocks of 4 KiB at places that depend on the size alone. buffer: a tile.
 * E_META_CONFLICT names the copies and the first element that differs. */
bool cf_replica_compare(const cf_block *block, const cf_b_compare *compare, cf_gather *gather,
                        uint8_t *buffer, cf_err *err);

#endif
