/* DCP files: __<rank>_0.distcp with its items back to back, and .metadata.
 *
 * An item is an archive of torch.save. What surrounds a tensor in it depends on dtype and shape
 * alone, so it is made once for all tensors that look the same, as are most of a model's: a head,
 * the elements, and a tail into which seals put their CRC-32. Its serialization id is a hash of the
 * head (torch's own is one of the content too; nobody reads it). As torch does, a file begins with
 * its values. A rank that keeps nothing has an empty file. */
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>

#include "dcp.h"
#include "item.h"
#include "num.h"
#include "pickle_tree.h"

enum { MOST_PATCHES = 4 };

/* What is around the elements of tensors of one dtype and shape. */
typedef struct frame {
    cf_ref head, tail;              /* head: all of the item, where there are no elements */
    uint64_t size;                  /* of the elements */
    uint64_t patches[MOST_PATCHES]; /* in the tail: places of the elements' CRC */
    int n_patches;
} frame;

typedef struct laying {
    cf_layout *l;
    const cf_write *w;
    cf_dcp *d;
    cf_arena arena;
    cf_map frames;          /* dtype and shape -> frame */
    cf_map files;           /* of the listing -> number of the record and 1 */
    uint32_t *order;        /* items by file */
    const cf_node **values; /* by number of the thing, read; NULL: raw, or a tensor */
    cf_text left;
    size_t n_left;
} laying;

/* ---- frames ------------------------------------------------------------------------------------
 */

static bool make_frame(laying *y, const cf_item *it, const int64_t *size, frame *f, cf_err *err)
{
    cf_torch_layout z;
    cf_pickler p;
    cf_text pickle = {0}, tail = {0};
    cf_pickle_view view = {.dtype = it->dtype, .ndim = (uint8_t)it->ndim, .shape = size};
    int64_t bytes = 0;
    bool ok = cf_numel(size, it->ndim, &view.numel) &&
              cf_mul(view.numel, cf_dtype_size(it->dtype), &bytes);
    if (!ok) cf_fail(err, CF_E_OVERFLOW, "more than 63 bits of bytes");
    f->size = (uint64_t)bytes;
    cf_pickler_init(&p, &pickle);
    cf_pickle_tensor(&p, &view);
    ok = cf_pickler_end(&p, ok ? err : &(cf_err){0}) && ok;
    cf_pickler_free(&p);
    cf_torch_layout_begin(&z, "archive", pickle.at, pickle.size);
    cf_torch_layout_storage(&z, f->size);
    cf_text head = {0};
    cf_text_add(&head, z.gap.at, z.gap.size);
    for (int part = 0; ok && part < 2; part++) {
        const uint64_t base = tail.size;
        if (part == 0)
            cf_torch_layout_id(&z);
        else
            ok = cf_torch_layout_end(&z, err);
        for (size_t i = 0; ok && i < cf_torch_patches(&z); i++) {
            const cf_torch_patch *patch = &((const cf_torch_patch *)(const void *)z.patches.at)[i];
            const uint32_t crc = libdeflate_crc32(0, z.id, sizeof z.id);
            if (patch->storage == CF_TORCH_THE_ID)
                for (int k = 0; k < 4; k++) z.gap.at[patch->at + (size_t)k] = (char)(crc >> 8 * k);
            else if (f->n_patches < MOST_PATCHES)
                f->patches[f->n_patches++] = base + patch->at;
        }
        cf_text_add(&tail, z.gap.at, z.gap.size);
        if (part == 0) cf_text_add(&tail, z.id, sizeof z.id);
    }
    if (!f->size) cf_text_add(&head, tail.at, tail.size);
    ok = ok && cf_text_ok(&head, err) && cf_text_ok(&tail, err);
    if (ok) f->head = cf_blocker_text(y->l->b, head.at, head.size);
    if (ok && f->size) f->tail = cf_blocker_text(y->l->b, tail.at, tail.size);
    cf_torch_layout_free(&z);
    cf_text_free(&pickle);
    cf_text_free(&head);
    cf_text_free(&tail);
    return ok;
}

static bool find_frame(laying *y, const cf_item *it, const int64_t *size, const frame **out,
                       cf_err *err)
{
    const size_t n = ((size_t)it->ndim + 1) * sizeof(int64_t);
    int64_t *key = cf_alloc(&y->arena, n);
    if (!key) return cf_arena_ok(&y->arena, err);
    key[0] = it->dtype;
    if (it->ndim) memcpy(key + 1, size, n - sizeof *key);
    bool fresh;
    uint64_t *place = cf_map_put(&y->frames, key, n, &fresh);
    frame *f = place && fresh ? CF_NEW(&y->arena, frame) : NULL;
    if (!place || (fresh && !f)) return cf_arena_ok(&y->arena, err);
    if (fresh) *place = (uintptr_t)f;
    *out = (const frame *)(uintptr_t)*place;
    return !fresh || make_frame(y, it, size, f, err);
}

/* ---- items -------------------------------------------------------------------------------------
 */

/* The item as it lies in its file, container and all. */
static bool lay_raw(laying *y, const cf_dcp_thing *thing, cf_dcp_item *item, cf_err *err)
{
    const cf_storage *s = item->raw;
    const uint32_t *own = cf_memdup(&y->arena, &s->file, sizeof s->file);
    bool fresh;
    uint64_t *record = own ? cf_map_put(&y->files, own, sizeof *own, &fresh) : NULL;
    if (!record) return cf_arena_ok(&y->arena, err);
    if (fresh) *record = cf_mover_file(&y->l->mover, s->file);
    const cf_b_move move = {.from = s->offset,
                            .run = s->packed,
                            .record = (uint32_t)*record,
                            .dtype = CF_U8,
                            .cast = CF_U8};
    cf_b_chunk chunk = {.begin = item->offset,
                        .end = item->offset + s->packed,
                        .move = cf_blocker_add(y->l->b, CF_B_MOVES, &move, sizeof move),
                        .moves = 1,
                        .tensor = CF_B_NONE,
                        .dtype = CF_U8};
    if (!item->value) {
        cf_item it = y->d->tensors.list[thing->tensor];
        CF_TRY(cf_lay_compares(y->l, &it, err));
        it.shape = item->size;
        chunk.tensor = cf_lay_tensor(y->l, &it, (cf_ref){0});
    }
    item->length = s->packed;
    cf_blocker_add(y->l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
    return true;
}

/* The box of a tensor. */
static const cf_tensor *part_of(laying *y, const cf_item *it, const cf_dcp_item *item, cf_err *err)
{
    const cf_tensor *t = it->tensor;
    for (int d = 0; t && d < it->ndim; d++)
        if (item->size[d] != it->shape[d])
            t = cf_tensor_slice(&y->l->plan->arena, t, item->at[d], item->at[d] + item->size[d], d,
                                err);
    return t;
}

static bool lay_tensor(laying *y, const cf_dcp_thing *thing, cf_dcp_item *item, cf_err *err)
{
    cf_item it = y->d->tensors.list[thing->tensor];
    const frame *f = NULL;
    CF_TRY(cf_lay_compares(y->l, &it, err) && find_frame(y, &it, item->size, &f, err));
    uint64_t at = item->offset;
    cf_lay_chunk(y->l, at, f->head.size, f->head);
    at += f->head.size;
    if (f->size) {
        cf_b_chunk chunk = {.begin = at, .end = at + f->size, .dtype = (uint8_t)it.cast};
        it.tensor = part_of(y, &it, item, err);
        if (!it.tensor) return false;
        it.shape = item->size;
        CF_TRY(cf_lay_filling(y->l, &it, &chunk, err));
        chunk.tensor = cf_lay_tensor(y->l, &it, (cf_ref){0});
        const uint64_t payload = cf_blocker_add(y->l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
        at += f->size;
        for (int i = 0; i < f->n_patches; i++) {
            const cf_b_seal seal = {.chunk = (uint32_t)payload + 1,
                                    .first = (uint32_t)payload,
                                    .count = 1,
                                    .at = f->patches[i]};
            cf_blocker_add(y->l->b, CF_B_SEALS, &seal, sizeof seal);
        }
        const cf_b_chunk tail = {.begin = at,
                                 .end = at + f->tail.size,
                                 .bytes = f->tail,
                                 .tensor = CF_B_NONE,
                                 .late = true};
        if (cf_blocker_add(y->l->b, CF_B_CHUNKS, &tail, sizeof tail) >= UINT32_MAX - 8)
            return cf_fail(err, CF_E_LIMIT, "more than 2^32 stretches of files");
        at += f->tail.size;
    }
    item->length = at - item->offset;
    return true;
}

/* ---- values ------------------------------------------------------------------------------------
 */

/* Tensors inside a value, in the order in which the pickle names them. */
typedef struct inside {
    laying *y;
    cf_items tensors;
} inside;

static bool add_inside(void *ctx, const cf_view *view, cf_pickle_view *out, cf_err *err)
{
    inside *in = ctx;
    const cf_view *own = cf_view_copy(&in->y->l->plan->arena, view);
    if (!own) return cf_arena_ok(&in->y->l->plan->arena, err);
    *out = (cf_pickle_view){.dtype = view->dtype,
                            .ndim = view->ndim,
                            .shape = own->shape,
                            .key = in->tensors.count,
                            .numel = view->numel};
    return cf_lay_view(in->y->l, &in->tensors, "", own, err);
}

static void add_left(laying *y, const char *name, const char *where, const char *what)
{
    if (y->n_left++ < 4)
        cf_text_printf(&y->left, "%s%s%s%s (%s)", y->n_left > 1 ? ", " : "", name,
                       *where ? "." : "", where, what);
}

typedef struct told {
    inside in; /* first: the context of both */
    const char *name;
} told;

static void left_out(void *ctx, const char *where, const char *what)
{
    const told *t = ctx;
    add_left(t->in.y, t->name, where, what);
}

static bool lay_value(laying *y, const cf_dcp_thing *thing, const cf_node *value, cf_dcp_item *item,
                      cf_err *err)
{
    told t = {.in = {.y = y}, .name = thing->name};
    cf_pickler p;
    cf_text pickle = {0};
    cf_archive a;
    uint64_t end = 0;
    const cf_pickle_tree tree = {.p = &p, .tensor = add_inside, .left_out = left_out, .ctx = &t};
    cf_pickler_init(&p, &pickle);
    bool ok = cf_pickle_value(&tree, value, err) && cf_pickler_end(&p, err);
    cf_pickler_free(&p);
    if (ok) {
        cf_lay_archive(y->l, &a, item->offset, "archive", &pickle);
        for (size_t i = 0; ok && i < t.in.tensors.count; i++) {
            const cf_item *it = &t.in.tensors.list[i];
            uint64_t size = 0;
            ok = cf_lay_size(it, &size, err);
            const uint64_t begin = ok ? cf_lay_storage(y->l, &a, size) : 0;
            cf_b_chunk chunk = {.begin = begin,
                                .end = begin + size,
                                .tensor = CF_B_NONE,
                                .dtype = (uint8_t)it->cast};
            if (ok && size) ok = cf_lay_filling(y->l, it, &chunk, err);
            cf_blocker_add(y->l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
        }
        ok = cf_lay_archive_end(y->l, &a, &end, ok ? err : &(cf_err){0}) && ok;
    }
    cf_text_free(&pickle);
    item->length = end - item->offset;
    return ok || cf_err_in_member(err, thing->name);
}

/* Reads the values that are to be made, and tells which cannot be. */
static bool read_values(laying *y, cf_err *err)
{
    cf_arena *arena = &y->l->plan->arena;
    y->values = CF_NEWS(arena, const cf_node *, y->d->n_things + 1);
    for (size_t i = 0; y->values && i < y->d->count; i++) {
        const cf_dcp_item *item = &y->d->items[i];
        cf_dcp_thing *thing = &y->d->things[item->number];
        const char *what;
        if (!item->value || item->raw) continue;
        const cf_node **value = &y->values[item->number];
        if (!cf_source_value(y->l->plan->cat->source, thing->value, arena, value, err))
            return cf_err_in_member(err, thing->name);
        thing->left_out = !cf_pickle_holds(*value, &what);
        if (thing->left_out) add_left(y, thing->name, "", what);
    }
    return cf_arena_ok(arena, err);
}

/* ---- files -------------------------------------------------------------------------------------
 */

/* By keeper, values first, then as they came; and the chunks of each tensor in that order. */
static bool sort_items(laying *y, cf_err *err)
{
    cf_dcp *d = y->d;
    uint64_t *place = CF_NEWS(&y->arena, uint64_t, 2 * (size_t)d->ranks + 1);
    uint32_t *index = CF_NEWS(&y->arena, uint32_t, d->n_things + 1);
    y->order = CF_NEWS(&y->arena, uint32_t, d->count + 1);
    if (!place || !index || !y->order) return cf_arena_ok(&y->arena, err);
    for (size_t i = 0; i < d->count; i++)
        place[2 * (size_t)d->held[i].keeper + !d->items[i].value + 1]++;
    for (size_t i = 1; i <= 2 * (size_t)d->ranks; i++) place[i] += place[i - 1];
    for (size_t i = 0; i < d->count; i++)
        y->order[place[2 * (size_t)d->held[i].keeper + !d->items[i].value]++] = (uint32_t)i;
    for (size_t k = 0; k < d->count; k++) {
        const uint32_t i = y->order[k];
        cf_dcp_item *item = &d->items[i];
        cf_dcp_thing *thing = &d->things[item->number];
        item->index = index[item->number]++;
        item->next = CF_B_NONE;
        if (thing->first == CF_B_NONE)
            thing->first = i;
        else
            d->items[thing->last].next = i;
        thing->last = i;
    }
    return true;
}

static bool file_name(const laying *y, cf_text *name, const char *file, cf_err *err)
{
    name->size = 0;
    if (*y->w->path) cf_text_printf(name, "%s/", y->w->path);
    cf_text_str(name, file);
    return cf_text_ok(name, err);
}

static bool lay_file(laying *y, int32_t rank, size_t *next, cf_text *name, cf_err *err)
{
    cf_dcp *d = y->d;
    char file[40];
    uint64_t at = 0;
    const uint64_t first = cf_lay_chunks(y->l),
                   number = y->l->b->sections[CF_B_FILES].size / sizeof(cf_b_file);
    snprintf(file, sizeof file, "__%d_0.distcp", rank);
    for (; *next < d->count && d->held[y->order[*next]].keeper == rank; ++*next) {
        cf_dcp_item *item = &d->items[y->order[*next]];
        const cf_dcp_thing *thing = &d->things[item->number];
        if (thing->left_out) continue;
        item->offset = at;
        const bool ok = item->raw     ? lay_raw(y, thing, item, err)
                        : item->value ? lay_value(y, thing, y->values[item->number], item, err)
                                      : lay_tensor(y, thing, item, err);
        if (!ok) return false;
        if (item->value && thing->row) {
            const cf_b_value value = cf_lay_value_names(y->l, number, thing->row, thing->name);
            cf_text_add(&y->l->values, &value, sizeof value);
        }
        if (__builtin_add_overflow(at, item->length, &at) || at > INT64_MAX / 2)
            return cf_fail(err, CF_E_OVERFLOW, "%s: more than 62 bits of bytes", file);
    }
    if (!file_name(y, name, file, err)) return false;
    cf_lay_file(y->l, name->at, at, first);
    return true;
}

static void add_differing(laying *y)
{
    cf_layout *l = y->l;
    if (!y->d->n_differ) return;
    cf_text_printf(&l->differ, "%s%s", l->n_differ ? ", " : "", y->d->differ.at);
    l->n_differ += y->d->n_differ;
}

static bool lay(laying *y, cf_text *name, cf_text *meta, cf_err *err)
{
    size_t next = 0;
    CF_TRY(read_values(y, err) && sort_items(y, err));
    for (int32_t r = 0; r < y->d->ranks; r++) CF_TRY(lay_file(y, r, &next, name, err));
    CF_TRY(cf_dcp_metadata(y->d, y->order, meta, err) && file_name(y, name, ".metadata", err));
    cf_lay_bytes(y->l, name->at, meta);
    return true;
}

bool cf_lay_dcp(cf_layout *l, size_t number, cf_err *err)
{
    const cf_write *w = &l->plan->writes[number];
    laying y = {.l = l, .w = w, .d = w->dcp};
    cf_text name = {0}, meta = {0};
    cf_arena_init(&y.arena, 0);
    cf_map_init(&y.frames, &y.arena);
    cf_map_init(&y.files, &y.arena);
    add_differing(&y);
    const bool ok = lay(&y, &name, &meta, err);
    if (ok && y.n_left)
        cf_text_printf(&l->plan->notes, "%zu value%s no item can hold: %s%s\n", y.n_left,
                       y.n_left > 1 ? "s that" : " that", y.left.at, y.n_left > 4 ? ", ..." : "");
    cf_text_free(&name);
    cf_text_free(&meta);
    cf_text_free(&y.left);
    cf_text_free(&y.d->differ);
    cf_arena_free(&y.arena);
    return ok;
}
