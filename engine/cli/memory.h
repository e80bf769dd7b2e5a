/* Memory of this process and its children, as the kernel counts it: what plan and run report. */
#ifndef CF_MEMORY_H
#define CF_MEMORY_H

#include <stdint.h>

/* Bytes that this process holds now, and held at most since it began. 0: not known. */
uint64_t cf_memory_now(void);
uint64_t cf_memory_peak(void);
/* The larger one of `own` and what the largest child held at most: the planner. Processes that
 * were forked share their pages, so that the sum of all would count those twice. */
uint64_t cf_memory_largest(uint64_t own);

#endif
