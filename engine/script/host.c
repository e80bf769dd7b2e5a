/* A Lua state and what bounds it.
 *
 * Memory is capped in the allocator, time by a count hook that looks at the thread's CPU clock.
 * Both limits are sticky: `pcall` (env.c) hands them on. One call of the Lua library that never
 * comes back (a pattern that backtracks) fires no hook; the process that plans has a timer for that
 * (cf_host_watch), since nothing inside a process can stop such a call safely.
 */
#include <stdlib.h>
#include <string.h>

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "bind.h"
#include "part.h"
#include "sanitized.h"

enum {
    SLOWED = CF_SANITIZED ? 5 : 1, /* so that sanitizers change no verdict */
    HOOK_EVERY = 2000,
    STRESS_EVERY = 100,
    SECOND = 1000000000,
    ROW = 10000
};

bool cf_host_stress;

static int64_t cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static bool over_time(const cf_host *host, int64_t grace)
{
    return cpu_now() - host->since - host->elsewhere - grace >
           SLOWED * ((int64_t)CF_SCRIPT_SECONDS * SECOND + (int64_t)host->rows * ROW);
}

static bool limit_error(const cf_host *host, cf_err *err)
{
    if (host->tripped == CF_L_LIMIT_MEM)
        return cf_fail(err, CF_L_LIMIT_MEM, "a script holds more than %d MiB (and 1 KiB per row)",
                       CF_SCRIPT_MOST_MEMORY >> 20);
    return cf_fail(err, CF_L_LIMIT_CPU,
                   "a script ran for more than %d s (and 1 s per 100,000 rows)", CF_SCRIPT_SECONDS);
}

/* ---- the timer behind the hook */

static int watch_status;
static _Thread_local cf_host *watched; /* whose script runs in this thread */
static _Thread_local timer_t watch_timer;
static _Thread_local bool watch_armed;

static void overrun(int signal)
{
    enum { GRACE = SECOND / 4 }; /* the hook, which says where, comes first where it comes at all */
    (void)signal;
    if (watched && over_time(watched, GRACE)) _exit(watch_status);
}

void cf_host_watch(int status)
{
    watch_status = status;
    struct sigaction action = {.sa_handler = overrun, .sa_flags = SA_RESTART};
    sigaction(SIGVTALRM, &action, NULL);
}

static void watch(cf_host *host)
{
    watched = host;
    if (!watch_status || watch_armed) return;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGVTALRM};
    event._sigev_un._tid = gettid();
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &watch_timer) != 0) return;
    const struct timespec quarter = {.tv_nsec = SECOND / 4};
    timer_settime(watch_timer, 0, &(struct itimerspec){quarter, quarter}, NULL);
    watch_armed = true;
}

static void unwatch(void)
{
    watched = NULL;
    if (watch_armed) timer_delete(watch_timer);
    watch_armed = false;
}

int64_t cf_host_pause(void)
{
    watched = NULL;
    return cpu_now();
}

void cf_host_resume(cf_host *host, int64_t paused)
{
    host->elsewhere += cpu_now() - paused;
    watched = host;
}

void cf_host_resume_after(cf_host *host, int64_t paused, size_t units)
{
    const int64_t took = cpu_now() - paused,
                  most = 20000 * (int64_t)(units < SECOND ? units : SECOND);
    host->elsewhere += took < most ? took : most;
    watched = host;
}

/* ---- limits inside the state */

size_t cf_host_most_memory(const cf_host *host)
{
    return CF_SCRIPT_MOST_MEMORY + 1024 * (size_t)host->rows;
}

int cf_host_too_much(lua_State *L)
{
    cf_host *host = cf_host_of(L);
    if (!host->tripped) host->tripped = CF_L_LIMIT_MEM;
    cf_err err;
    limit_error(host, &err);
    luaL_where(L, 1);
    return cf_raise_code(L, err.code, "%s%s", lua_tostring(L, -1), err.message);
}

/* Trees of the files that this call looks into: what a script makes of them may be as large. */
static size_t trees_held(const cf_host *host)
{
    size_t held = 0;
    for (size_t i = 0; i < host->n_pins; i++)
        held += host->pins[i]->arena.held + host->pins[i]->keep.held;
    return held;
}

void cf_host_count_row(lua_State *L)
{
    enum { ANYWAY = 10000, NODE = 32 }; /* rows; bytes of a tree that a row comes from, at least */
    cf_host *host = cf_host_of(L);
    if (host->rows < ANYWAY || host->rows < trees_held(host) / NODE) host->rows++;
    cf_host_check_kept(L);
}

void cf_host_check_kept(lua_State *L)
{
    enum { ROOM = 8 << 20 };
    cf_host *host = cf_host_of(L);
    size_t kept = host->memory;
    if (host->plan) kept += host->plan->arena.held + host->plan->notes.cap;
    if (host->part) kept += host->part->arena.held;
    kept += host->arena.held - host->read;
    const size_t most = cf_host_most_memory(host) + ROOM + 1024 * (size_t)host->rows;
    if (kept > most && kept - most > 4 * trees_held(host)) cf_host_too_much(L);
}

size_t cf_host_before_decoding(cf_host *host)
{
    const size_t most = cf_host_most_memory(host), held = host->arena.held;
    const size_t left = host->decoded < most ? most - host->decoded : 0;
    if (held + left < CF_CALL_MOST_MEMORY) host->arena.limit = held + left;
    return held;
}

void cf_host_after_decoding(lua_State *L, size_t before)
{
    cf_host *host = cf_host_of(L);
    host->decoded += host->arena.held - before;
    host->arena.limit = CF_CALL_MOST_MEMORY;
    if (host->arena.over) cf_host_too_much(L);
}

static void *allocate(void *ctx, void *at, size_t old, size_t size)
{
    cf_host *host = ctx;
    if (!at) old = 0;
    if (size == 0) {
        free(at);
        host->memory -= old;
        return NULL;
    }
    const size_t most = cf_host_most_memory(host);
    if (size > old && (size > most || host->memory - old > most - size)) return NULL;
    void *moved = realloc(at, size);
    if (moved) host->memory += size - old;
    return moved;
}

static void hook(lua_State *L, lua_Debug *where)
{
    (void)where;
    if (cf_host_stress) lua_gc(L, LUA_GCCOLLECT);
    cf_host *host = cf_host_of(L);
    if (!host->tripped) cf_host_check_kept(L);
    if (!host->tripped && !over_time(host, 0)) return;
    if (!host->tripped) host->tripped = CF_L_LIMIT_CPU;
    cf_err err;
    limit_error(host, &err);
    luaL_where(L, 0);
    cf_raise_code(L, err.code, "%s%s", lua_tostring(L, -1), err.message);
}

/* ---- the state */

static int open_state(lua_State *L)
{
    cf_raise_register(L);
    cf_bind_dir(L);
    cf_bind_file(L);
    cf_bind_walk(L);
    cf_bind_node(L);
    cf_bind_view(L);
    cf_bind_out(L);
    cf_bind_cat(L);
    cf_bind_plan(L);
    cf_env_open(L);
    return 0;
}

bool cf_host_start(cf_host *host, const cf_scripts *scripts, cf_source *source, cf_err *err)
{
    *host = (cf_host){.scripts = scripts, .source = source};
    host->L = lua_newstate(allocate, host);
    if (!host->L) return cf_fail(err, CF_E_MEMORY, "out of memory");
    *(cf_host **)lua_getextraspace(host->L) = host;
    lua_sethook(host->L, hook, LUA_MASKCOUNT, cf_host_stress ? STRESS_EVERY : HOOK_EVERY);
    if (cf_host_run(host, open_state, NULL, err)) return true;
    cf_host_stop(host);
    return false;
}

void cf_host_stop(cf_host *host)
{
    if (host->L) lua_close(host->L);
    free(host->pins);
    cf_text_free(&host->text);
    host->L = NULL;
}

static void to_err(const cf_host *host, int status, cf_err *err)
{
    const cf_err *raised = cf_raised(host->L, -1);
    if (raised && (!host->tripped || raised->code == host->tripped))
        *err = *raised;
    else if (host->tripped || status == LUA_ERRMEM)
        limit_error(host->tripped ? host : &(cf_host){.tripped = CF_L_LIMIT_MEM}, err);
    else
        cf_fail(err, CF_L_ERROR, "%s",
                lua_type(host->L, -1) == LUA_TSTRING ? lua_tostring(host->L, -1)
                                                     : "a script failed while it failed");
}

bool cf_host_run(cf_host *host, lua_CFunction job, void *arg, cf_err *err)
{
    lua_State *L = host->L;
    cf_arena_init(&host->arena, CF_CALL_MOST_MEMORY);
    cf_map_init(&host->reach, &host->arena);
    host->call++;
    host->unreadable.code = CF_OK;
    host->elsewhere = 0;
    host->decoded = host->read = 0;
    host->since = cpu_now();
    cf_host *outer = watched;
    watch(host);
    /* None of these four can raise: nothing is allocated. */
    lua_pushcfunction(L, cf_explain);
    lua_pushcfunction(L, job);
    lua_pushlightuserdata(L, arg);
    const int status = lua_pcall(L, 1, 0, 1);
    if (outer)
        watched = outer;
    else
        unwatch();
    if (status != LUA_OK) to_err(host, status, err);
    lua_settop(L, 0);
    for (size_t i = 0; i < host->n_pins; i++) cf_source_unpin(host->source, host->pins[i]);
    host->n_pins = 0;
    cf_arena_free(&host->arena);
    return status == LUA_OK;
}

bool cf_host_pin(cf_host *host, uint32_t file, cf_tree **tree, cf_err *err)
{
    for (size_t i = 0; i < host->n_pins; i++)
        if (host->pins[i]->file == file) {
            *tree = host->pins[i];
            return true;
        }
    if (host->n_pins == host->cap_pins) {
        const size_t cap = host->cap_pins ? host->cap_pins * 2 : 8;
        cf_tree **more = realloc(host->pins, cap * sizeof *more);
        if (!more) return cf_fail(err, CF_E_MEMORY, "out of memory");
        host->pins = more;
        host->cap_pins = cap;
    }
    const int64_t paused = cf_host_pause();
    const bool ok = cf_source_pin(host->source, file, tree, err);
    cf_host_resume(host, paused);
    if (ok) host->pins[host->n_pins++] = *tree;
    return ok;
}

cf_text *cf_scratch(lua_State *L)
{
    cf_text *text = &cf_host_of(L)->text;
    text->size = 0;
    if (text->at) text->at[0] = '\0';
    return text;
}
