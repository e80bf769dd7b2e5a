/* A hash map from byte strings to numbers. Keys are borrowed: they outlive the map. Hashing is
 * seeded per process, so that a file cannot be made to collide; nothing depends on its order. */
#ifndef CF_MAP_H
#define CF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

typedef struct cf_map {
    cf_arena *arena;
    struct cf_slot *slots;
    size_t count, cap;
} cf_map;

void cf_map_init(cf_map *map, cf_arena *arena);
/* Sets *value to the key's number; false if there is none. */
bool cf_map_get(const cf_map *map, const void *key, size_t length, uint64_t *value);
/* The number's place, new and 0 if `*fresh`; NULL if memory failed. Valid until the next put. */
uint64_t *cf_map_put(cf_map *map, const void *key, size_t length, bool *fresh);

/* Of this process: seeded. */
uint64_t cf_hash_bytes(const void *bytes, size_t length);
uint64_t cf_hash_word(uint64_t word);
/* The same everywhere. */
uint64_t cf_hash(const void *bytes, size_t length, uint64_t seed);

#endif
