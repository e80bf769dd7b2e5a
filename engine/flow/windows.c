#include "windows.h"

/* What the output is cut at in this chunk: a multiple of it from the chunk's begin. */
static uint64_t unit_of(const cf_block *b, const cf_b_chunk *c, uint64_t most)
{
    enum { ELEMENT = 16 };
    if (!c->moves || c->sum) return ELEMENT;
    const uint64_t tall = cf_chunk_tall(b, c); /* where its pieces end, too */
    if (tall && tall <= most) return tall;
    const cf_b_move *m = &b->moves[c->move];
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)m->dtype);
    const uint64_t cast = (uint64_t)cf_dtype_size((cf_dtype)m->cast);
    for (int d = 0; d < m->ndim; d++) { /* outermost first: the largest that is small enough */
        const uint64_t step = (uint64_t)b->numbers[m->dims + 3u * (uint64_t)d + 2] / size;
        if (step <= most / 4 / cast) return step * cast;
    }
    return ELEMENT;
}

/* chunk: the one that holds byte end-1. */
static uint64_t cut_at(const cf_block *b, const cf_b_chunk *c, uint64_t begin, uint64_t end,
                       uint64_t most)
{
    if (end <= c->begin || end >= c->end) return end;
    const uint64_t cut = end - (end - c->begin) % unit_of(b, c, most);
    if (cut > begin) return cut;
    return end - (end - c->begin) % 16 > begin ? end - (end - c->begin) % 16 : end;
}

/* begin + most, within the file; *chunk moves on to the one that holds the byte before. */
static uint64_t reach(const cf_block *b, const cf_b_file *f, uint64_t begin, uint64_t most,
                      uint64_t *chunk)
{
    const uint64_t end = most < f->size - begin ? begin + most : f->size;
    while (b->chunks[*chunk].end < end) ++*chunk;
    return end;
}

cf_window cf_window_at(const cf_block *b, uint64_t file, uint64_t at, uint64_t *chunk)
{
    while (b->chunks[*chunk].end <= at) ++*chunk;
    uint64_t last = *chunk;
    uint64_t end = reach(b, &b->files[file], at, CF_WINDOW, &last);
    end = cut_at(b, &b->chunks[last], at, end, CF_WINDOW);
    return (cf_window){.file = file, .begin = at, .end = end, .chunk = *chunk};
}

bool cf_windows_cut(cf_windows *windows, const cf_block *b, cf_arena *arena, cf_err *err)
{
    cf_window *list = NULL;
    size_t count = 0, cap = 0;
    for (uint64_t i = 0; i < b->n_files; i++) {
        const cf_b_file *f = &b->files[i];
        uint64_t chunk = f->chunk;
        for (uint64_t at = 0; at < f->size;) {
            cf_window *w = CF_PUSH(arena, list, count, cap);
            if (!w) return cf_arena_ok(arena, err);
            *w = cf_window_at(b, i, at, &chunk);
            at = w->end;
        }
    }
    *windows = (cf_windows){list, count};
    return true;
}

/* Where the part of a rank begins, of so many bytes. */
static uint64_t part_begin(uint64_t bytes, uint64_t rank, uint64_t of)
{
    return bytes / of * rank + bytes % of * rank / of;
}

cf_windows cf_windows_share(const cf_windows *all, cf_share share)
{
    uint64_t bytes = 0, first = 0, end = 0, at = 0;
    if (!share.of) return *all;
    for (uint64_t i = 0; i < all->count; i++) bytes += all->list[i].end - all->list[i].begin;
    for (uint64_t i = 0; i < all->count; i++) {
        if (at < part_begin(bytes, share.rank, share.of)) first = i + 1;
        if (at < part_begin(bytes, share.rank + 1ull, share.of)) end = i + 1;
        at += all->list[i].end - all->list[i].begin;
    }
    if (end < first) end = first;
    return (cf_windows){all->list ? all->list + first : NULL, end - first};
}

uint64_t cf_tile_end(const cf_block *b, const cf_window *w, const cf_means *means, uint64_t at,
                     uint64_t *chunk)
{
    while (b->chunks[*chunk].end <= at) ++*chunk;
    const uint64_t most = cf_chunk_tile(b, &b->chunks[*chunk], means);
    uint64_t last = *chunk;
    uint64_t end = reach(b, &b->files[w->file], at, most, &last);
    if (end > w->end) end = w->end;
    const cf_b_chunk *c = &b->chunks[last];
    if (c->begin > at && c->begin < end && cf_chunk_tall(b, c)) return c->begin;
    return end == w->end ? end : cut_at(b, c, at, end, most);
}

uint64_t cf_window_of(const cf_windows *windows, int threads, uint64_t job)
{
    const uint64_t parts = (uint64_t)threads, each = (windows->count + parts - 1) / parts;
    const uint64_t full = windows->count - (each - 1) * parts; /* so many parts have `each` */
    const uint64_t part = job % parts, place = job / parts;
    return part * each - (part > full ? part - full : 0) + place;
}
