#include "map.h"

#include <string.h>
#include <sys/random.h>

typedef struct cf_slot {
    const void *key; /* NULL: free */
    size_t length;
    uint64_t hash, value;
} cf_slot;

static uint64_t mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* Multiply-fold over 16 bytes a step, as wyhash does. */
uint64_t cf_hash(const void *bytes, size_t length, uint64_t seed)
{
    const uint64_t p0 = 0xa0761d6478bd642fULL, p1 = 0xe7037ed1a0b428dbULL;
    const unsigned char *p = bytes;
    uint64_t h = seed ^ mix(length ^ p0, p1);
    for (; length >= 16; p += 16, length -= 16) {
        uint64_t a, b;
        memcpy(&a, p, 8);
        memcpy(&b, p + 8, 8);
        h = mix(a ^ p0 ^ h, b ^ p1);
    }
    uint64_t tail[2] = {0, 0};
    if (length) memcpy(tail, p, length);
    return mix(mix(tail[0] ^ p0 ^ h, tail[1] ^ p1), p0 ^ length);
}

static uint64_t process_seed(void)
{
    static _Atomic uint64_t seed;
    uint64_t s = seed;
    if (s) return s;
    if (getrandom(&s, sizeof s, GRND_NONBLOCK) != sizeof s) s = (uint64_t)(uintptr_t)&seed;
    s |= 1;
    uint64_t none = 0;
    return __atomic_compare_exchange_n((uint64_t *)&seed, &none, s, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST)
               ? s
               : none;
}

uint64_t cf_hash_bytes(const void *bytes, size_t length)
{
    return cf_hash(bytes, length, process_seed());
}

uint64_t cf_hash_word(uint64_t word)
{
    return mix(word ^ process_seed(), 0xe7037ed1a0b428dbULL);
}

void cf_map_init(cf_map *map, cf_arena *arena)
{
    *map = (cf_map){.arena = arena};
}

static cf_slot *find(const cf_map *map, const void *key, size_t length, uint64_t hash)
{
    for (size_t i = hash & (map->cap - 1);; i = (i + 1) & (map->cap - 1)) {
        cf_slot *s = &map->slots[i];
        if (!s->key) return s;
        if (s->hash == hash && s->length == length && memcmp(s->key, key, length) == 0) return s;
    }
}

bool cf_map_get(const cf_map *map, const void *key, size_t length, uint64_t *value)
{
    if (!map->cap) return false;
    const cf_slot *s = find(map, key, length, cf_hash(key, length, process_seed()));
    if (!s->key) return false;
    *value = s->value;
    return true;
}

static bool widen(cf_map *map)
{
    const size_t cap = map->cap ? map->cap * 2 : 16;
    cf_slot *slots = CF_NEWS(map->arena, cf_slot, cap);
    if (!slots) return false;
    cf_map wide = {.arena = map->arena, .slots = slots, .count = map->count, .cap = cap};
    for (size_t i = 0; i < map->cap; i++) {
        const cf_slot *s = &map->slots[i];
        if (s->key) *find(&wide, s->key, s->length, s->hash) = *s;
    }
    cf_give_back(map->arena, map->slots, map->cap * sizeof *slots);
    *map = wide;
    return true;
}

uint64_t *cf_map_put(cf_map *map, const void *key, size_t length, bool *fresh)
{
    if (map->count * 4 >= map->cap * 3 && !widen(map)) return NULL;
    const uint64_t hash = cf_hash(key, length, process_seed());
    cf_slot *s = find(map, key, length, hash);
    *fresh = !s->key;
    if (*fresh) {
        *s = (cf_slot){.key = key, .length = length, .hash = hash};
        map->count++;
    }
    return &s->value;
}
