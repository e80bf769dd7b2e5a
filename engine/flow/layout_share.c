/* Which tensors of a torch file have their bytes together, as the checkpoint had it.
 *
 * Tensors with the very same elements (tied weights, aliases) are one storage, also where they are
 * made of many pieces. Several views of one storage, or one that is transposed or expanded, keep
 * that storage whole, with their offsets and strides, if it is no larger than copies of them would
 * be: a slice alone does not drag along what it was cut from.
 */
#include <string.h>

#include "laying.h"
#include "num.h"

/* What tells one storage from another, without padding: storages of a file that was parsed again
 * are other structs. */
typedef struct identity {
    uint64_t place, file, offset, size, packed, bytes;
} identity;

typedef struct group {
    const cf_storage *storage;
    cf_dtype dtype;
    bool keep;       /* all views are plain ones of one dtype */
    uint32_t views;  /* different ones */
    uint64_t bytes;  /* of copies of them */
    uint32_t number; /* in the sharing, when it is kept */
} group;

typedef struct share {
    cf_layout *l;
    const cf_items *items;
    cf_arena arena; /* of all that is not the result */
    cf_map groups, alike;
    uint32_t *group_of; /* by number of the item; CF_B_NONE: it is no single view */
    group *list;
    size_t count, cap;
} share;

static identity identity_of(const cf_storage *s)
{
    const uint64_t memory = s->place == CF_IN_MEMORY ? (uintptr_t)s->bytes : 0;
    return (identity){(uint64_t)s->place,     memory ? 0 : s->file,
                      memory ? 0 : s->offset, s->size,
                      memory ? 0 : s->packed, memory};
}

/* The view that an item is, alone. */
static const cf_view *single(const cf_item *it)
{
    const cf_tensor *t = it->tensor;
    return !t->sum && t->numel && t->n_terms == 1 && t->terms[0].count == 1
               ? t->terms[0].tiles[0].view
               : NULL;
}

/* Do the item's elements lie in the storage as they are to be in the file? A big-endian storage is
 * turned as a whole. */
static bool is_plain(const cf_item *it, const cf_view *v)
{
    const int64_t size = cf_dtype_size(v->stored);
    return it->cast == v->stored && v->dtype == v->stored && !v->conj && !v->neg &&
           v->offset % (uint64_t)size == 0 && v->storage->size % (uint64_t)size == 0 &&
           (v->storage->place == CF_IN_FILE || v->storage->place == CF_IN_MEMBER);
}

/* ---- the very same elements --------------------------------------------------------------------
 */

static void add_view(cf_text *key, const cf_view *v)
{
    const identity id = identity_of(v->storage);
    const int64_t how[] = {(int64_t)v->offset, v->stored, v->dtype, v->conj, v->neg, v->numel};
    const bool dense = cf_view_dense(v); /* then the shape says nothing */
    cf_text_add(key, &id, sizeof id);
    cf_text_add(key, how, sizeof how);
    if (dense) return;
    cf_text_add(key, v->shape, v->ndim * sizeof *v->shape);
    cf_text_add(key, v->stride, v->ndim * sizeof *v->stride);
}

/* Everything that an item's bytes follow from. */
static void spell(cf_text *key, const cf_item *it)
{
    const cf_tensor *t = it->tensor;
    const int64_t head[] = {it->dtype, it->cast, t->sum, (int64_t)t->n_terms};
    key->size = 0;
    cf_text_add(key, head, sizeof head);
    for (size_t i = 0; i < t->n_terms; i++) {
        const cf_term *term = &t->terms[i];
        const bool alone = term->count == 1 && !t->sum;
        if (!alone) cf_text_add(key, t->shape, t->ndim * sizeof *t->shape);
        if (t->sum) cf_text_add(key, &term->weight, sizeof term->weight);
        for (size_t k = 0; k < term->count; k++) {
            if (!alone) cf_text_add(key, term->tiles[k].at, t->ndim * sizeof *t->shape);
            if (!alone) cf_text_add(key, term->tiles[k].view->shape, t->ndim * sizeof *t->shape);
            add_view(key, term->tiles[k].view);
        }
    }
}

static bool find_alike(share *s, cf_text *key, uint32_t number, uint32_t *like, cf_err *err)
{
    bool fresh;
    spell(key, &s->items->list[number]);
    const char *own = cf_text_ok(key, err) ? cf_memdup(&s->arena, key->at, key->size) : NULL;
    uint64_t *place = own ? cf_map_put(&s->alike, own, key->size, &fresh) : NULL;
    if (!place) return key->failed ? false : cf_arena_ok(&s->arena, err);
    if (fresh) *place = number;
    *like = (uint32_t)*place;
    return true;
}

/* ---- storages ----------------------------------------------------------------------------------
 */

static bool add_to_group(share *s, uint32_t number, cf_err *err)
{
    const cf_view *v = single(&s->items->list[number]);
    if (!v) return true;
    const identity id = identity_of(v->storage);
    const void *own = cf_memdup(&s->arena, &id, sizeof id);
    bool fresh;
    uint64_t *place = own ? cf_map_put(&s->groups, own, sizeof id, &fresh) : NULL;
    if (!place) return cf_arena_ok(&s->arena, err);
    if (fresh) {
        *place = s->count;
        group *g = CF_PUSH(&s->arena, s->list, s->count, s->cap);
        if (!g) return cf_arena_ok(&s->arena, err);
        *g = (group){.storage = v->storage, .dtype = v->stored, .keep = true, .number = CF_B_NONE};
    }
    group *g = &s->list[*place];
    g->views++;
    g->keep &= v->stored == g->dtype && is_plain(&s->items->list[number], v);
    s->group_of[number] = (uint32_t)*place;
    return true;
}

/* A kept storage as a row of elements. */
static bool keep_storage(share *s, group *g, cf_sharing *out, cf_err *err)
{
    cf_arena *arena = &s->l->plan->arena;
    const int64_t numel = (int64_t)g->storage->size / cf_dtype_size(g->dtype);
    const cf_view **place = CF_PUSH(arena, out->storages, out->n_storages, out->cap);
    if (!place) return cf_arena_ok(arena, err);
    *place = cf_view_new(arena, g->storage, g->dtype, 0, 1, &numel, NULL, err);
    g->number = (uint32_t)(out->n_storages - 1);
    return *place != NULL;
}

static bool share_all(share *s, cf_sharing *out, cf_err *err)
{
    const size_t n = s->items->count;
    cf_text key = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        out->of[i] = (cf_shared){.like = i, .storage = CF_B_NONE};
        s->group_of[i] = CF_B_NONE;
        ok = add_to_group(s, i, err);
    }
    for (uint32_t i = 0; ok && i < n; i++) {
        group *g = s->group_of[i] == CF_B_NONE ? NULL : &s->list[s->group_of[i]];
        if (s->items->list[i].tensor->numel && (!g || g->views > 1))
            ok = find_alike(s, &key, i, &out->of[i].like, err);
        int64_t bytes = 0;
        const cf_view *v = g ? single(&s->items->list[i]) : NULL;
        if (ok && v && out->of[i].like == i &&
            (!cf_mul(v->numel, cf_dtype_size(v->stored), &bytes) ||
             __builtin_add_overflow(g->bytes, (uint64_t)bytes, &g->bytes)))
            g->bytes = UINT64_MAX;
    }
    cf_text_free(&key);
    for (uint32_t i = 0; ok && i < n; i++) {
        group *g = s->group_of[i] == CF_B_NONE ? NULL : &s->list[s->group_of[i]];
        if (!g || !g->keep || g->bytes < g->storage->size) continue;
        const cf_view *v = single(&s->items->list[i]);
        if (g->views == 1 && cf_view_dense(v)) continue; /* nothing to share */
        if (g->number == CF_B_NONE) ok = keep_storage(s, g, out, err);
        out->of[i].storage = g->number;
        out->of[i].view = v;
    }
    return ok;
}

bool cf_lay_sharing(cf_layout *l, const cf_items *items, cf_sharing *sharing, cf_err *err)
{
    share s = {.l = l, .items = items};
    *sharing = (cf_sharing){.count = items->count};
    cf_arena_init(&s.arena, 0);
    cf_map_init(&s.groups, &s.arena);
    cf_map_init(&s.alike, &s.arena);
    s.group_of = CF_NEWS(&s.arena, uint32_t, items->count + 1);
    sharing->of = CF_NEWS(&l->plan->arena, cf_shared, items->count + 1);
    bool ok = cf_arena_ok(&s.arena, err) && cf_arena_ok(&l->plan->arena, err);
    ok = ok && share_all(&s, sharing, err);
    cf_arena_free(&s.arena);
    return ok;
}
