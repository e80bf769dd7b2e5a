#include "arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct cf_block {
    struct cf_block *next;
    size_t size;
    _Alignas(8) unsigned char bytes[];
} cf_block;

enum { FIRST = 4096, MOST = 1 << 20 };

void cf_arena_init(cf_arena *arena, size_t limit)
{
    memset(arena, 0, sizeof *arena);
    arena->limit = limit;
}

void cf_arena_free(cf_arena *arena)
{
    for (cf_block *b = arena->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    cf_arena_init(arena, arena->limit);
}

void cf_arena_adopt(cf_arena *to, cf_arena *from)
{
    cf_block *last = from->head;
    to->failed = to->failed || from->failed;
    if (!last) return;
    while (last->next) last = last->next;
    if (to->head) {
        last->next = to->head->next;
        to->head->next = from->head;
    } else {
        to->head = from->head;
        to->used = from->used;
    }
    to->held += from->held;
    cf_arena_init(from, from->limit);
}

/* Blocks grow with the arena, so that a small tree costs little and a large one few mallocs. */
static cf_block *add_block(cf_arena *arena, size_t need)
{
    size_t size = arena->held < FIRST ? FIRST : arena->held > MOST ? MOST : arena->held;
    if (size < need) size = need;
    if (arena->limit && (size > arena->limit || arena->held > arena->limit - size)) {
        size = need;
        if (size > arena->limit || arena->held > arena->limit - size) {
            arena->failed = arena->over = true;
            return NULL;
        }
    }
    cf_block *b = malloc(sizeof *b + size);
    if (!b) {
        arena->failed = true;
        return NULL;
    }
    b->size = size;
    b->next = arena->head;
    arena->head = b;
    arena->held += size;
    arena->used = 0;
    return b;
}

void *cf_alloc(cf_arena *arena, size_t size)
{
    if (arena->failed) return NULL;
    if (size > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }
    size = (size + 7) & ~(size_t)7;
    cf_block *b = arena->head;
    if (!b || b->size - arena->used < size) {
        /* A large piece gets a block behind the current one, whose rest stays in use. */
        if (b && size >= MOST / 4) {
            const size_t used = arena->used;
            cf_block *big = add_block(arena, size);
            if (!big) return NULL;
            if (big->size == size) {
                arena->head = b;
                big->next = b->next;
                b->next = big;
                arena->used = used;
                return big->bytes;
            }
            arena->used = size;
            return big->bytes;
        }
        b = add_block(arena, size);
        if (!b) return NULL;
    }
    void *p = b->bytes + arena->used;
    arena->used += size;
    return p;
}

void *cf_calloc(cf_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        arena->failed = true;
        return NULL;
    }
    void *p = cf_alloc(arena, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

char *cf_strndup(cf_arena *arena, const char *text, size_t length)
{
    char *p = cf_alloc(arena, length + 1);
    if (!p) return NULL;
    if (length) memcpy(p, text, length);
    p[length] = '\0';
    return p;
}

void *cf_memdup(cf_arena *arena, const void *bytes, size_t size)
{
    void *p = cf_alloc(arena, size);
    if (p && size) memcpy(p, bytes, size);
    return p;
}

bool cf_arena_ok(const cf_arena *arena, cf_err *err)
{
    if (!arena->failed) return true;
    if (arena->over)
        return cf_fail(err, CF_E_LIMIT, "needs more than %zu bytes of memory", arena->limit);
    return cf_fail(err, CF_E_MEMORY, "out of memory");
}

bool cf_grow(cf_arena *arena, void **items, size_t count, size_t *cap, size_t size)
{
    if (count < *cap) return true;
    size_t bytes;
    const size_t more = *cap ? *cap * 2 : 4;
    if (__builtin_mul_overflow(more, size, &bytes)) {
        arena->failed = true;
        return false;
    }
    void *p = cf_alloc(arena, bytes);
    if (!p) return false;
    if (count) memcpy(p, *items, count * size);
    *items = p;
    *cap = more;
    return true;
}
