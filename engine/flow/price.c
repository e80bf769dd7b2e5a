/* What a block will take, from its moves alone: the same arithmetic as gather.c without the bytes.
 */
#include "execute.h"
#include "gather.h"
#include "view.h"

enum {
    PROCESS = 6 << 20, /* code, libraries, stacks */
    RECORD = sizeof(cf_span) + 1,
    STRETCHES = 2 * sizeof(cf_stretch) /* a chunk's and a record's */
};

static uint64_t bytes_of(const cf_block *b, const cf_b_move *m)
{
    uint64_t n = m->run;
    for (int d = 0; d < m->ndim; d++) n *= (uint64_t)b->numbers[m->dims + 3u * (uint64_t)d];
    return n;
}

/* Bytes and requests of one move: tiles of a stretch that is read in order; more where the source
 * is read out of order, which only the executor counts exactly. */
static void add_move(const cf_block *b, const cf_b_move *m, cf_price *p)
{
    const uint64_t n = bytes_of(b, m);
    p->read += n;
    p->requests += (n + CF_TILE - 1) / CF_TILE;
}

void cf_block_price(const cf_block *b, int threads, cf_price *p)
{
    *p = (cf_price){0};
    for (uint64_t i = 0; i < b->n_chunks; i++) {
        uint64_t first, end;
        for (uint64_t t = 0; cf_chunk_moves(b, &b->chunks[i], t, &first, &end); t++)
            for (uint64_t k = first; k < end; k++) add_move(b, &b->moves[k], p);
    }
    for (uint64_t i = 0; i < b->n_compares; i++) {
        add_move(b, &b->moves[b->compares[i].left], p);
        add_move(b, &b->moves[b->compares[i].right], p);
    }
    for (uint64_t i = 0; i < b->n_checks; i++) {
        p->read += b->records[b->checks[i]].size;
        p->requests++;
    }
    for (uint64_t i = 0; i < b->n_records; i++)
        if (b->records[i].place == CF_IN_MEMBER) p->scratch += b->records[i].size;
    for (uint64_t i = 0; i < b->n_files; i++) p->written += b->files[i].size;
    p->memory = PROCESS + 2ull * CF_TILE * (uint64_t)threads + b->head->size +
                b->n_records * RECORD + b->n_chunks * STRETCHES;
}
