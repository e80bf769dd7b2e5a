/* How bytes are gathered. A move's runs, in order, have ascending places in the tensor; those that
 * meet the buffer are a range of the grid of its outer dimensions, which is cut into boxes. In a
 * box the dimensions are put into the order of the SOURCE, and as many inner ones as fit are read
 * with one request and scattered from scratch memory: nothing is read twice, and a transposed
 * tensor costs a request for each stretch of its source instead of one for each element. Long runs
 * are read straight to their place; runs from 2 KiB on are, many with one preadv.
 *
 * A dry gather goes the same way and only counts: `plan` prices with it. */
#include "gather.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <zlib.h>

#include "cast.h"
#include "num.h"
#include "shape.h"
#include "view.h"

enum {
    DIRECT = 32 << 10, /* a run that is read to its place by itself */
    SCATTER = 2 << 10, /* runs that preadv puts into place */
    SPARSE = 4,        /* a request may read so many times what it needs */
    MOST_IOV = 512
};

bool cf_stretch_add(cf_stretches *list, uint64_t number, uint64_t at, uint64_t size, uint32_t crc,
                    cf_err *err)
{
    const size_t back = list->count < 32 ? list->count : 32;
    for (size_t i = 0; i < back; i++) {
        cf_stretch *s = &list->items[list->count - 1 - i];
        if (s->number != number || s->at + s->size != at) continue;
        s->crc = (uint32_t)crc32_combine(s->crc, crc, (z_off_t)size);
        s->size += size;
        return true;
    }
    if (list->count == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 16;
        cf_stretch *items = realloc(list->items, cap * sizeof *items);
        if (!items) return cf_fail(err, CF_E_MEMORY, "out of memory");
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = (cf_stretch){number, at, size, crc};
    return true;
}

static int by_place(const void *a, const void *b)
{
    const cf_stretch *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void cf_stretches_sort(cf_stretches *list)
{
    if (list->count) qsort(list->items, list->count, sizeof *list->items, by_place);
}

bool cf_stretches_whole(const cf_stretches *list, uint64_t number, uint64_t size, uint32_t *crc)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (list->items[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    uint64_t next = 0;
    *crc = 0;
    for (; low < list->count && list->items[low].number == number; low++) {
        const cf_stretch *s = &list->items[low];
        if (s->at != next) return false;
        *crc = next ? (uint32_t)crc32_combine(*crc, s->crc, (z_off_t)s->size) : s->crc;
        next += s->size;
    }
    return next == size;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

/* The move under way. */
typedef struct task {
    cf_gather *g;
    const cf_b_move *move;
    const int64_t *dims;
    uint8_t *buffer; /* where the record's elements go: the result, or what is cast into it */
    uint64_t start;  /* place in the chunk of buffer[0], in bytes of the record's dtype */
    uint8_t *result;
    uint32_t crc;    /* of the last read, where the move is checked */
    uint64_t pieces; /* reads made */
    cf_err *err;
} task;

static bool note(task *t, uint64_t at, uint64_t size, uint32_t crc)
{
    t->pieces++;
    t->crc = crc;
    return cf_stretch_add(&t->g->checked, t->move->record, at, size, crc, t->err);
}

/* The file that the record lies in; scratch is read with pread. NULL: it is in memory. */
static cf_input *input_of(const cf_bytes *bytes, uint64_t record, cf_input *scratch)
{
    const int fd = bytes->records[record].fd;
    if (fd < 0) return NULL;
    cf_input *input = bytes->inputs ? &bytes->inputs[bytes->block->records[record].source] : NULL;
    if (input && input->fd == fd) return input;
    *scratch = (cf_input){.fd = fd, .direct = -1, .plain = true};
    return scratch;
}

static bool inside(const cf_span *span, uint64_t at, uint64_t size)
{
    return size <= span->size && at <= span->size - size;
}

bool cf_gather_read(cf_gather *g, uint64_t record, uint64_t at, void *to, uint64_t n, cf_err *err)
{
    g->read += n;
    g->requests++;
    if (g->dry) return true;
    const cf_span *span = &g->bytes->records[record];
    cf_input scratch, *input = input_of(g->bytes, record, &scratch);
    if (!input || !inside(span, at, n)) return cf_span_read(span, at, to, n, err);
    return cf_reader_read(&g->reader, input, span->start + at, to, n, err);
}

static bool read_at(task *t, uint64_t at, uint8_t *to, uint64_t size)
{
    if (!cf_gather_read(t->g, t->move->record, at, to, size, t->err)) return false;
    if (!(t->move->flags & CF_MOVE_CHECKED) || t->g->dry) return true;
    return note(t, at, size, libdeflate_crc32(0, to, size));
}

/* count runs that lie one after another in the record, to places `step` apart. */
static bool read_runs(task *t, uint64_t at, uint8_t *to, int64_t count, int64_t step)
{
    const uint64_t run = t->move->run;
    if (t->g->dry) {
        const bool memory = t->g->bytes->block->records[t->move->record].place == CF_IN_MEMORY;
        t->g->read += run * (uint64_t)count;
        t->g->requests += (uint64_t)(memory ? count : (count + MOST_IOV - 1) / MOST_IOV);
        return true;
    }
    const cf_span *span = &t->g->bytes->records[t->move->record];
    cf_input scratch, *input = input_of(t->g->bytes, t->move->record, &scratch);
    struct iovec iov[MOST_IOV];
    while (count > 0) {
        const int n = (int)cf_min(count, MOST_IOV);
        const uint64_t size = run * (uint64_t)n;
        if (!input || !inside(span, at, size)) {
            for (int i = 0; i < n; i++)
                if (!read_at(t, at + run * (uint64_t)i, to + i * step, run)) return false;
        } else {
            for (int i = 0; i < n; i++) iov[i] = (struct iovec){to + i * step, run};
            t->g->read += size;
            t->g->requests++;
            if (!cf_reader_scatter(&t->g->reader, input, span->start + at, iov, n, t->err))
                return false;
            if (t->move->flags & CF_MOVE_CHECKED) {
                uint32_t crc = 0;
                for (int i = 0; i < n; i++) crc = libdeflate_crc32(crc, to + i * step, run);
                if (!note(t, at, size, crc)) return false;
            }
        }
        at += size;
        to += n * step;
        count -= n;
    }
    return true;
}

/* ---- a box of runs -----------------------------------------------------------------------------
 */

typedef struct level {
    int64_t count, from, to; /* strides in the record and in the buffer */
    int64_t extent, used;    /* bytes of the record that all inside span and need */
} level;

typedef struct box {
    level levels[CF_MOST_DIMS + 1]; /* outermost in the source first; the last is the run itself */
    int n;
} box;

static void copy_runs(const uint8_t *from, uint8_t *to, const level *l, uint64_t run)
{
#define COPY(bytes)                                                                                \
    for (int64_t i = 0; i < l->count; i++) memcpy(to + i * l->to, from + i * l->from, bytes)
    switch (run) {
    case 1: COPY(1); break;
    case 2: COPY(2); break;
    case 4: COPY(4); break;
    case 8: COPY(8); break;
    case 16: COPY(16); break;
    default: COPY(run);
    }
#undef COPY
}

/* Everything from level `at` inwards, out of memory. */
static void scatter(const box *b, int at, const uint8_t *from, uint8_t *to, uint64_t run)
{
    if (at == b->n) {
        memcpy(to, from, run);
    } else if (at == b->n - 1) {
        copy_runs(from, to, &b->levels[at], run);
    } else {
        const level *l = &b->levels[at];
        for (int64_t i = 0; i < l->count; i++)
            scatter(b, at + 1, from + i * l->from, to + i * l->to, run);
    }
}

/* The levels from `at` on in the order of the tensor, so that it is written from front to back. */
static box tensor_order(const box *b, int at)
{
    box to = {0};
    for (int d = at; d < b->n; d++) {
        int k = to.n++;
        for (; k > 0 && to.levels[k - 1].to < b->levels[d].to; k--) to.levels[k] = to.levels[k - 1];
        to.levels[k] = b->levels[d];
    }
    return to;
}

static bool gather(task *t, const box *b, int at, uint64_t from, uint8_t *to);

/* Index by index. */
static bool each(task *t, const box *b, int at, uint64_t from, uint8_t *to)
{
    const level *l = &b->levels[at];
    cf_gather *g = t->g;
    const uint64_t read = g->read, requests = g->requests;
    for (int64_t i = 0; i < l->count; i++) {
        if (!gather(t, b, at + 1, from + (uint64_t)(i * l->from), to + i * l->to)) return false;
        if (!g->dry) continue;
        g->read += (g->read - read) * (uint64_t)(l->count - 1); /* all others are as the first */
        g->requests += (g->requests - requests) * (uint64_t)(l->count - 1);
        break;
    }
    return true;
}

/* count requests of `size` bytes, `together` of them in scratch. */
static bool count_requests(cf_gather *g, int64_t count, int64_t size, int64_t together)
{
    const uint64_t used = (uint64_t)(size * cf_min(count, together));
    g->requests += (uint64_t)count;
    g->read += (uint64_t)(count * size);
    if (used > g->scratched) g->scratched = used;
    return true;
}

/* An index is one stretch of the source, and the next lies far off: as many as fit are brought
 * side by side and scattered together. */
static bool stretches(task *t, const box *b, int at, uint64_t from, uint8_t *to)
{
    enum { LINE = 64 }; /* one more between them: or all would fall into the same sets of a cache */
    const level *l = &b->levels[at], *inner = &b->levels[at + 1];
    const int64_t room = (int64_t)t->g->means->tile;
    const int64_t pitch = (inner->extent + 2 * LINE - 1) / LINE * LINE;
    const int64_t most = pitch <= room ? room / pitch : 1;
    if (t->g->dry) return count_requests(t->g, l->count, inner->extent, most);
    for (int64_t i = 0; i < l->count; i += most) {
        const int64_t n = cf_min(most, l->count - i);
        for (int64_t k = 0; k < n; k++)
            if (!read_at(t, from + (uint64_t)((i + k) * l->from), t->g->scratch + k * pitch,
                         (uint64_t)inner->extent))
                return false;
        box part = *b;
        part.levels[at].count = n;
        part.levels[at].from = pitch;
        part = tensor_order(&part, at);
        scatter(&part, 0, t->g->scratch, to + i * l->to, t->move->run);
    }
    return true;
}

static bool gather(task *t, const box *b, int at, uint64_t from, uint8_t *to)
{
    if (at == b->n) return read_at(t, from, to, t->move->run);
    const level *l = &b->levels[at], *inner = &b->levels[at + 1];
    const int64_t room = (int64_t)t->g->means->tile;
    const bool rows = at == b->n - 1 && l->from == (int64_t)t->move->run;
    if (rows && t->move->run >= SCATTER && t->move->run < DIRECT)
        return read_runs(t, from, to, l->count, l->to);
    if (t->move->run >= DIRECT || inner->extent > room || inner->used * SPARSE < inner->extent)
        return each(t, b, at, from, to);
    /* so many indices of this level fit into one request without reading too much in vain */
    const bool thin = l->from > 0 && inner->used * SPARSE < l->from;
    const int64_t most = l->from == 0 ? l->count : thin ? 1 : (room - inner->extent) / l->from + 1;
    if (most <= 1) return (at == b->n - 1 ? each : stretches)(t, b, at, from, to);
    if (t->g->dry) {
        const int64_t full = l->count / most, rest = l->count % most;
        count_requests(t->g, full, (most - 1) * l->from + inner->extent, 1);
        return count_requests(t->g, rest > 0, (rest - 1) * l->from + inner->extent, 1);
    }
    for (int64_t i = 0; i < l->count; i += most) {
        box part = *b;
        part.levels[at].count = cf_min(most, l->count - i);
        const uint64_t place = from + (uint64_t)(i * l->from);
        const int64_t size = (part.levels[at].count - 1) * l->from + inner->extent;
        if (!read_at(t, place, t->g->scratch, (uint64_t)size)) return false;
        part = tensor_order(&part, at);
        scatter(&part, 0, t->g->scratch, to + i * l->to, t->move->run);
    }
    return true;
}

/* What is done to the bytes of a run, that lie in the buffer now: byte order, the signs of torch's
 * lazy bits, the cast into the result. */
static void transform(const task *t, uint8_t *bytes, uint64_t size)
{
    const cf_b_move *m = t->move;
    const cf_dtype_info *info = cf_dtype_of((cf_dtype)m->dtype);
    const size_t part = info->swap;
    if (m->flags & CF_MOVE_SWAP)
        for (uint64_t i = 0; i < size; i += part)
            for (size_t k = 0; k < part / 2; k++) {
                const uint8_t b = bytes[i + k];
                bytes[i + k] = bytes[i + part - 1 - k];
                bytes[i + part - 1 - k] = b;
            }
    if (m->flags & CF_MOVE_NEG)
        for (uint64_t i = part - 1; i < size; i += part) bytes[i] ^= 0x80;
    if (m->flags & CF_MOVE_CONJ)
        for (uint64_t i = info->size - 1u; i < size; i += info->size) bytes[i] ^= 0x80;
    if (m->cast == m->dtype) return;
    const size_t first = (size_t)(bytes - t->buffer) / info->size;
    cf_cast((cf_dtype)m->dtype, bytes, (cf_dtype)m->cast,
            t->result + first * (size_t)cf_dtype_size((cf_dtype)m->cast), size / info->size);
}

static bool transforms(const cf_b_move *m)
{
    return m->cast != m->dtype || m->flags & (CF_MOVE_SWAP | CF_MOVE_CONJ | CF_MOVE_NEG);
}

/* run: bytes that lie together in the tensor. */
static void transform_box(const task *t, const box *b, int at, uint8_t *to, uint64_t run)
{
    if (at == b->n) {
        transform(t, to, run);
        return;
    }
    for (int64_t i = 0; i < b->levels[at].count; i++)
        transform_box(t, b, at + 1, to + i * b->levels[at].to, run);
}

static void transform_all(const task *t, const box *b, uint8_t *to)
{
    box by = tensor_order(b, 0);
    uint64_t run = t->move->run;
    for (; by.n && by.levels[by.n - 1].to == (int64_t)run; by.n--)
        run *= (uint64_t)by.levels[by.n - 1].count;
    transform_box(t, &by, 0, to, run);
}

static bool take_box(void *ctx, const int64_t *at, const int64_t *size)
{
    task *t = ctx;
    const cf_b_move *m = t->move;
    box b = {0};
    uint64_t from = m->from, to = m->to - t->start;
    for (int d = 0; d < m->ndim; d++) {
        from += (uint64_t)(at[d] * t->dims[3 * d + 1]);
        to += (uint64_t)(at[d] * t->dims[3 * d + 2]);
        if (size[d] == 1) continue;
        int k = b.n++;
        for (; k > 0 && b.levels[k - 1].from < t->dims[3 * d + 1]; k--)
            b.levels[k] = b.levels[k - 1];
        b.levels[k] =
            (level){.count = size[d], .from = t->dims[3 * d + 1], .to = t->dims[3 * d + 2]};
    }
    b.levels[b.n] = (level){.extent = (int64_t)m->run, .used = (int64_t)m->run};
    for (int k = b.n - 1; k >= 0; k--) {
        const level *inner = &b.levels[k + 1];
        level *l = &b.levels[k];
        l->extent = (l->count - 1) * l->from + inner->extent;
        l->used = l->from ? l->count * inner->used : inner->used;
    }
    if (!gather(t, &b, 0, from, t->buffer + to)) return false;
    if (transforms(m) && !t->g->dry) transform_all(t, &b, t->buffer + to);
    return true;
}

/* ---- the runs that meet the buffer -------------------------------------------------------------
 */

/* The last run that begins at or before place `at` (relative to the move), as its index in each
 * dimension; its number in order, and where it begins. */
static int64_t run_at(const cf_b_move *m, const int64_t *dims, int64_t at, int64_t *index,
                      int64_t *begin)
{
    int64_t number = 0;
    *begin = 0;
    bool all = false; /* an outer index was cut to the last: so are those inside */
    for (int d = 0; d < m->ndim; d++) {
        const int64_t count = dims[3 * d], step = dims[3 * d + 2];
        int64_t i = all ? count - 1 : at / step;
        if (i > count - 1) {
            i = count - 1;
            all = true;
        }
        at -= i * step;
        index[d] = i;
        *begin += i * step;
        number = number * count + i;
    }
    return number;
}

/* Part of one run: skip..skip+size-1 of it. */
static bool part_run(task *t, const int64_t *index, int64_t begin, uint64_t skip, uint64_t size)
{
    const cf_b_move *m = t->move;
    uint64_t from = m->from + skip;
    for (int d = 0; d < m->ndim; d++) from += (uint64_t)(index[d] * t->dims[3 * d + 1]);
    uint8_t *to = t->buffer + (m->to + (uint64_t)begin + skip - t->start);
    if (!read_at(t, from, to, size)) return false;
    if (transforms(m) && !t->g->dry) transform(t, to, size);
    return true;
}

/* One move's bytes from..to-1 of the chunk; how many there were. */
static bool carry_out(task *t, uint64_t from, uint64_t to, uint64_t *bytes)
{
    const cf_b_move *m = t->move;
    const int64_t run = (int64_t)m->run;
    int64_t count[CF_MOST_DIMS + 1], index[CF_MOST_DIMS + 1], begin, extent = run, all = 1;
    for (int d = m->ndim - 1; d >= 0; d--) {
        count[d] = t->dims[3 * d];
        extent += (count[d] - 1) * t->dims[3 * d + 2];
        all *= count[d];
    }
    *bytes = 0;
    if (m->to >= to || m->to + (uint64_t)extent <= from) return true;
    const int64_t low = from > m->to ? (int64_t)(from - m->to) : 0;
    const int64_t high = cf_min((int64_t)(to - m->to), extent);
    int64_t first = run_at(m, t->dims, low, index, &begin);
    if (begin + run <= low) {
        first++; /* that run ends before; the next begins later */
    } else if (begin < low || begin + run > high) {
        const int64_t end = cf_min(begin + run, high);
        *bytes += (uint64_t)(end - cf_max(begin, low));
        if (!part_run(t, index, begin, (uint64_t)(cf_max(begin, low) - begin),
                      (uint64_t)(end - cf_max(begin, low))))
            return false;
        first++;
    }
    if (first >= all) return true;
    int64_t last = run_at(m, t->dims, high - 1, index, &begin); /* the last that begins in it */
    const bool tail = last >= first && begin + run > high;
    const int64_t whole = last + !tail;
    if (first < whole) {
        *bytes += (uint64_t)(whole - first) * m->run;
        if (!cf_range_boxes(m->ndim, count, first, whole, take_box, t)) return false;
    }
    if (!tail) return true;
    *bytes += (uint64_t)(high - begin);
    return part_run(t, index, begin, 0, (uint64_t)(high - begin));
}

bool cf_gather_start(cf_gather *g, const cf_bytes *bytes, const cf_means *means, cf_err *err)
{
    *g = (cf_gather){.bytes = bytes, .means = means, .scratch = malloc(means->tile)};
    cf_reader_start(&g->reader, means->io, means->reading);
    return g->scratch ? true : cf_fail(err, CF_E_MEMORY, "out of memory");
}

void cf_gather_dry(cf_gather *g, const cf_bytes *bytes, const cf_means *means)
{
    static double nowhere[1]; /* addresses are worked out, nothing is put there */
    *g = (cf_gather){.bytes = bytes,
                     .means = means,
                     .scratch = (uint8_t *)nowhere,
                     .staging = (uint8_t *)nowhere,
                     .sum = nowhere,
                     .dry = true};
}

void cf_gather_end(cf_gather *g)
{
    cf_reader_end(&g->reader);
    free(g->scratch);
    free(g->staging);
    free(g->sum);
    free(g->checked.items);
    *g = (cf_gather){0};
}

/* The part of one move that falls into from..to-1, through the staging area in as many steps as
 * that needs. *filled grows by the bytes of the result. */
static bool cast_move(task *t, uint64_t from, uint64_t to, uint64_t *filled)
{
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)t->move->dtype);
    const uint64_t cast = (uint64_t)cf_dtype_size((cf_dtype)t->move->cast);
    if (!t->g->staging && !(t->g->staging = malloc(t->g->means->staging)))
        return cf_fail(t->err, CF_E_MEMORY, "out of memory");
    uint8_t *const result = t->result;
    t->buffer = t->g->staging;
    const uint64_t last = to / cast, all = last - from / cast;
    /* what is tall is cast at one go, anything else while it is in cache */
    const uint64_t step = all * size <= t->g->means->staging ? all : t->g->means->tile / size;
    for (uint64_t first = from / cast, at = first; at < last; at += step) {
        const uint64_t end = at + step < last ? at + step : last;
        uint64_t bytes;
        t->result = result + (at - first) * cast;
        t->start = at * size;
        if (!carry_out(t, at * size, end * size, &bytes)) return false;
        *filled += bytes / size * cast;
    }
    return true;
}

bool cf_gather_fill(cf_gather *g, uint64_t first, uint64_t count, uint64_t from, uint64_t to,
                    uint8_t *buffer, uint32_t *crc, bool *known, cf_err *err)
{
    const cf_block *block = g->bytes->block;
    uint64_t filled = 0;
    *known = false;
#ifdef CF_POISON /* of test builds: what no move fills shows, whatever the buffer held before */
    if (!g->dry) memset(buffer, 0xA5, to - from);
#endif
    for (uint64_t i = first; i < first + count && filled < to - from; i++) {
        const cf_b_move *m = &block->moves[i];
        task t = {.g = g,
                  .move = m,
                  .dims = block->numbers + m->dims,
                  .buffer = buffer,
                  .start = from,
                  .result = buffer,
                  .err = err};
        uint64_t bytes = 0;
        const bool ok =
            m->cast != m->dtype ? cast_move(&t, from, to, &bytes) : carry_out(&t, from, to, &bytes);
        if (!ok) {
            const cf_b_record *r = &block->records[m->record];
            cf_err_add_file(err, cf_record_path(block, r));
            return false;
        }
        filled += bytes;
        if (bytes == to - from && t.pieces == 1 && m->ndim == 0 && (m->flags & CF_MOVE_CHECKED) &&
            !transforms(m)) {
            *crc = t.crc;
            *known = true;
        }
    }
    if (filled == to - from) return true;
    return cf_fail(err, CF_E_INTERNAL, "moves fill %llu of %llu bytes", (unsigned long long)filled,
                   (unsigned long long)(to - from));
}

/* To a dtype and back. */
static void round_to(cf_dtype dtype, double *at, uint64_t n)
{
    double some[256];
    for (uint64_t k = 0; k < n; k += 256) {
        const size_t count = n - k < 256 ? (size_t)(n - k) : 256;
        cf_cast(CF_F64, at + k, dtype, some, count);
        cf_cast(dtype, some, CF_F64, at + k, count);
    }
}

/* A sum, in steps of as many elements as fit as F64. */
static bool add_up(cf_gather *g, const cf_b_chunk *c, uint64_t from, uint64_t to, uint8_t *buffer,
                   cf_err *err)
{
    const uint64_t step = g->means->tile / sizeof(double);
    const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)c->dtype), last = to / size;
    if (!g->sum && !(g->sum = malloc(g->means->sum)))
        return cf_fail(err, CF_E_MEMORY, "out of memory");
    double *sum = g->sum, *next = g->sum + step;
    for (uint64_t at = from / size; at < last; at += step) {
        const uint64_t end = at + step < last ? at + step : last, n = end - at;
        if (!g->dry) memset(sum, 0, n * sizeof *sum);
        for (uint64_t i = c->move; i < c->move + c->moves; i++) {
            const cf_b_term *t = &g->bytes->block->terms[i];
            uint32_t crc;
            bool known;
            if (!cf_gather_fill(g, t->move, t->moves, at * sizeof *sum, end * sizeof *sum,
                                (uint8_t *)next, &crc, &known, err))
                return false;
            if (!g->dry && t->rounded != CF_NO_DTYPE) round_to((cf_dtype)t->rounded, next, n);
            for (uint64_t k = 0; !g->dry && k < n; k++) sum[k] += t->weight * next[k];
        }
        if (g->dry) continue;
        cf_cast(CF_F64, sum, (cf_dtype)c->dtype, buffer + (at * size - from), n);
    }
    return true;
}

bool cf_gather_chunk(cf_gather *g, const cf_b_chunk *c, uint64_t from, uint64_t to, uint8_t *buffer,
                     uint32_t *crc, bool *known, cf_err *err)
{
    if (!c->sum) return cf_gather_fill(g, c->move, c->moves, from, to, buffer, crc, known, err);
    *known = false;
    return add_up(g, c, from, to, buffer, err);
}
