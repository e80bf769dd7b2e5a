#include "windows.h"

/* What the output is cut at in this chunk: a multiple of it from the chunk's begin. */
static uint64_t unit_of(const cf_block *b, const cf_b_chunk *c, uint64_t most)
{
    enum { ELEMENT = 16 };
    if (!c->moves || c->sum) return ELEMENT;
    const cf_b_move *m = &b->moves[c->move];
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)m->dtype);
    const uint64_t cast = (uint64_t)cf_dtype_size((cf_dtype)m->cast);
    for (int d = 0; d < m->ndim; d++) { /* outermost first: the largest that is small enough */
        const uint64_t step = (uint64_t)b->numbers[m->dims + 3u * (uint64_t)d + 2] / size;
        if (step <= most / 4 / cast) return step * cast;
    }
    return ELEMENT;
}

static uint64_t cut_at(const cf_block *b, const cf_b_file *f, uint64_t *chunk, uint64_t begin,
                       uint64_t most)
{
    const uint64_t end = begin + most < f->size ? begin + most : f->size;
    while (b->chunks[*chunk].end < end) ++*chunk;
    const cf_b_chunk *c = &b->chunks[*chunk];
    if (end <= c->begin || end >= c->end) return end;
    const uint64_t cut = end - (end - c->begin) % unit_of(b, c, most);
    if (cut > begin) return cut;
    return end - (end - c->begin) % 16 > begin ? end - (end - c->begin) % 16 : end;
}

cf_window cf_window_at(const cf_block *b, uint64_t file, uint64_t at, uint64_t *chunk)
{
    while (b->chunks[*chunk].end <= at) ++*chunk;
    uint64_t reach = *chunk;
    const uint64_t end = cut_at(b, &b->files[file], &reach, at, CF_WINDOW);
    return (cf_window){.file = file, .begin = at, .end = end, .chunk = *chunk};
}

bool cf_windows_cut(cf_windows *windows, const cf_block *b, cf_arena *arena, cf_err *err)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < b->n_files; i++) most += b->files[i].size / (CF_WINDOW / 2) + 2;
    cf_window *list = CF_NEWS(arena, cf_window, most);
    *windows = (cf_windows){.list = list};
    if (!list) return cf_arena_ok(arena, err);
    for (uint64_t i = 0; i < b->n_files; i++) {
        const cf_b_file *f = &b->files[i];
        uint64_t chunk = f->chunk;
        for (uint64_t at = 0; at < f->size; at = list[windows->count++].end)
            list[windows->count] = cf_window_at(b, i, at, &chunk);
    }
    return true;
}

uint64_t cf_tile_end(const cf_block *b, const cf_window *w, const cf_means *means, uint64_t at,
                     uint64_t *chunk)
{
    while (b->chunks[*chunk].end <= at) ++*chunk;
    uint64_t reach = *chunk;
    const uint64_t most = cf_chunk_tile(b, &b->chunks[*chunk], means);
    const uint64_t end = cut_at(b, &b->files[w->file], &reach, at, most);
    return end < w->end ? end : w->end;
}

uint64_t cf_window_of(const cf_windows *windows, int threads, uint64_t job)
{
    const uint64_t parts = (uint64_t)threads, each = (windows->count + parts - 1) / parts;
    const uint64_t full = windows->count - (each - 1) * parts; /* so many parts have `each` */
    const uint64_t part = job % parts, place = job / parts;
    return part * each - (part > full ? part - full : 0) + place;
}
