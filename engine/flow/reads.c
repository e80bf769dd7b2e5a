#include "reads.h"

#include <stdio.h>
#include <string.h>

typedef struct counting {
    cf_reads *reads;
    const cf_holding *holding;
    cf_arena *arena;
    cf_map seen; /* of (set of ranks, file): the bits are set */
} counting;

static bool begin(counting *c, cf_err *err)
{
    cf_reads *r = c->reads;
    const size_t ranks = (size_t)c->holding->ranks;
    r->row = r->n_files / 64 + 1;
    cf_map_init(&c->seen, c->arena);
    r->opened = CF_NEWS(c->arena, uint64_t, ranks * r->row);
    r->requests = CF_NEWS(c->arena, uint64_t, ranks);
    r->bytes = CF_NEWS(c->arena, uint64_t, ranks);
    r->kept = CF_NEWS(c->arena, uint64_t, ranks);
    r->fan_in = CF_NEWS(c->arena, uint32_t, ranks);
    return cf_arena_ok(c->arena, err);
}

/* Sums by set are spread over its ranks at the end: sets are few, items are not. */
typedef struct total {
    const cf_ranks *ranks;
    uint64_t requests, bytes;
} total;

static total *total_of(counting *c, const cf_ranks *ranks, uint32_t file, total **all, size_t *n,
                       size_t *cap)
{
    struct {
        const cf_ranks *ranks;
        uint64_t file;
    } pair = {ranks, (uint64_t)file + 1};
    bool fresh;
    const void *key = cf_memdup(c->arena, &pair, sizeof pair);
    uint64_t *place = key ? cf_map_put(&c->seen, key, sizeof pair, &fresh) : NULL;
    if (!place) return NULL;
    if (fresh) {
        for (size_t i = 0; i < ranks->count; i++)
            c->reads->opened[(size_t)ranks->list[i] * c->reads->row + file / 64] |= 1ull
                                                                                    << file % 64;
        total *t = CF_PUSH(c->arena, *all, *n, *cap);
        if (!t) return NULL;
        *t = (total){.ranks = ranks};
        *place = *n;
    }
    return &(*all)[*place - 1];
}

static void end(counting *c)
{
    cf_reads *r = c->reads;
    for (int32_t k = 0; k < c->holding->ranks; k++) {
        for (size_t i = 0; i < r->row; i++)
            r->fan_in[k] += (uint32_t)__builtin_popcountll(r->opened[(size_t)k * r->row + i]);
        if (r->fan_in[k] > r->max_fan_in) r->max_fan_in = r->fan_in[k];
    }
}

/* One way to read all: which file an item lies in, and in whose. */
typedef struct placed {
    uint32_t file;
    int32_t rank;
} placed;

static bool count(counting *c, const placed *places, cf_err *err)
{
    total *all = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < c->holding->count; i++) {
        const cf_held *held = &c->holding->items[i];
        c->reads->kept[places[i].rank] += held->stored;
        if (!held->value && !held->bytes) continue; /* nobody asks for no elements */
        total *t = total_of(c, held->holders, places[i].file, &all, &n, &cap);
        if (!t) return cf_arena_ok(c->arena, err);
        t->requests += held->stored > 0;
        t->bytes += held->stored;
        c->reads->duplicated += held->stored * (held->holders->count - 1);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i].ranks->count; k++) {
            c->reads->requests[all[i].ranks->list[k]] += all[i].requests;
            c->reads->bytes[all[i].ranks->list[k]] += all[i].bytes;
        }
    return true;
}

/* Where every rank has a copy, it reads its own. */
static void count_copies(counting *c, const uint32_t *numbers, const cf_held *held)
{
    cf_reads *r = c->reads;
    const cf_row *row = held->row;
    const size_t n = held->value ? row->n_values : row->n_pieces;
    uint64_t readers = 0;
    for (size_t i = 0; i < n; i++) {
        if (!held->value && row->pieces[i].replica_of != held->piece) continue;
        int32_t rank = held->value ? row->values[i].rank : row->pieces[i].rank;
        uint32_t file = held->value ? row->values[i].file : row->pieces[i].file;
        if (!held->value) {
            const cf_storage *s = row->pieces[i].view->storage;
            if (s->place != CF_IN_MEMORY && s->place != CF_NOWHERE) file = s->file;
        } else if (row->values[i].node && cf_node_is_item(row->values[i].node)) {
            file = row->values[i].node->storage->file;
        }
        if (rank < 0) rank = 0;
        r->kept[rank] += held->stored;
        if (!held->value && !held->bytes) continue;
        const uint32_t number = numbers[file];
        r->opened[(size_t)rank * r->row + number / 64] |= 1ull << number % 64;
        r->requests[rank] += held->stored > 0;
        r->bytes[rank] += held->stored;
        if (readers++) r->duplicated += held->stored;
    }
}

static void mark(bool *used, const cf_held *held)
{
    const cf_row *row = held->row;
    used[held->file] = true;
    if (!held->copies) return;
    for (size_t i = 0; i < row->n_values; i++) {
        const cf_node *node = row->values[i].node;
        used[node && cf_node_is_item(node) ? node->storage->file : row->values[i].file] = true;
    }
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_storage *s = row->pieces[i].view->storage;
        const bool none = s->place == CF_IN_MEMORY || s->place == CF_NOWHERE;
        used[none ? row->pieces[i].file : s->file] = true;
    }
}

bool cf_reads_now(cf_reads *reads, const cf_holding *holding, const cf_catalogue *cat,
                  cf_arena *arena, cf_err *err)
{
    counting c = {.reads = reads, .holding = holding, .arena = arena};
    const uint32_t n = cat->source->dir.count;
    memset(reads, 0, sizeof *reads);
    bool *used = CF_NEWS(arena, bool, n + 1u);
    uint32_t *numbers = CF_NEWS(arena, uint32_t, n + 1u);
    reads->files = CF_NEWS(arena, const char *, n + 1u);
    if (!cf_arena_ok(arena, err)) return false;
    for (size_t i = 0; i < holding->count; i++) mark(used, &holding->items[i]);
    for (uint32_t i = 0; i < n; i++) {
        numbers[i] = reads->n_files;
        if (used[i]) reads->files[reads->n_files++] = cf_source_path(cat->source, i);
    }
    if (!begin(&c, err)) return false;
    placed *places = CF_NEWS(arena, placed, holding->count + 1);
    cf_held *items = CF_NEWS(arena, cf_held, holding->count + 1);
    if (!cf_arena_ok(arena, err)) return false;
    cf_holding once = {.items = items, .ranks = holding->ranks};
    for (size_t i = 0; i < holding->count; i++) {
        const cf_held *held = &holding->items[i];
        if (held->copies) {
            count_copies(&c, numbers, held);
            continue;
        }
        places[once.count] = (placed){numbers[held->file], held->rank};
        items[once.count++] = *held;
    }
    c.holding = &once;
    if (!count(&c, places, err)) return false;
    end(&c);
    return cf_arena_ok(arena, err);
}

bool cf_reads_kept(cf_reads *reads, const cf_holding *holding, cf_arena *arena, cf_err *err)
{
    counting c = {.reads = reads, .holding = holding, .arena = arena};
    memset(reads, 0, sizeof *reads);
    uint32_t *numbers = CF_NEWS(arena, uint32_t, (size_t)holding->ranks + 1);
    placed *places = CF_NEWS(arena, placed, holding->count + 1);
    reads->files = CF_NEWS(arena, const char *, (size_t)holding->ranks + 1);
    if (!cf_arena_ok(arena, err)) return false;
    for (size_t i = 0; i < holding->count; i++) numbers[holding->items[i].keeper] = 1;
    for (int32_t r = 0; r < holding->ranks; r++) {
        if (!numbers[r]) continue;
        char name[40];
        snprintf(name, sizeof name, "__%d_0.distcp", r);
        numbers[r] = reads->n_files;
        reads->files[reads->n_files++] = cf_strndup(arena, name, strlen(name));
    }
    for (size_t i = 0; i < holding->count; i++) {
        const int32_t keeper = holding->items[i].keeper;
        places[i] = (placed){numbers[keeper], keeper};
    }
    if (!begin(&c, err) || !count(&c, places, err)) return false;
    end(&c);
    return cf_arena_ok(arena, err);
}
