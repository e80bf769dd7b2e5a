/* Threads for a known number of jobs: each takes the next number until none is left.
 *
 * `job` gets its number and the thread's (0 to threads-1), so that a thread can own its scratch
 * memory. The first failure is kept and stops the handing out; jobs under way end by themselves.
 */
#ifndef CF_POOL_H
#define CF_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

typedef bool cf_job(void *ctx, uint64_t number, int thread, cf_err *err);

/* With threads <= 1 the jobs run here, in order. False with the first error. */
bool cf_pool_run(int threads, uint64_t jobs, cf_job *job, void *ctx, cf_err *err);

#endif
