#include "arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct cf_block {
    struct cf_block *next;
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
    if (to->failed) to->left = 0;
    if (!last) return;
    while (last->next) last = last->next;
    if (to->head) {
        last->next = to->head->next;
        to->head->next = from->head;
    } else {
        to->head = from->head;
        to->at = from->at;
        to->left = to->failed ? 0 : from->left;
    }
    to->held += from->held;
    cf_arena_init(from, from->limit);
}

static void *fail(cf_arena *arena, bool over)
{
    arena->failed = true;
    arena->over |= over;
    arena->left = 0;
    return NULL;
}

/* Blocks grow with the arena, so that a small tree costs little and a large one few mallocs. A
 * large piece gets a block behind the current one, whose rest stays in use. */
void *cf_alloc_block(cf_arena *arena, size_t need)
{
    if (arena->failed || need > SIZE_MAX / 2) return fail(arena, false);
    need = (need + 7) & ~(size_t)7;
    size_t size = arena->held < FIRST  ? FIRST
                  : arena->held > MOST ? MOST
                                       : arena->held & ~(size_t)7;
    if (size < need) size = need;
    if (arena->limit && (size > arena->limit || arena->held > arena->limit - size)) {
        size = need;
        if (size > arena->limit || arena->held > arena->limit - size) return fail(arena, true);
    }
    cf_block *b = malloc(sizeof *b + size);
    if (!b) return fail(arena, false);
    arena->held += size;
    if (arena->head && need >= MOST / 4 && size == need) {
        b->next = arena->head->next;
        arena->head->next = b;
        return b->bytes;
    }
    b->next = arena->head;
    arena->head = b;
    arena->at = b->bytes + need;
    arena->left = size - need;
    return b->bytes;
}

void *cf_calloc(cf_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return fail(arena, false);
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
    if (__builtin_mul_overflow(more, size, &bytes)) return fail(arena, false);
    void *p = cf_alloc(arena, bytes);
    if (!p) return false;
    if (count) memcpy(p, *items, count * size);
    *items = p;
    *cap = more;
    return true;
}
