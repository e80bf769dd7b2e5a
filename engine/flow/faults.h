/* What is wrong with a checkpoint, when more than the first fault is wanted.
 *
 * Most work ends at its first error. Where a cf_faults hangs at the source, an error of the input
 * (exit 4 or 5) is put into the list instead, and the work goes on without what it was about: a
 * file is left out, a row is `broken`. Thread-safe. The list is bounded; `total` counts them all.
 */
#ifndef CF_FAULTS_H
#define CF_FAULTS_H

#include <pthread.h>

#include "arena.h"

enum { CF_MOST_FAULTS = 1000 };

typedef struct cf_fault {
    cf_code code;
    int64_t offset; /* byte in the file or member, or -1 */
    const char *file, *member, *message, *hint;
} cf_fault;

typedef struct cf_faults {
    cf_arena arena;
    pthread_mutex_t lock;
    cf_fault *list;
    size_t count, cap;
    uint64_t total;
} cf_faults;

void cf_faults_init(cf_faults *faults);
void cf_faults_free(cf_faults *faults);

/* Puts an error of the input into the list, once; false, and nothing done, for another error or
 * without a list (NULL): then the caller fails with it. */
bool cf_faults_take(cf_faults *faults, const cf_err *err);
/* Holes last, for something else is their cause; then by file, place in it, member: the same list
 * whatever thread found what. */
void cf_faults_sort(cf_faults *faults);
/* What an error says, copied; a text that there is no memory for is "", and the arena tells. */
cf_fault cf_fault_of(cf_arena *arena, const cf_err *err);
/* A fault as an error again. */
void cf_fault_error(const cf_fault *fault, cf_err *err);

#endif
