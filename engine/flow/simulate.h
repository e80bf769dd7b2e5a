/* A layout that does not exist yet, as items and holders: what FSDP with an optimizer would save.
 *
 *   ranks=512      how many write; needed
 *   shard=8        how many share one copy of a tensor; default: all. It divides ranks
 *   params=7B      elements of the model: 350M, 7B, 1.2e9; default 1B
 *   tensors=300    parameters that they are in, all alike; default 300
 *   states=2       tensors of the optimizer for each (Adam's 2), and one `step` if there are any
 *   values=24      things that are no tensors; default 24
 *   dtype=F32      of all tensors; default F32
 *   replicas=outermost|innermost   HSDP's order of ranks, or tensor parallel's; default outermost
 *
 * Parameters and states are cut in `shard` parts, as torch.chunk cuts; steps and values are whole,
 * and everybody's. An item takes what torch's containers add to it.
 */
#ifndef CF_SIMULATE_H
#define CF_SIMULATE_H

#include "holders.h"

/* E_USAGE: a key that there is not, a number that is none, a shard that does not divide; E_LIMIT.
 */
bool cf_simulate(cf_holding *holding, const char *text, cf_arena *arena, cf_err *err);

#endif
