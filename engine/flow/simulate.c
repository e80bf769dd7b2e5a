#include "simulate.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "num.h"

/* torch 2.13: bytes of an item beside its elements, and of the smallest value. */
enum { ITEM = 1513, VALUE = 1261, MOST_ITEMS = 8 << 20 };

typedef struct layout {
    int64_t ranks, shard, params, tensors, states, values;
    cf_dtype dtype;
    bool innermost;
} layout;

static const struct key {
    const char *name;
    size_t at; /* of the number; SIZE_MAX: a word */
    double least, most;
} KEYS[] = {{"ranks", offsetof(layout, ranks), 1, 1 << 16},
            {"shard", offsetof(layout, shard), 1, 1 << 16},
            {"params", offsetof(layout, params), 1, 1e15},
            {"tensors", offsetof(layout, tensors), 1, 1e6},
            {"states", offsetof(layout, states), 0, 16},
            {"values", offsetof(layout, values), 0, 1e6},
            {"dtype", SIZE_MAX, 0, 0},
            {"replicas", SIZE_MAX, 0, 0}};

enum { N_KEYS = sizeof KEYS / sizeof *KEYS };

/* "512", "1.2e9", "7B", "350M", "64k". */
static bool number(const char *text, double *out)
{
    static const char units[] = "kKMmBbGgTt";
    static const double factors[] = {1e3, 1e3, 1e6, 1e6, 1e9, 1e9, 1e9, 1e9, 1e12, 1e12};
    char *end;
    *out = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        *out *= factors[unit - units];
        end++;
    }
    return end != text && !*end && isfinite(*out) && *out == floor(*out);
}

static bool word(layout *l, const char *name, const char *value, cf_err *err)
{
    if (strcmp(name, "dtype") == 0) {
        char upper[16] = "";
        for (size_t i = 0; value[i] && i + 1 < sizeof upper; i++)
            upper[i] = (char)toupper((unsigned char)value[i]);
        l->dtype = cf_dtype_named(upper, strlen(upper));
        return l->dtype ? true
                        : cf_fail(err, CF_E_USAGE, "--simulate: there is no dtype %s", value);
    }
    l->innermost = strcmp(value, "innermost") == 0;
    return l->innermost || strcmp(value, "outermost") == 0
               ? true
               : cf_fail(err, CF_E_USAGE, "--simulate: replicas are outermost or innermost, not %s",
                         value);
}

static bool set(layout *l, const char *name, const char *value, cf_err *err)
{
    const struct key *key = NULL;
    const char *near = NULL;
    int best = 3;
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(KEYS[i].name, name) == 0) key = &KEYS[i];
        const int d = cf_text_distance(name, KEYS[i].name);
        if (d < best) {
            best = d;
            near = KEYS[i].name;
        }
    }
    if (!key) {
        cf_fail(err, CF_E_USAGE, "--simulate has no key %s", name);
        return near ? cf_err_hint(err, "did you mean %s?", near)
                    : cf_err_hint(err, "ranks shard params tensors states values dtype replicas");
    }
    if (key->at == SIZE_MAX) return word(l, name, value, err);
    double n;
    if (!number(value, &n) || n < key->least || n > key->most)
        return cf_fail(err, CF_E_USAGE, "--simulate: %s is a number from %.0f to %.0f, not '%s'",
                       name, key->least, key->most, value);
    *(int64_t *)(void *)((char *)l + key->at) = (int64_t)n;
    return true;
}

static bool parse(layout *l, const char *text, cf_err *err)
{
    *l = (layout){.params = 1000000000, .tensors = 300, .states = 2, .values = 24, .dtype = CF_F32};
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, ",");
        char pair[128];
        if (n >= sizeof pair) return cf_fail(err, CF_E_USAGE, "--simulate: '%s' is too long", at);
        memcpy(pair, at, n);
        pair[n] = '\0';
        char *equals = strchr(pair, '=');
        if (!equals) {
            cf_fail(err, CF_E_USAGE, "--simulate: '%s' is no key=value", pair);
            return cf_err_hint(err, "as ranks=512,shard=8,params=7B");
        }
        *equals = '\0';
        if (!set(l, pair, equals + 1, err)) return false;
        at += n + (at[n] == ',');
    }
    if (!l->ranks) {
        cf_fail(err, CF_E_USAGE, "--simulate: for how many ranks?");
        return cf_err_hint(err, "as ranks=512,shard=8,params=7B");
    }
    if (!l->shard) l->shard = l->ranks;
    if (l->ranks % l->shard)
        return cf_fail(err, CF_E_USAGE, "--simulate: shard=%lld does not divide ranks=%lld",
                       (long long)l->shard, (long long)l->ranks);
    if (l->params < l->tensors)
        return cf_fail(err, CF_E_USAGE, "--simulate: %lld params are not enough for %lld tensors",
                       (long long)l->params, (long long)l->tensors);
    const double items = (double)l->tensors * (double)((l->states + 1) * l->shard + 1);
    if (items > MOST_ITEMS)
        return cf_fail(err, CF_E_LIMIT, "--simulate: %.0f items, at most %d", items, MOST_ITEMS);
    return true;
}

typedef struct making {
    const layout *l;
    cf_holding *out;
    size_t cap;
    const cf_ranks *all, **groups; /* by number of the chunk */
} making;

static bool add(making *m, const char *key, const cf_ranks *holders, uint64_t bytes, uint64_t whole,
                bool value)
{
    cf_held *held = CF_PUSH(m->out->sets.arena, m->out->items, m->out->count, m->cap);
    if (!held || !holders) return false;
    *held = (cf_held){.key = key,
                      .holders = holders,
                      .bytes = bytes,
                      .whole_bytes = whole,
                      .value = value,
                      .stored = value ? bytes : bytes + ITEM};
    return true;
}

static const char *name_of(cf_arena *arena, const char *what, int64_t i, const char *state)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%lld%s", what, (long long)i, state);
    return cf_strndup(arena, name, strlen(name));
}

/* A tensor of so many elements, cut as torch.chunk cuts: parts of equal size, a shorter one, and
 * then none. */
static void add_cut(making *m, const char *key, int64_t elements)
{
    const int64_t size = cf_dtype_size(m->l->dtype),
                  each = (elements + m->l->shard - 1) / m->l->shard;
    for (int64_t i = 0, at = 0; at < elements; i++, at += each)
        add(m, key, m->groups[i], (uint64_t)(cf_min(each, elements - at) * size),
            (uint64_t)(elements * size), false);
}

static const cf_ranks *group(making *m, int32_t *list, int64_t i)
{
    const int64_t copies = m->l->ranks / m->l->shard;
    for (int64_t k = 0; k < copies; k++)
        list[k] = (int32_t)(m->l->innermost ? i * copies + k : k * m->l->shard + i);
    return cf_rank_set(&m->out->sets, list, (size_t)copies);
}

bool cf_simulate(cf_holding *holding, const char *text, cf_arena *arena, cf_err *err)
{
    layout l;
    if (!parse(&l, text, err)) return false;
    making m = {.l = &l, .out = holding};
    *holding = (cf_holding){.ranks = (int32_t)l.ranks, .inferred = true};
    cf_rank_sets_init(&holding->sets, arena);
    int32_t *list = CF_NEWS(arena, int32_t, (size_t)l.ranks);
    m.groups = CF_NEWS(arena, const cf_ranks *, (size_t)l.shard);
    for (int32_t r = 0; list && r < l.ranks; r++) list[r] = r;
    m.all = list ? cf_rank_set(&holding->sets, list, (size_t)l.ranks) : NULL;
    for (int64_t i = 0; list && m.groups && i < l.shard; i++) m.groups[i] = group(&m, list, i);
    if (!cf_arena_ok(arena, err)) return false;
    const int64_t each = l.params / l.tensors, more = l.params % l.tensors;
    for (int64_t t = 0; t < l.tensors; t++)
        add_cut(&m, name_of(arena, "model", t, ""), each + (t < more));
    for (int64_t t = 0; l.states && t < l.tensors; t++) {
        add(&m, name_of(arena, "optim", t, ".step"), m.all, 4, 4, false);
        for (int64_t s = 0; s < l.states; s++) {
            char state[32];
            snprintf(state, sizeof state, ".state%lld", (long long)s);
            add_cut(&m, name_of(arena, "optim", t, state), each + (t < more));
        }
    }
    for (int64_t i = 0; i < l.values; i++)
        add(&m, name_of(arena, "value", i, ""), m.all, VALUE, 1, true);
    return cf_arena_ok(arena, err);
}
