#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 64 };

typedef struct pool {
    cf_job *job;
    void *ctx;
    uint64_t jobs;
    _Atomic uint64_t next;
    atomic_bool failed;
    pthread_mutex_t lock;
    cf_err *err;
} pool;

typedef struct worker {
    pool *pool;
    int number;
    pthread_t thread;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    pool *p = w->pool;
    while (!atomic_load(&p->failed)) {
        const uint64_t n = atomic_fetch_add(&p->next, 1);
        if (n >= p->jobs) break;
        cf_err err = {0};
        if (p->job(p->ctx, n, w->number, &err)) continue;
        pthread_mutex_lock(&p->lock);
        if (!atomic_exchange(&p->failed, true)) *p->err = err;
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

bool cf_pool_run(int threads, uint64_t jobs, cf_job *job, void *ctx, cf_err *err)
{
    pool p = {.job = job, .ctx = ctx, .jobs = jobs, .err = err};
    worker workers[MOST];
    if (threads > MOST) threads = MOST;
    if ((uint64_t)(threads < 1 ? 1 : threads) > jobs) threads = (int)jobs;
    pthread_mutex_init(&p.lock, NULL);
    int started = 0;
    /* The calling thread is number 0. A thread that cannot be had is done without. */
    for (int i = 1; i < threads; i++) {
        workers[i] = (worker){.pool = &p, .number = i};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) break;
        started = i;
    }
    workers[0] = (worker){.pool = &p};
    work(&workers[0]);
    for (int i = 1; i <= started; i++) pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&p.lock);
    return !atomic_load(&p.failed);
}
