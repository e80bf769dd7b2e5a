/* What a block will take: a dry run of its windows, which goes the way of the executor and only
 * counts. Of very many windows every k-th is gone through, and stands for those between. */
#include "execute.h"
#include "gather.h"
#include "windows.h"

enum { MOST_WINDOWS = 1024 }; /* gone through: 8 GiB of output */

/* *tile: bytes of the largest one so far. */
static void dry_window(cf_gather *g, const cf_window *w, uint64_t *tile)
{
    const cf_block *b = g->bytes->block;
    uint64_t chunk = w->chunk, reach = w->chunk;
    cf_err none;
    for (uint64_t at = w->begin; at < w->end;) {
        const uint64_t end = cf_tile_end(b, w, g->means, at, &reach);
        if (end - at > *tile) *tile = end - at;
        while (at < end) {
            while (b->chunks[chunk].end <= at) chunk++;
            const cf_b_chunk *c = &b->chunks[chunk];
            const uint64_t to = c->end < end ? c->end : end;
            uint32_t crc;
            bool known;
            if (c->moves)
                cf_gather_chunk(g, c, at - c->begin, to - c->begin, g->scratch, &crc, &known,
                                &none);
            at = to;
        }
    }
}

static void dry_compare(cf_gather *g, const cf_b_compare *c)
{
    const uint64_t moves[] = {c->left, c->right}, half = g->means->tile / 2;
    uint64_t begin, size;
    for (uint64_t i = 0; cf_compare_part(c, i, &begin, &size); i++)
        for (uint64_t at = begin, to; at < begin + size; at = to) {
            to = at + half < begin + size ? at + half : begin + size;
            uint32_t crc;
            bool known;
            cf_err none;
            for (int k = 0; k < 2; k++)
                cf_gather_fill(g, moves[k], 1, at, to, g->scratch, &crc, &known, &none);
        }
}

/* Windows of a file, `every` apart. */
static void dry_file(cf_gather *g, uint64_t file, uint64_t every, uint64_t *tile)
{
    const cf_block *b = g->bytes->block;
    const cf_b_file *f = &b->files[file];
    const uint64_t read = g->read, requests = g->requests, skip = (every - 1) * CF_WINDOW;
    uint64_t chunk = f->chunk, seen = 0;
    for (uint64_t at = 0; at < f->size;) {
        const cf_window w = cf_window_at(b, file, at, &chunk);
        dry_window(g, &w, tile);
        seen += w.end - w.begin;
        if (f->size - w.end <= skip) break;
        at = w.end + skip;
    }
    if (every == 1 || !seen) return;
    const double scale = (double)f->size / (double)seen;
    g->read = read + (uint64_t)((double)(g->read - read) * scale);
    g->requests = requests + (uint64_t)((double)(g->requests - requests) * scale);
}

/* Buffers as far as they are touched, and lists that grow with the plan. */
static uint64_t memory_of(const cf_block *b, const cf_means *means, uint64_t tile,
                          uint64_t scratched, uint64_t windows)
{
    enum {
        RECORD = sizeof(cf_span) + sizeof(uint32_t) + 2 * sizeof(bool),
        CHUNK = sizeof(uint32_t) + 2 * sizeof(cf_stretch), /* one more while they are sorted */
        MANIFEST = 320,                                    /* text of a tensor */
        THREAD = 60 << 10,                                 /* of its stack, and of malloc's */
        PROCESS = 200 << 10
    };
    const uint64_t threads =
        (uint64_t)means->threads < windows ? (uint64_t)means->threads : windows;
    uint64_t sources = 0;
    for (uint64_t i = 0; i < b->n_sources; i++) sources += b->sources[i].size;
    uint64_t reading = means->reading < sources ? means->reading : sources;
    if (means->io == CF_IO_MMAP) reading -= reading / 4; /* what is ahead is not there yet */
    const uint64_t each = tile + scratched + means->staging + means->sum + reading + THREAD;
    return PROCESS + each * threads + b->n_records * RECORD + b->n_chunks * CHUNK +
           b->n_tensors * MANIFEST;
}

void cf_block_space(const cf_block *b, cf_price *p)
{
    *p = (cf_price){0};
    for (uint64_t i = 0; i < b->n_files; i++) p->written += b->files[i].size;
    for (uint64_t i = 0; i < b->n_records; i++)
        if (b->records[i].place == CF_IN_MEMBER) p->scratch += b->records[i].size;
    for (uint64_t i = 0; i < b->n_sources; i++)
        if (b->sources[i].packed) p->unpacked += b->sources[i].size;
}

void cf_block_price(const cf_block *b, const cf_means *means, cf_price *p)
{
    cf_block_space(b, p);
    const cf_bytes bytes = {.block = b};
    cf_gather g;
    cf_gather_dry(&g, &bytes, means);
    uint64_t windows = 0, tile = 0;
    for (uint64_t i = 0; i < b->n_files; i++) windows += b->files[i].size / CF_WINDOW + 1;
    for (uint64_t i = 0; i < b->n_files; i++) dry_file(&g, i, windows / MOST_WINDOWS + 1, &tile);
    for (uint64_t i = 0; i < b->n_compares; i++) dry_compare(&g, &b->compares[i]);
    p->read = g.read;
    p->requests = g.requests;
    for (uint64_t i = 0; i < b->n_checks; i++) {
        const uint64_t size = b->records[b->checks[i]].size;
        p->read += size;
        p->requests += (size + means->tile - 1) / means->tile;
    }
    p->memory = memory_of(b, means, tile, g.scratched, windows);
}
