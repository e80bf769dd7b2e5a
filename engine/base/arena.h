/* Memory with one lifetime: allocated piece by piece, freed at once.
 *
 * Small pieces share blocks and stay where they are. A large one has a block of its own, in which
 * an array grows, and which can be given back before the end. A failed allocation makes it
 * sticky-failed: later ones give NULL too, and a verb checks cf_arena_ok once at its end. `limit`
 * bounds the bytes held (0: no bound), so that a small hostile input cannot take much memory.
 */
#ifndef CF_ARENA_H
#define CF_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "sanitized.h"

/* Bytes from which a piece is large; few under sanitizers, which see who holds what has moved. */
enum { CF_LARGE = CF_SANITIZED ? 256 : 256 << 10 };

typedef struct cf_arena {
    struct cf_block *head;
    unsigned char *at; /* what is left of the head's block */
    size_t left;       /* a multiple of 8; 0 once the arena failed */
    struct cf_large *large;
    size_t held, limit;
    bool failed, over;
} cf_arena;

void cf_arena_init(cf_arena *arena, size_t limit);
void cf_arena_free(cf_arena *arena);

/* What `from` holds becomes `to`'s; from is empty then. */
void cf_arena_adopt(cf_arena *to, cf_arena *from);

/* size bytes aligned to 8, not cleared; NULL when it failed. size 0 gives a valid pointer. */
static inline void *cf_alloc(cf_arena *arena, size_t size);
/* count * size bytes, cleared; NULL when that overflows or fails. */
void *cf_calloc(cf_arena *arena, size_t count, size_t size);
/* A copy with a NUL behind it; text may hold NULs. */
char *cf_strndup(cf_arena *arena, const char *text, size_t length);
void *cf_memdup(cf_arena *arena, const void *bytes, size_t size);
/* A piece of `size` bytes (NULL: none) that nobody needs any more; a small one stays. */
void cf_give_back(cf_arena *arena, void *piece, size_t size);

/* False with E_LIMIT (limit) or E_MEMORY (malloc) if any allocation failed. */
bool cf_arena_ok(const cf_arena *arena, cf_err *err);

void *cf_alloc_block(cf_arena *arena, size_t size); /* where the current block does not do */
static inline void *cf_alloc(cf_arena *arena, size_t size)
{
    if (size > arena->left || !arena->left || size >= CF_LARGE) return cf_alloc_block(arena, size);
    void *p = arena->at;
    size = (size + 7) & ~(size_t)7;
    arena->at += size;
    arena->left -= size;
    return p;
}

#define CF_NEW(arena, type)         ((type *)cf_calloc((arena), 1, sizeof(type)))
#define CF_NEWS(arena, type, count) ((type *)cf_calloc((arena), (count), sizeof(type)))

/* Room for one more in a growing array that lives in an arena. It may move; a small one's old copy
 * stays behind. *items, *cap as before on failure, then false. */
bool cf_grow(cf_arena *arena, void **items, size_t count, size_t *cap, size_t size);

#define CF_PUSH(arena, list, count, cap)                                                           \
    (cf_grow((arena), (void **)&(list), (count), &(cap), sizeof *(list)) ? &(list)[(count)++]      \
                                                                         : NULL)

#endif
