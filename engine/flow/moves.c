/* Dimensions that lie the same way on both sides are one dimension, so that a shard of rows is a
 * single run and a shard of columns one run a row. What is left of a transposed view are runs of
 * one element. */
#include "moves.h"

#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "item.h"
#include "packed.h"

bool cf_mover_init(cf_mover *m, cf_source *source, cf_blocker *b, cf_err *err)
{
    *m = (cf_mover){.source = source, .b = b};
    cf_arena_init(&m->arena, 0);
    size_t files = 0;
    for (const cf_source *s = source; s; s = s->next) files += s->dir.count;
    m->sources = CF_NEWS(&m->arena, uint32_t, files);
    cf_blocker_text(b, "", 0); /* a reference of zeros is an empty text */
    return cf_arena_ok(&m->arena, err);
}

void cf_mover_free(cf_mover *m)
{
    free(m->records);
    m->records = NULL;
    cf_arena_free(&m->arena);
}

uint32_t cf_mover_source(cf_mover *m, uint32_t file)
{
    if (!m->sources[file]) {
        uint32_t number = file;
        const cf_source *of = cf_source_of(m->source, &number);
        const cf_dir_file *f = &of->dir.files[number];
        const cf_b_source s = {.path = cf_blocker_text(m->b, f->stored, strlen(f->stored)),
                               .size = f->size,
                               .packed = f->packed ? f->packed->size : 0,
                               .device = f->device,
                               .inode = f->inode,
                               .mtime_ns = f->mtime_ns,
                               .root = m->root + of->first_root + f->root};
        m->sources[file] = (uint32_t)cf_blocker_add(m->b, CF_B_SOURCES, &s, sizeof s) + 1;
    }
    return m->sources[file] - 1;
}

uint32_t cf_mover_file(cf_mover *m, uint32_t file)
{
    uint32_t number = file;
    const cf_dir_file *f = &cf_source_of(m->source, &number)->dir.files[number];
    const cf_b_record r = {
        .size = f->size, .source = cf_mover_source(m, file), .place = CF_IN_FILE};
    return (uint32_t)cf_blocker_add(m->b, CF_B_RECORDS, &r, sizeof r);
}

/* The record that a storage became. There may be one a chunk of a large save: a cf_map would need
 * four times the memory. */
typedef struct cf_known_record {
    const cf_storage *storage; /* NULL: free */
    uint32_t number;
} cf_known_record;

static cf_known_record *slot_of(cf_known_record *slots, size_t cap, const cf_storage *s)
{
    size_t i = cf_hash_word((uint64_t)(uintptr_t)s) & (cap - 1);
    while (slots[i].storage && slots[i].storage != s) i = (i + 1) & (cap - 1);
    return &slots[i];
}

/* The slot of a storage, or a free one for it; NULL: out of memory. */
static cf_known_record *known_record(cf_mover *m, const cf_storage *s)
{
    if (m->n_records * 4 >= m->cap_records * 3) {
        const size_t cap = m->cap_records ? m->cap_records * 2 : 64;
        cf_known_record *wide = calloc(cap, sizeof *wide);
        if (!wide) return NULL;
        for (size_t i = 0; i < m->cap_records; i++)
            if (m->records[i].storage) *slot_of(wide, cap, m->records[i].storage) = m->records[i];
        free(m->records);
        m->records = wide;
        m->cap_records = cap;
    }
    return slot_of(m->records, m->cap_records, s);
}

/* What an item is to be: items of one claim share the name and the dims. */
static void add_claim(cf_mover *m, const cf_claim *claim, cf_b_record *r)
{
    if (claim != m->claim) {
        m->claim = claim;
        m->claim_name = cf_blocker_text(m->b, claim->name, strlen(claim->name));
        m->claim_dims = m->b->sections[CF_B_NUMBERS].size / sizeof(int64_t);
        cf_blocker_add(m->b, CF_B_NUMBERS, claim->shape, claim->ndim * sizeof(int64_t));
    }
    r->dtype = (uint8_t)claim->dtype;
    r->ndim = claim->ndim;
    r->method = claim->zstd;
    r->name = m->claim_name;
    r->dims = m->claim_dims;
}

static bool record_of(cf_mover *m, const cf_storage *s, uint32_t *number, cf_err *err)
{
    if (s->place == CF_NOWHERE)
        return cf_fail(err, CF_E_STORAGE_MISSING, "a meta tensor: the file holds no data for it");
    cf_known_record *known = known_record(m, s);
    if (!known) return cf_fail(err, CF_E_MEMORY, "out of memory");
    if (!known->storage) {
        cf_b_record r = {.offset = s->offset,
                         .size = s->size,
                         .packed = s->packed,
                         .crc = s->crc,
                         .method = s->method,
                         .place = (uint8_t)s->place,
                         .has_crc = s->has_crc};
        if (s->place == CF_IN_ITEM)
            add_claim(m, s->claim, &r);
        else if (s->name)
            r.name = cf_blocker_text(m->b, s->name, strlen(s->name));
        if (s->place == CF_IN_MEMORY)
            r.bytes = cf_blocker_text(m->b, (const char *)s->bytes, s->size);
        else
            r.source = cf_mover_source(m, s->file);
        *known = (cf_known_record){s, (uint32_t)cf_blocker_add(m->b, CF_B_RECORDS, &r, sizeof r)};
        m->n_records++;
    }
    *number = known->number;
    return true;
}

void cf_move_shape(cf_b_move *move, int64_t *dims, const cf_view *view, const int64_t *shape,
                   const int64_t *at)
{
    const int64_t size = cf_dtype_size(view->stored);
    int64_t inner_first[3 * CF_MOST_DIMS], stride = size, to = 0;
    int n = 0;
    *move = (cf_b_move){.from = view->offset,
                        .run = (uint64_t)size,
                        .dtype = (uint8_t)view->stored,
                        .cast = (uint8_t)view->stored};
    if (view->storage->big_endian && cf_dtype_of(view->stored)->swap > 1)
        move->flags |= CF_MOVE_SWAP;
    if (view->conj) move->flags |= CF_MOVE_CONJ;
    if (view->neg) move->flags |= CF_MOVE_NEG;
    /* from the innermost dimension out, in bytes; each joins the one inside it where it can */
    for (int d = view->ndim - 1; d >= 0; d--) {
        const int64_t count = view->shape[d], from = view->stride[d] * size;
        to += (at ? at[d] : 0) * stride;
        if (count > 1) {
            int64_t *inner = n ? &inner_first[3 * (n - 1)] : NULL;
            if (!n && from == (int64_t)move->run && stride == (int64_t)move->run) {
                move->run *= (uint64_t)count;
            } else if (inner && inner[1] * inner[0] == from && inner[2] * inner[0] == stride) {
                inner[0] *= count;
            } else {
                const int64_t dim[] = {count, from, stride};
                memcpy(&inner_first[3 * n++], dim, sizeof dim);
            }
        }
        stride *= shape[d];
    }
    move->to = (uint64_t)to;
    move->ndim = (uint8_t)n;
    for (int i = 0; i < n; i++)
        memcpy(dims + 3 * i, inner_first + 3 * (n - 1 - i), 3 * sizeof *dims);
}

bool cf_mover_add(cf_mover *m, const cf_view *view, const int64_t *shape, const int64_t *at,
                  cf_dtype dtype, uint64_t *number, cf_err *err)
{
    cf_b_move move;
    int64_t dims[3 * CF_MOST_DIMS];
    if (!cf_cast_possible(view->stored, dtype))
        return cf_fail(err, CF_E_DTYPE, "%s cannot be cast to %s", cf_dtype_of(view->stored)->name,
                       cf_dtype_of(dtype)->name);
    cf_move_shape(&move, dims, view, shape, at);
    move.cast = (uint8_t)dtype;
    if (!record_of(m, view->storage, &move.record, err)) return false;
    if (move.ndim)
        move.dims = cf_blocker_add(m->b, CF_B_NUMBERS, dims, 3u * move.ndim * sizeof *dims);
    *number = cf_blocker_add(m->b, CF_B_MOVES, &move, sizeof move);
    return true;
}

int cf_move_order(const void *a, const void *b)
{
    const uint64_t x = cf_move_place(a), y = cf_move_place(b);
    return x < y ? -1 : x > y;
}

/* ---- checksums ---------------------------------------------------------------------------------
 */

typedef struct reading {
    uint32_t record;
    uint64_t from, size, move;
} reading;

static int by_record(const void *a, const void *b)
{
    const reading *x = a, *y = b;
    if (x->record != y->record) return x->record < y->record ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1; /* the longest first */
    return x->move < y->move ? -1 : 1;
}

/* Bytes that a move reads if they lie one after another in the record and are read in that order;
 * 0 otherwise. */
static uint64_t dense_bytes(const cf_b_move *move, const int64_t *numbers)
{
    int64_t bytes = (int64_t)move->run;
    for (int d = move->ndim - 1; d >= 0; d--) {
        const int64_t *dim = numbers + move->dims + 3 * d;
        if (dim[1] != bytes) return 0;
        bytes *= dim[0];
    }
    return (uint64_t)bytes;
}

bool cf_mover_checks(cf_mover *m, cf_err *err)
{
    cf_text *moves = &m->b->sections[CF_B_MOVES];
    cf_b_move *move = (cf_b_move *)(void *)moves->at;
    const int64_t *numbers = (const int64_t *)(void *)m->b->sections[CF_B_NUMBERS].at;
    const cf_b_record *records = (const cf_b_record *)(void *)m->b->sections[CF_B_RECORDS].at;
    const uint64_t n = moves->size / sizeof *move;
    const uint64_t n_records = m->b->sections[CF_B_RECORDS].size / sizeof *records;
    reading *list = CF_NEWS(&m->arena, reading, n + 1);
    if (!list) return cf_arena_ok(&m->arena, err);
    /* what is only compared may be read in samples */
    bool *compared = CF_NEWS(&m->arena, bool, n + 1);
    const cf_text *compares = &m->b->sections[CF_B_COMPARES];
    const cf_b_compare *compare = (const cf_b_compare *)(const void *)compares->at;
    if (!compared) return cf_arena_ok(&m->arena, err);
    for (uint64_t i = 0; i < compares->size / sizeof *compare; i++)
        compared[compare[i].left] = compared[compare[i].right] = true;
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        if (!compared[i])
            list[count++] =
                (reading){move[i].record, move[i].from, dense_bytes(&move[i], numbers), i};
    bool sorted = true; /* records are numbered as moves use them: most often */
    for (uint64_t i = 1; i < count && sorted; i++) sorted = by_record(&list[i - 1], &list[i]) < 0;
    if (!sorted) qsort(list, count, sizeof *list, by_record);
    uint64_t i = 0;
    for (uint32_t r = 0; r < n_records; r++) {
        const uint64_t first = i;
        uint64_t next = 0, chosen = 0;
        for (; i < count && list[i].record == r; i++)
            if (list[i].from == next && list[i].size) {
                next += list[i].size;
                list[chosen++] = list[i]; /* overwrites only what was passed */
            }
        /* what an item's checksum is will be known when it is opened */
        const bool item = records[r].place == CF_IN_ITEM;
        const bool memory = records[r].place == CF_IN_MEMORY; /* was checked with its pickle */
        if (memory || (!records[r].has_crc && !item) || i == first) continue;
        if (next == records[r].size)
            for (uint64_t k = 0; k < chosen; k++) move[list[k].move].flags |= CF_MOVE_CHECKED;
        else if (records[r].size <= CF_SMALL_RECORD && !item) {
            const uint64_t number = r;
            cf_blocker_add(m->b, CF_B_CHECKS, &number, sizeof number);
        }
    }
    return true;
}
