/* Moves against a naive reading: random views (sliced, permuted, expanded, reversed roles of rows
 * and columns) of random storages, placed as the boxes of a grid, read in tiles of any size. */
#include <check.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "cast.h"
#include "gather.h"
#include "moves.h"
#include "num.h"
#include "suite.h"

static uint64_t state = 88172645463325252ULL;

static int64_t below(int64_t n) /* 0..n-1, the same every time */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state % (uint64_t)n);
}

typedef struct fixture {
    cf_arena arena;
    cf_source source;
    cf_dir_file file;
    cf_blocker b;
    cf_mover mover;
    cf_err err;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    cf_arena_init(&f->arena, 0);
    f->file = (cf_dir_file){.path = "x", .size = 1};
    f->source.dir.files = &f->file;
    f->source.dir.count = 1;
    ck_assert(cf_mover_init(&f->mover, &f->source, &f->b, &f->err));
}

/* A file without a name. */
static int temporary(void)
{
    char path[] = "/tmp/ckptflow-gather-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    return fd;
}

/* A storage in memory of bytes that differ from their neighbours. */
static cf_storage *new_storage(fixture *f, int64_t size)
{
    cf_storage *s = CF_NEW(&f->arena, cf_storage);
    uint8_t *bytes = cf_alloc(&f->arena, (size_t)size + 1);
    for (int64_t i = 0; i < size; i++)
        bytes[i] =
            (uint8_t)(state = state * 6364136223846793005ULL + 1442695040888963407ULL, state >> 56);
    *s = (cf_storage){.place = CF_IN_MEMORY, .size = (uint64_t)size, .bytes = bytes, .name = ""};
    s->has_crc = true;
    s->crc = libdeflate_crc32(0, bytes, (size_t)size);
    return s;
}

/* A view of the wanted shape over a storage of its own: dimensions in random order in the storage,
 * some with gaps, some expanded. */
static const cf_view *new_view(fixture *f, cf_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t stride[8], order[8], next = 1 + (below(4) == 0);
    if (next == 2 && below(2)) next = 1;
    for (int d = 0; d < ndim; d++) order[d] = d;
    if (below(2))
        for (int d = ndim - 1; d > 0; d--) {
            const int64_t k = below(d + 1), t = order[d];
            order[d] = order[k];
            order[k] = t;
        }
    for (int k = ndim - 1; k >= 0; k--) {
        const int64_t d = order[k];
        stride[d] = below(12) == 0 ? 0 : next;
        next *= shape[d] + (below(5) == 0 ? below(3) : 0);
        if (next == 0) next = 1;
    }
    int64_t reach = 0;
    for (int d = 0; d < ndim; d++) reach += shape[d] ? (shape[d] - 1) * stride[d] : 0;
    const int64_t size = cf_dtype_size(dtype), from = below(4) ? 0 : below(9);
    cf_storage *s = new_storage(f, (from + reach + 1 + (below(4) ? 0 : below(7))) * size);
    const cf_view *v =
        cf_view_new(&f->arena, s, dtype, (uint64_t)(from * size), ndim, shape, stride, &f->err);
    ck_assert_msg(v != NULL, "%s", f->err.message);
    return v;
}

/* The naive way: element by element. */
static void place(uint8_t *whole, cf_dtype dtype, const int64_t *shape, int ndim, const int64_t *at,
                  const cf_view *v)
{
    int64_t index[8] = {0};
    const int64_t size = cf_dtype_size(v->stored), cast = cf_dtype_size(dtype);
    for (int64_t n = 0; n < v->numel; n++) {
        int64_t from = (int64_t)v->offset, to = 0;
        for (int d = 0; d < ndim; d++) {
            from += index[d] * v->stride[d] * size;
            to = to * shape[d] + at[d] + index[d];
        }
        cf_cast(v->stored, v->storage->bytes + from, dtype, whole + to * cast, 1);
        for (int d = ndim - 1; d >= 0 && ++index[d] == v->shape[d]; d--) index[d] = 0;
    }
}

static void one_tensor(int ndim, const int64_t *shape, cf_dtype dtype)
{
    fixture f;
    begin(&f);
    int64_t cuts[8], numel, size = cf_dtype_size(dtype);
    ck_assert(cf_numel(shape, ndim, &numel));
    uint8_t *whole = calloc((size_t)(numel * size) + 1, 1),
            *got = calloc((size_t)(numel * size) + 1, 1);
    int64_t boxes = 1;
    for (int d = 0; d < ndim; d++) boxes *= cuts[d] = 1 + below(cf_min(shape[d], 3));
    uint64_t number;
    for (int64_t i = 0; i < boxes; i++) {
        int64_t at[8], part[8], rest = i;
        for (int d = 0; d < ndim; d++) {
            const int64_t k = rest % cuts[d], each = shape[d] / cuts[d];
            rest /= cuts[d];
            at[d] = k * each;
            part[d] = k == cuts[d] - 1 ? shape[d] - at[d] : each;
        }
        static const cf_dtype stored[] = {CF_F64, CF_F32, CF_F16, CF_BF16};
        const bool cast = cf_dtype_of(dtype)->class == CF_CLASS_FLOATING && below(3) == 0;
        const cf_view *v = new_view(&f, cast ? stored[below(4)] : dtype, ndim, part);
        place(whole, dtype, shape, ndim, at, v);
        ck_assert_msg(cf_mover_add(&f.mover, v, shape, at, dtype, &number, &f.err), "%s",
                      f.err.message);
    }
    ck_assert(cf_mover_checks(&f.mover, &f.err));
    cf_text *moves = &f.b.sections[CF_B_MOVES];
    qsort(moves->at, moves->size / sizeof(cf_b_move), sizeof(cf_b_move), cf_move_order);
    const uint64_t bytes = (uint64_t)(numel * size);
    const cf_b_chunk chunk = {.end = bytes,
                              .moves = moves->size / sizeof(cf_b_move),
                              .tensor = CF_B_NONE,
                              .dtype = (uint8_t)dtype};
    const cf_b_file file = {.path = cf_blocker_text(&f.b, "out", 3), .size = bytes, .chunks = 1};
    cf_blocker_add(&f.b, CF_B_CHUNKS, &chunk, sizeof chunk);
    cf_blocker_add(&f.b, CF_B_FILES, &file, sizeof file);
    cf_text out = {0};
    cf_block block;
    ck_assert(cf_blocker_finish(&f.b, &out, &f.err));
    ck_assert_msg(cf_block_open(&block, out.at, out.size, 1, &f.err), "%s", f.err.message);

    /* the same bytes in memory, or in a file that is read in any of the ways */
    cf_bytes spans = {.block = &block, .records = CF_NEWS(&f.arena, cf_span, block.n_records)};
    const cf_io io = (cf_io)below(4);
    cf_input input;
    const int fd = io == CF_IO_AUTO ? -1 : temporary();
    cf_b_record *records = cf_memdup(&f.arena, block.records, block.n_records * sizeof *records);
    uint64_t end = 0;
    for (uint64_t i = 0; i < block.n_records; i++) {
        const void *at = block.bytes + records[i].bytes.at;
        spans.records[i] = cf_span_of_bytes(at, records[i].size);
        if (fd < 0) continue;
        ck_assert_int_eq(pwrite(fd, at, records[i].size, (off_t)end), (ssize_t)records[i].size);
        spans.records[i] = (cf_span){.fd = fd, .start = end, .size = records[i].size};
        records[i].place = CF_IN_FILE;
        end += records[i].size;
    }
    block.records = records;
    cf_input_open(&input, io, fd, end);
    if (fd >= 0) spans.inputs = &input;

    cf_means means;
    ck_assert(cf_means_fit(&means, &block, 1, io, CF_MAX_MEM, &f.err));
    if (below(3) == 0) ck_assert(cf_means_fit(&means, &block, 1, io, 1 << 20, &f.err));
    cf_gather g, dry;
    ck_assert(cf_gather_start(&g, &spans, &means, &f.err));
    const cf_bytes nothing = {.block = &block};
    cf_gather_dry(&dry, &nothing, &means);
    uint64_t tile = (uint64_t)(1 + below(4) * below(300)) * 16;
    if (below(3) == 0) tile = cf_chunk_tile(&block, block.chunks, &means);
    for (uint64_t at = 0; at < bytes; at += tile) {
        const uint64_t to = at + tile < bytes ? at + tile : bytes;
        uint32_t crc;
        bool known;
        ck_assert_msg(cf_gather_fill(&g, 0, block.n_moves, at, to, got + at, &crc, &known, &f.err),
                      "%s", f.err.message);
        if (known) ck_assert_uint_eq(crc, libdeflate_crc32(0, got + at, to - at));
        ck_assert(cf_gather_fill(&dry, 0, block.n_moves, at, to, dry.scratch, &crc, &known, NULL));
    }
    ck_assert_uint_eq(dry.read, g.read); /* what a plan says, and what a run does */
    ck_assert_uint_eq(dry.requests, g.requests);
    ck_assert_mem_eq(got, whole, bytes);
    cf_stretches_sort(&g.checked);
    for (uint64_t i = 0; i < block.n_records; i++) {
        uint32_t crc;
        if (cf_stretches_whole(&g.checked, i, block.records[i].size, &crc))
            ck_assert_uint_eq(crc, block.records[i].crc);
    }
    for (uint64_t i = 0; i < block.n_moves; i++) /* what was marked was read */
        if (block.moves[i].flags & CF_MOVE_CHECKED) {
            uint32_t crc;
            const uint32_t r = block.moves[i].record;
            ck_assert(cf_stretches_whole(&g.checked, r, block.records[r].size, &crc));
        }
    cf_gather_end(&g);
    cf_input_close(&input);
    if (fd >= 0) close(fd);
    free(whole);
    free(got);
    cf_text_free(&out);
    cf_mover_free(&f.mover);
    cf_blocker_free(&f.b);
    cf_arena_free(&f.arena);
}

START_TEST(random_tensors)
{
    static const cf_dtype dtypes[] = {CF_U8, CF_BF16, CF_F32, CF_F64, CF_C128};
    for (int i = 0; i < 1500; i++) {
        int64_t shape[5];
        const int ndim = (int)below(5);
        for (int d = 0; d < ndim; d++) shape[d] = 1 + below(ndim > 3 ? 6 : ndim > 2 ? 12 : 40);
        one_tensor(ndim, shape, dtypes[below(5)]);
    }
}
END_TEST

START_TEST(large_rows_and_columns)
{
    for (int i = 0; i < 12; i++) {
        const int64_t wide[] = {1 + below(40), 1 + below(90000)},
                      tall[] = {1 + below(90000), 1 + below(40)};
        one_tensor(2, wide, CF_F32);
        one_tensor(2, tall, CF_F32);
    }
    const int64_t square[] = {700, 900};
    one_tensor(2, square, CF_F32);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gather");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, random_tensors);
    tcase_add_test(c, large_rows_and_columns);
    suite_add_tcase(s, c);
    return run_suite(s);
}
