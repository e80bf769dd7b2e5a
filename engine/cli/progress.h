/* How far a run is: a bar on a terminal, a plain line each 30 s in a job's log, or JSON events. */
#ifndef CF_PROGRESS_H
#define CF_PROGRESS_H

#include <pthread.h>

#include "execute.h"
#include "options.h"

typedef struct cf_meter {
    cf_progress progress;
    cf_show how;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool running, end;
    double started;
} cf_meter;

/* As the options say; a bar is drawn on a terminal alone. With --quiet a meter must be asked for by
 * name. */
void cf_meter_start(cf_meter *meter, const cf_options *o, uint64_t total);
void cf_meter_stop(cf_meter *meter);
/* Seconds since the start. */
double cf_meter_seconds(const cf_meter *meter);

#endif
