#include "arena.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct cf_block {
    struct cf_block *next;
    _Alignas(8) unsigned char bytes[];
} cf_block;

typedef struct cf_large {
    struct cf_large *next, *previous;
    size_t size;
    _Alignas(8) unsigned char bytes[];
} cf_large;

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
    for (cf_large *l = arena->large, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    cf_arena_init(arena, arena->limit);
}

void cf_arena_adopt(cf_arena *to, cf_arena *from)
{
    to->failed = to->failed || from->failed;
    cf_block *last = from->head;
    while (last && last->next) last = last->next;
    if (last && to->head) {
        last->next = to->head->next;
        to->head->next = from->head;
    } else if (last) {
        to->head = from->head;
        to->at = from->at;
        to->left = from->left;
    }
    if (to->failed) to->left = 0;
    cf_large *end = from->large;
    while (end && end->next) end = end->next;
    if (end) {
        end->next = to->large;
        if (to->large) to->large->previous = end;
        to->large = from->large;
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

static size_t rounded(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

static bool over(const cf_arena *arena, size_t more)
{
    return arena->limit && (more > arena->limit || arena->held > arena->limit - more);
}

static cf_large *large_of(void *piece)
{
    return (cf_large *)((unsigned char *)piece - offsetof(cf_large, bytes));
}

/* Its neighbours point at it: it is new, or has moved. */
static void *link_large(cf_arena *arena, cf_large *l)
{
    if (l->next) l->next->previous = l;
    *(l->previous ? &l->previous->next : &arena->large) = l;
    return l->bytes;
}

static void *alloc_large(cf_arena *arena, size_t size, bool cleared)
{
    if (arena->failed || size > SIZE_MAX / 2) return fail(arena, false);
    size = rounded(size);
    if (over(arena, size)) return fail(arena, true);
    cf_large *l = cleared ? calloc(1, sizeof *l + size) : malloc(sizeof *l + size);
    if (!l) return fail(arena, false);
    arena->held += size;
    l->size = size;
    l->next = arena->large;
    l->previous = NULL;
    return link_large(arena, l);
}

static void *grow_large(cf_arena *arena, void *piece, size_t size)
{
    cf_large *l = large_of(piece);
    const size_t more = rounded(size) - l->size;
    if (arena->failed || over(arena, more)) return fail(arena, !arena->failed);
    l = realloc(l, sizeof *l + l->size + more);
    if (!l) return fail(arena, false);
    arena->held += more;
    l->size += more;
    return link_large(arena, l);
}

void cf_give_back(cf_arena *arena, void *piece, size_t size)
{
    if (!piece || size < CF_LARGE) return;
    cf_large *l = large_of(piece);
    if (l->next) l->next->previous = l->previous;
    *(l->previous ? &l->previous->next : &arena->large) = l->next;
    arena->held -= l->size;
    free(l);
}

/* Blocks grow with the arena, so that a small tree costs little and a large one few mallocs. */
void *cf_alloc_block(cf_arena *arena, size_t need)
{
    if (need >= CF_LARGE) return alloc_large(arena, need, false);
    if (arena->failed) return NULL;
    need = rounded(need);
    size_t size = arena->held < FIRST  ? FIRST
                  : arena->held > MOST ? MOST
                                       : arena->held & ~(size_t)7;
    if (size < need || over(arena, size)) size = need;
    if (over(arena, size)) return fail(arena, true);
    cf_block *b = malloc(sizeof *b + size);
    if (!b) return fail(arena, false);
    arena->held += size;
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
    if (bytes >= CF_LARGE) return alloc_large(arena, bytes, true);
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
    if (__builtin_mul_overflow(more, size, &bytes) || bytes > SIZE_MAX / 2)
        return fail(arena, false);
    const bool large = *cap * size >= CF_LARGE;
    void *p = large ? grow_large(arena, *items, bytes) : cf_alloc(arena, bytes);
    if (!p) return false;
    if (!large && count) memcpy(p, *items, count * size);
    *items = p;
    *cap = more;
    return true;
}
