#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double cf_meter_seconds(const cf_meter *meter)
{
    return now() - meter->started;
}

static void show(const cf_meter *m)
{
    const uint64_t done = atomic_load(&m->progress.done), total = m->progress.total;
    const double seconds = cf_meter_seconds(m);
    if (m->how == CF_SHOW_JSON) {
        fprintf(stderr, "{\"event\":\"progress\",\"done\":%llu,\"total\":%llu,\"seconds\":%.3f}\n",
                (unsigned long long)done, (unsigned long long)total, seconds);
        return;
    }
    cf_text line = {0};
    cf_text_size(&line, done);
    cf_text_str(&line, " of ");
    cf_text_size(&line, total);
    const uint64_t now_done = done - atomic_load(&m->progress.found); /* not by a run before */
    if (seconds > 0.5) {
        cf_text_str(&line, ", ");
        cf_text_size(&line, (uint64_t)((double)now_done / seconds));
        cf_text_str(&line, "/s");
        if (now_done)
            cf_text_printf(&line, ", %.0f s left",
                           seconds * (double)(total - done) / (double)now_done);
    }
    const int percent = total ? (int)(100 * done / total) : 100;
    if (m->how == CF_SHOW_BAR) {
        char bar[31];
        memset(bar, '.', 30);
        memset(bar, '#', (size_t)(percent * 30 / 100));
        bar[30] = '\0';
        fprintf(stderr, "\r[%s] %3d %%  %s\033[K", bar, percent, line.at ? line.at : "");
    } else {
        fprintf(stderr, "%d %%: %s\n", percent, line.at ? line.at : "");
    }
    cf_text_free(&line);
}

static void *tell(void *arg)
{
    cf_meter *m = arg;
    const long every_ms = m->how == CF_SHOW_BAR ? 200 : m->how == CF_SHOW_JSON ? 500 : 30000;
    pthread_mutex_lock(&m->lock);
    while (!m->end) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += every_ms / 1000;
        until.tv_nsec += every_ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&m->ended, &m->lock, &until);
        if (!m->end) show(m);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

void cf_meter_start(cf_meter *m, const cf_options *o, uint64_t total)
{
    memset(m, 0, sizeof *m);
    m->how = o->progress;
    if (m->how == CF_SHOW_AUTO) m->how = o->quiet ? CF_SHOW_NONE : CF_SHOW_BAR;
    if (m->how == CF_SHOW_BAR && !isatty(STDERR_FILENO)) m->how = CF_SHOW_PLAIN;
    m->progress.total = total;
    m->started = now();
    if (m->how == CF_SHOW_NONE) return;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->ended, &attr);
    pthread_condattr_destroy(&attr);
    m->running = pthread_create(&m->thread, NULL, tell, m) == 0;
}

void cf_meter_stop(cf_meter *m)
{
    if (!m->running) return;
    pthread_mutex_lock(&m->lock);
    m->end = true;
    pthread_cond_signal(&m->ended);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->running = false;
    if (m->how == CF_SHOW_BAR) fputs("\r\033[K", stderr);
    if (m->how == CF_SHOW_JSON) show(m);
}
