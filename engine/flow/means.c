#include "means.h"

enum {
    LONG = 2 << 10,     /* runs of so many bytes are worth a request */
    STRETCH = 16 << 10, /* of a transposed source: bytes that one request should bring */
    STEP = 16 << 10,    /* buffers are multiples of it */
    MOST_LOOKED_AT = 8  /* moves of a chunk; they are alike */
};

/* Bytes of output that bring STRETCH bytes of the source together; 0 where the source lies as the
 * tensor does. */
static uint64_t tall_of(const cf_block *b, const cf_b_move *m)
{
    if (m->run >= LONG || m->ndim < 2) return 0;
    const int64_t *inner = NULL; /* innermost in the source */
    bool across = false;
    for (int d = m->ndim - 1; d >= 0; d--) {
        const int64_t *dim = b->numbers + m->dims + 3 * d;
        if (!dim[1]) continue;
        if (!inner || dim[1] < inner[1]) {
            across = inner != NULL;
            inner = dim;
        }
    }
    if (!across) return 0;
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)m->dtype);
    const uint64_t cast = (uint64_t)cf_dtype_size((cf_dtype)m->cast);
    const uint64_t row = (uint64_t)inner[2] / size * cast, all = (uint64_t)inner[0];
    if (row > CF_WINDOW) return CF_WINDOW;
    uint64_t rows = (STRETCH + (uint64_t)inner[1] - 1) / (uint64_t)inner[1];
    if (rows > CF_WINDOW / row) rows = CF_WINDOW / row;
    if (rows > all) rows = all;
    const uint64_t parts = (all + rows - 1) / rows; /* of the piece: alike */
    return (all + parts - 1) / parts * row;
}

uint64_t cf_chunk_tall(const cf_block *b, const cf_b_chunk *c)
{
    uint64_t tall = 0;
    for (uint64_t i = 0; !c->sum && i < c->moves && i < MOST_LOOKED_AT; i++) {
        const uint64_t of = tall_of(b, &b->moves[c->move + i]);
        if (of > tall) tall = of;
    }
    return tall;
}

uint64_t cf_chunk_tile(const cf_block *b, const cf_b_chunk *c, const cf_means *means)
{
    if (means->tall <= means->tile) return means->tile;
    const uint64_t tall = cf_chunk_tall(b, c);
    return tall < means->tile ? means->tile : tall < means->tall ? tall : means->tall;
}

/* What the block asks for, as far as memory goes. */
typedef struct needs {
    uint64_t tall;  /* bytes: of the tallest chunk */
    uint64_t ratio; /* source bytes for a byte of a tall chunk, where it is cast; 0: none is */
    bool cast, sum;
} needs;

static needs needs_of(const cf_block *b)
{
    needs n = {0};
    for (uint64_t i = 0; i < b->n_chunks; i++) {
        const cf_b_chunk *c = &b->chunks[i];
        n.sum |= c->sum;
        const uint64_t tall = cf_chunk_tall(b, c);
        if (tall > n.tall) n.tall = tall;
        for (uint64_t k = 0; tall && !c->sum && k < c->moves; k++) {
            const cf_b_move *m = &b->moves[c->move + k];
            const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)m->dtype);
            const uint64_t cast = (uint64_t)cf_dtype_size((cf_dtype)m->cast);
            const uint64_t ratio = (size + cast - 1) / cast;
            if (m->cast != m->dtype && ratio > n.ratio) n.ratio = ratio;
        }
    }
    for (uint64_t i = 0; i < b->n_moves; i++) n.cast |= b->moves[i].cast != b->moves[i].dtype;
    return n;
}

/* Sets all other sizes from tile and tall; memory of one thread. */
static uint64_t take(cf_means *m, const needs *n)
{
    const bool tall = m->tall > m->tile;
    m->reading = cf_reader_memory(m->io) * m->tile / CF_TILE;
    m->staging = !n->cast ? 0 : m->tile;
    if (n->tall && m->tall * n->ratio > m->staging) m->staging = m->tall * n->ratio;
    m->sum = n->sum ? 2 * m->tile : 0;
    return (tall ? m->tall : m->tile) + m->tile + m->staging + m->sum + m->reading;
}

bool cf_means_fit(cf_means *m, const cf_block *b, int threads, cf_io io, uint64_t max_mem,
                  cf_err *err)
{
    const needs n = needs_of(b);
    const uint64_t tall = (n.tall + STEP - 1) / STEP * STEP;
    *m = (cf_means){.io = io == CF_IO_AUTO ? CF_IO_PREAD : io, .threads = threads};
    uint64_t each = 0;
    for (; m->threads >= 1; m->threads--) {
        const uint64_t most = max_mem / (uint64_t)m->threads;
        for (m->tile = CF_TILE; m->tile >= CF_LEAST_TILE; m->tile /= 2) {
            m->tall = tall > m->tile ? tall : m->tile;
            while ((each = take(m, &n)) > most && m->tall > m->tile) m->tall -= STEP;
            if (each > most) continue;
            m->memory = each * (uint64_t)m->threads;
            return true;
        }
    }
    cf_text have = {0}, need = {0};
    cf_text_size(&have, max_mem);
    cf_text_size(&need, each);
    cf_fail(err, CF_E_MEMORY, "--max-mem gives %s, the least is %s", have.at, need.at);
    cf_text_free(&have);
    cf_text_free(&need);
    return false;
}
