/* The executor's half of diff: stretches of pairs on all threads, both sides gathered tile by tile.
 */
#include "diff.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gather.h"
#include "map.h"
#include "pool.h"
#include "records.h"

typedef struct job {
    uint64_t pair, from, to; /* elements */
} job;

typedef struct comparing {
    const cf_execution *x;
    const cf_block *block;
    const cf_tolerance *tolerance;
    cf_differences *out;
    cf_arena arena;
    cf_records records;
    cf_gather *gathers; /* by thread */
    uint8_t **buffers;  /* two tiles each */
    job *jobs;
    size_t n_jobs, cap_jobs;
    uint64_t *lone; /* pairs that are hashed */
    size_t n_lone;
    uint64_t *hashes; /* by number of the pair */
    pthread_mutex_t lock;
} comparing;

static uint64_t elements_of(const cf_b_chunk *c)
{
    return (c->end - c->begin) / (uint64_t)cf_dtype_size((cf_dtype)c->dtype);
}

static bool list_jobs(comparing *c, cf_err *err)
{
    const cf_block *b = c->block;
    for (uint64_t i = 0; i < b->n_pairs; i++) {
        const cf_b_pair *p = &b->pairs[i];
        if (p->kind != CF_PAIR_TENSORS) continue;
        const uint64_t n = elements_of(&b->chunks[p->chunk[0]]), step = CF_WINDOW / 8;
        for (uint64_t at = 0; at < n; at += step) {
            job *j = CF_PUSH(&c->arena, c->jobs, c->n_jobs, c->cap_jobs);
            if (!j) return cf_arena_ok(&c->arena, err);
            *j = (job){i, at, at + step < n ? at + step : n};
        }
    }
    return true;
}

static bool fill(comparing *c, const cf_b_pair *p, int side, uint64_t from, uint64_t to,
                 uint8_t *buffer, int thread, cf_err *err)
{
    const cf_b_chunk *chunk = &c->block->chunks[p->chunk[side]];
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)chunk->dtype);
    uint32_t crc;
    bool known;
    if (cf_gather_chunk(&c->gathers[thread], chunk, from * size, to * size, buffer, &crc, &known,
                        err)) {
        if (c->x->progress) atomic_fetch_add(&c->x->progress->done, (to - from) * size);
        return true;
    }
    return cf_err_in_member(err, cf_block_text(c->block, p->key[side]));
}

/* Elements that fit into a tile on both sides. */
static uint64_t step_of(const comparing *c, const cf_b_pair *p)
{
    uint64_t most = 1;
    for (int s = 0; s < 2; s++) {
        if (p->chunk[s] == CF_B_NONE) continue;
        const uint64_t size =
            (uint64_t)cf_dtype_size((cf_dtype)c->block->chunks[p->chunk[s]].dtype);
        if (size > most) most = size;
    }
    return c->x->means->tile / most;
}

static bool compare_part(void *ctx, uint64_t number, int thread, cf_err *err)
{
    comparing *c = ctx;
    const job *j = &c->jobs[number];
    const cf_b_pair *p = &c->block->pairs[j->pair];
    const uint64_t step = step_of(c, p);
    uint8_t *left = c->buffers[thread], *right = left + c->x->means->tile;
    cf_difference found = {0};
    for (uint64_t at = j->from; at < j->to; at += step) {
        const uint64_t to = at + step < j->to ? at + step : j->to;
        if (cf_stopped(c->x, err) || !fill(c, p, 0, at, to, left, thread, err) ||
            !fill(c, p, 1, at, to, right, thread, err))
            return false;
        cf_difference_add(&found, c->tolerance, (cf_dtype)c->block->chunks[p->chunk[0]].dtype, left,
                          (cf_dtype)c->block->chunks[p->chunk[1]].dtype, right, at, to - at);
    }
    pthread_mutex_lock(&c->lock);
    cf_difference_join(&c->out->pairs[j->pair], &found);
    pthread_mutex_unlock(&c->lock);
    return true;
}

/* ---- other names -------------------------------------------------------------------------------
 */

static int side_of(const cf_b_pair *p)
{
    return p->chunk[0] != CF_B_NONE ? 0 : 1;
}

/* Stretches are hashed with their place as a seed and added up: 64 bits that nobody can aim at, as
 * the hash is seeded anew in each process. */
static bool hash_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    comparing *c = ctx;
    const uint64_t pair = c->lone[number];
    const cf_b_pair *p = &c->block->pairs[pair];
    const int side = side_of(p);
    const cf_b_chunk *chunk = &c->block->chunks[p->chunk[side]];
    const uint64_t step = step_of(c, p), n = elements_of(chunk),
                   size = (uint64_t)cf_dtype_size((cf_dtype)chunk->dtype);
    uint64_t sum = 0;
    for (uint64_t at = 0; at < n; at += step) {
        const uint64_t to = at + step < n ? at + step : n;
        if (cf_stopped(c->x, err) || !fill(c, p, side, at, to, c->buffers[thread], thread, err))
            return false;
        sum += cf_hash(c->buffers[thread], (to - at) * size, at + 1);
    }
    c->hashes[pair] = sum;
    return true;
}

static bool list_lone(comparing *c, cf_err *err)
{
    const cf_block *b = c->block;
    c->lone = CF_NEWS(&c->arena, uint64_t, b->n_pairs + 1);
    c->hashes = CF_NEWS(&c->arena, uint64_t, b->n_pairs + 1);
    if (!cf_arena_ok(&c->arena, err)) return false;
    for (uint64_t i = 0; i < b->n_pairs; i++)
        if (b->pairs[i].kind == CF_PAIR_ALONE &&
            (b->pairs[i].chunk[0] != CF_B_NONE || b->pairs[i].chunk[1] != CF_B_NONE))
            c->lone[c->n_lone++] = i;
    return true;
}

/* How many characters two keys share at their ends: h.0.ln.weight is layers.0.ln.weight rather than
 * layers.1.ln.weight. */
static size_t shared_end(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), k = 0;
    while (k < n && k < m && a[n - 1 - k] == b[m - 1 - k]) k++;
    return k;
}

/* dtype, shape and hash as a key of a map. */
typedef struct form {
    uint64_t hash;
    int64_t dtype, ndim, shape[CF_MOST_DIMS];
} form;

static size_t form_of(const comparing *c, uint64_t pair, form *f)
{
    const cf_b_pair *p = &c->block->pairs[pair];
    const int side = side_of(p);
    *f = (form){.hash = c->hashes[pair], .dtype = p->dtype[side], .ndim = p->ndim[side]};
    for (int d = 0; d < p->ndim[side]; d++)
        f->shape[d] = c->block->numbers[p->dims[side] + (uint64_t)d];
    return offsetof(form, shape) + p->ndim[side] * sizeof(int64_t);
}

/* Those of B with one form are a chain; of each of A the best of the first that are left. */
static bool match_names(comparing *c, cf_err *err)
{
    enum { MOST_LOOKED_AT = 64 };
    const cf_block *b = c->block;
    uint64_t *next = CF_NEWS(&c->arena, uint64_t, b->n_pairs + 1); /* number + 1; 0: the end */
    cf_map chains;
    cf_map_init(&chains, &c->arena);
    for (size_t i = c->n_lone; next && i-- > 0;) {
        const uint64_t pair = c->lone[i];
        form f;
        bool fresh;
        if (side_of(&b->pairs[pair]) != 1) continue;
        const size_t size = form_of(c, pair, &f);
        const void *key = cf_memdup(&c->arena, &f, size);
        uint64_t *head = key ? cf_map_put(&chains, key, size, &fresh) : NULL;
        if (!head) break;
        next[pair] = *head;
        *head = pair + 1;
    }
    if (!cf_arena_ok(&c->arena, err)) return false;
    for (size_t i = 0; i < c->n_lone; i++) {
        const uint64_t pair = c->lone[i];
        form f;
        bool fresh;
        if (side_of(&b->pairs[pair]) != 0) continue;
        const size_t size = form_of(c, pair, &f);
        uint64_t none;
        if (!cf_map_get(&chains, &f, size, &none)) continue;
        uint64_t *link = cf_map_put(&chains, &f, size, &fresh), *best = NULL;
        size_t most = 0;
        for (int k = 0; *link && k < MOST_LOOKED_AT; k++, link = &next[*link - 1]) {
            const size_t n = shared_end(cf_block_text(b, b->pairs[pair].key[0]),
                                        cf_block_text(b, b->pairs[*link - 1].key[1]));
            if (best && n <= most) continue;
            best = link;
            most = n;
        }
        if (!best) continue;
        c->out->renamed[pair] = *best - 1;
        c->out->renamed[*best - 1] = pair;
        *best = next[*best - 1];
    }
    return true;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static bool carry_out(comparing *c, cf_err *err)
{
    const cf_block *b = c->block;
    const int threads = c->x->threads;
    c->out->pairs = CF_NEWS(&c->out->arena, cf_difference, b->n_pairs + 1);
    c->out->renamed = CF_NEWS(&c->out->arena, uint64_t, b->n_pairs + 1);
    c->gathers = CF_NEWS(&c->arena, cf_gather, (size_t)threads);
    c->buffers = CF_NEWS(&c->arena, uint8_t *, (size_t)threads);
    if (!cf_arena_ok(&c->out->arena, err) || !cf_arena_ok(&c->arena, err)) return false;
    for (uint64_t i = 0; i < b->n_pairs; i++) c->out->renamed[i] = CF_B_NONE;
    if (!list_jobs(c, err) || !list_lone(c, err) ||
        !cf_records_open(&c->records, c->x, NULL, NULL, err))
        return false;
    for (int i = 0; i < threads; i++) {
        if (!(c->buffers[i] = malloc(2 * c->x->means->tile)))
            return cf_fail(err, CF_E_MEMORY, "out of memory");
        if (!cf_gather_start(&c->gathers[i], &c->records.bytes, c->x->means, err)) return false;
    }
    return cf_pool_run(threads, c->n_jobs, compare_part, c, err) &&
           cf_pool_run(threads, c->n_lone, hash_one, c, err) && match_names(c, err) &&
           cf_records_unchanged(&c->records, err);
}

bool cf_diff(const cf_execution *x, const cf_tolerance *tolerance, cf_differences *out, cf_err *err)
{
    comparing c = {.x = x, .block = x->block, .tolerance = tolerance, .out = out};
    *out = (cf_differences){0};
    cf_arena_init(&out->arena, 0);
    cf_arena_init(&c.arena, 0);
    c.records.scratch = -1;
    c.records.block = x->block;
    pthread_mutex_init(&c.lock, NULL);
    const bool ok = carry_out(&c, err);
    for (int i = 0; c.gathers && c.buffers && i < x->threads; i++) {
        out->read += c.gathers[i].read;
        cf_gather_end(&c.gathers[i]);
        free(c.buffers[i]);
    }
    cf_records_close(&c.records);
    pthread_mutex_destroy(&c.lock);
    cf_arena_free(&c.arena);
    return ok;
}

void cf_differences_free(cf_differences *d)
{
    cf_arena_free(&d->arena);
}
