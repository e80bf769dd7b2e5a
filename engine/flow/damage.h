/* What turned out damaged while bytes were read: --salvage plans again without it.
 *
 * The executor takes such errors instead of failing at the first, as far as it can go on, and then
 * fails with one of them: nothing that it wrote stays. The next plan is made without those pieces:
 * an equal one of another rank takes the place, else the row is left out. */
#ifndef CF_DAMAGE_H
#define CF_DAMAGE_H

#include <pthread.h>

#include "block.h"
#include "catalogue.h"
#include "map.h"

typedef struct cf_damage {
    cf_arena arena;
    pthread_mutex_t lock;
    cf_fault *faults;
    size_t count, cap;
    cf_map places; /* of records that are damaged: root, path, offset */
    cf_map keys;   /* whose copies differ, and none is known to be right */
    bool found;    /* by the run under way */
    cf_err first;  /* of these */
} cf_damage;

void cf_damage_init(cf_damage *damage);
void cf_damage_free(cf_damage *damage);

/* Before each run. */
void cf_damage_begin(cf_damage *damage);
/* Takes what is wrong with a record, or with the copies of a key. Thread-safe. False, and nothing
 * done, without a list (NULL) or for an error that is no damage: then the caller fails with it. */
bool cf_damage_take(cf_damage *damage, const cf_block *block, uint64_t record, const cf_err *err);
bool cf_damage_take_key(cf_damage *damage, const char *key, const cf_err *err);
/* False, with the first error, if the run under way has found some. */
bool cf_damage_none(const cf_damage *damage, cf_err *err);

/* Before a catalogue is finished: pieces that are damaged go, or their row is `broken`; the faults
 * go to the source's. */
bool cf_damage_strike(const cf_damage *damage, cf_catalogue *cat, cf_err *err);

#endif
