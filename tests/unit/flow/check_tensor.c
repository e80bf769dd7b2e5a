/* Operations on tensors against the same on a plain array of element numbers. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "num.h"
#include "suite.h"
#include "tensor.h"

enum { MOST = 20000 };

static uint64_t state = 1234567;

static int64_t below(int64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state % (uint64_t)n);
}

/* The plain array: shape, and the number that stands at each place, row-major. */
typedef struct plain {
    int ndim;
    int64_t shape[8], numel;
    int32_t *at;
} plain;

static plain new_plain(cf_arena *arena, int ndim, const int64_t *shape)
{
    plain p = {.ndim = ndim};
    memcpy(p.shape, shape, (size_t)ndim * sizeof *shape);
    cf_numel(shape, ndim, &p.numel);
    p.at = CF_NEWS(arena, int32_t, (size_t)p.numel + 1);
    return p;
}

static bool step(int64_t *index, const int64_t *shape, int ndim)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++index[d] < shape[d]) return true;
        index[d] = 0;
    }
    return false;
}

static int64_t place(const int64_t *index, const int64_t *shape, int ndim)
{
    int64_t n = 0;
    for (int d = 0; d < ndim; d++) n = n * shape[d] + index[d];
    return n;
}

/* What the tensor would be written as; every element is written once. */
static void compare(cf_arena *arena, const cf_tensor *t, const plain *want)
{
    ck_assert_int_eq(t->ndim, want->ndim);
    for (int d = 0; d < t->ndim; d++) ck_assert_int_eq(t->shape[d], want->shape[d]);
    ck_assert_int_eq(t->numel, want->numel);
    plain got = new_plain(arena, t->ndim, t->shape);
    int64_t written = 0;
    for (size_t i = 0; i < t->terms[0].count; i++) {
        const cf_tile *tile = &t->terms[0].tiles[i];
        const cf_view *v = tile->view;
        int64_t index[8] = {0}, whole[8];
        ck_assert_int_gt(v->numel, 0);
        do {
            uint64_t from = v->offset;
            for (int d = 0; d < v->ndim; d++) {
                from += (uint64_t)(index[d] * v->stride[d] * 4);
                whole[d] = tile->at[d] + index[d];
                ck_assert(whole[d] < t->shape[d]);
            }
            ck_assert(from + 4 <= v->storage->size);
            memcpy(&got.at[place(whole, t->shape, t->ndim)], v->storage->bytes + from, 4);
            written++;
        } while (step(index, v->shape, v->ndim));
    }
    ck_assert_int_eq(written, want->numel);
    ck_assert_mem_eq(got.at, want->at, (size_t)want->numel * 4);
}

/* A tensor of element numbers, cut into boxes with storages of their own, some of them permuted. */
static const cf_tensor *start(cf_arena *arena, plain *p, int32_t first, cf_err *err)
{
    cf_row *row = CF_NEW(arena, cf_row);
    int64_t cuts[8], boxes = 1, *shape = cf_memdup(arena, p->shape, sizeof p->shape);
    for (int64_t i = 0; i < p->numel; i++) p->at[i] = first + (int32_t)i;
    for (int d = 0; d < p->ndim; d++) boxes *= cuts[d] = 1 + below(cf_min(p->shape[d], 3));
    *row = (cf_row){
        .key = "w", .dtype = CF_I32, .ndim = (uint8_t)p->ndim, .shape = shape, .numel = p->numel};
    row->pieces = CF_NEWS(arena, cf_piece, (size_t)boxes);
    for (int64_t b = 0; b < boxes; b++) {
        int64_t rest = b, size[8], stride[8], order[8], next = 1, *at = CF_NEWS(arena, int64_t, 8);
        for (int d = 0; d < p->ndim; d++) {
            const int64_t k = rest % cuts[d], each = p->shape[d] / cuts[d];
            rest /= cuts[d];
            at[d] = k * each;
            size[d] = k == cuts[d] - 1 ? p->shape[d] - at[d] : each;
            order[d] = d;
        }
        if (below(3) == 0)
            for (int d = p->ndim - 1; d > 0; d--) {
                const int64_t k = below(d + 1), t = order[d];
                order[d] = order[k];
                order[k] = t;
            }
        for (int k = p->ndim - 1; k >= 0; k--) {
            stride[order[k]] = next;
            next *= size[order[k]];
        }
        cf_storage *s = CF_NEW(arena, cf_storage);
        uint8_t *bytes = cf_alloc(arena, (size_t)next * 4);
        *s = (cf_storage){.place = CF_IN_MEMORY, .size = (uint64_t)next * 4, .bytes = bytes};
        int64_t index[8] = {0}, whole[8];
        do {
            int64_t to = 0;
            for (int d = 0; d < p->ndim; d++) {
                to += index[d] * stride[d];
                whole[d] = at[d] + index[d];
            }
            memcpy(bytes + 4 * to, &p->at[place(whole, p->shape, p->ndim)], 4);
        } while (step(index, size, p->ndim));
        const cf_view *v = cf_view_new(arena, s, CF_I32, 0, p->ndim, size, stride, err);
        ck_assert(v != NULL);
        row->pieces[b] = (cf_piece){.view = v, .at = at, .replica_of = (uint32_t)b};
        row->n_pieces++;
    }
    return cf_tensor_of_row(arena, row, err);
}

static void random_shape(int64_t numel, int64_t *shape, int *ndim)
{
    *ndim = 0;
    while (numel > 1 && *ndim < 4) {
        int64_t divisors[64], n = 0;
        for (int64_t d = 1; d <= numel && n < 64; d++)
            if (numel % d == 0) divisors[n++] = d;
        shape[*ndim] = divisors[below(n)];
        numel /= shape[(*ndim)++];
    }
    shape[(*ndim)++] = numel;
    if (below(3) == 0) shape[(*ndim)++] = 1;
}

static const cf_tensor *operate(cf_arena *arena, const cf_tensor *t, plain *p, cf_err *err)
{
    int64_t index[8] = {0}, moved[8];
    const int kind = (int)below(4);
    if (kind == 0 && p->ndim) { /* slice */
        const int dim = (int)below(p->ndim);
        const int64_t from = below(p->shape[dim]), to = from + 1 + below(p->shape[dim] - from);
        int64_t shape[8];
        memcpy(shape, p->shape, sizeof shape);
        shape[dim] = to - from;
        plain r = new_plain(arena, p->ndim, shape);
        do {
            memcpy(moved, index, sizeof moved);
            moved[dim] += from;
            r.at[place(index, shape, p->ndim)] = p->at[place(moved, p->shape, p->ndim)];
        } while (step(index, shape, p->ndim));
        *p = r;
        return cf_tensor_slice(arena, t, from, to, dim, err);
    }
    if (kind == 1) { /* permute */
        int64_t dims[8], shape[8];
        for (int d = 0; d < p->ndim; d++) dims[d] = d;
        for (int d = p->ndim - 1; d > 0; d--) {
            const int64_t k = below(d + 1), s = dims[d];
            dims[d] = dims[k];
            dims[k] = s;
        }
        for (int d = 0; d < p->ndim; d++) shape[d] = p->shape[dims[d]];
        plain r = new_plain(arena, p->ndim, shape);
        do {
            for (int d = 0; d < p->ndim; d++) moved[dims[d]] = index[d];
            r.at[place(index, shape, p->ndim)] = p->at[place(moved, p->shape, p->ndim)];
        } while (step(index, shape, p->ndim));
        const int n = p->ndim;
        *p = r;
        return cf_tensor_permute(arena, t, dims, n, err);
    }
    if (kind == 2 && p->ndim && p->numel * 2 < MOST) { /* concat with itself */
        const int dim = (int)below(p->ndim);
        const cf_tensor *twice[] = {t, t};
        int64_t shape[8];
        memcpy(shape, p->shape, sizeof shape);
        shape[dim] *= 2;
        plain r = new_plain(arena, p->ndim, shape);
        do {
            memcpy(moved, index, sizeof moved);
            moved[dim] %= p->shape[dim];
            r.at[place(index, shape, p->ndim)] = p->at[place(moved, p->shape, p->ndim)];
        } while (step(index, shape, p->ndim));
        *p = r;
        return cf_tensor_concat(arena, twice, 2, dim, err);
    }
    int64_t shape[8];
    int n;
    random_shape(p->numel, shape, &n);
    memcpy(p->shape, shape, sizeof shape);
    p->ndim = n;
    if (below(3) == 0) shape[below(n)] = -1;
    return cf_tensor_reshape(arena, t, shape, n, err);
}

START_TEST(random_operations)
{
    for (int i = 0; i < 600; i++) {
        cf_arena arena;
        cf_err err = {0};
        int64_t shape[8];
        cf_arena_init(&arena, 0);
        const int ndim = (int)below(5);
        for (int d = 0; d < ndim; d++) shape[d] = 1 + below(ndim > 2 ? 7 : 20);
        plain p = new_plain(&arena, ndim, shape);
        const cf_tensor *t = start(&arena, &p, 1, &err);
        ck_assert(t != NULL);
        compare(&arena, t, &p);
        for (int64_t n = below(6); n > 0; n--) {
            t = operate(&arena, t, &p, &err);
            ck_assert_msg(t != NULL, "%s", err.message);
            compare(&arena, t, &p);
        }
        cf_arena_free(&arena);
    }
}
END_TEST

/* A range of a tensor, taken from views of any strides. */
START_TEST(random_ranges)
{
    for (int i = 0; i < 500; i++) {
        cf_arena arena;
        cf_err err = {0};
        int64_t shape[8], numel = 0;
        cf_arena_init(&arena, 0);
        const int ndim = 1 + (int)below(4);
        for (int d = 0; d < ndim; d++) shape[d] = 1 + below(8);
        cf_numel(shape, ndim, &numel);
        const int64_t from = below(numel), n = 1 + below(numel - from);
        const int64_t line[] = {n};
        plain p = new_plain(&arena, 1, line);
        const cf_tensor *t = start(&arena, &p, 1, &err);
        const cf_view *view = t->terms[0].tiles[0].view;
        const int64_t start_at = from + t->terms[0].tiles[0].at[0];
        const cf_tensor *r = cf_tensor_range(&arena, view, start_at, ndim, shape, &err);
        ck_assert_msg(r != NULL, "%s", err.message);
        int64_t seen = 0;
        for (size_t k = 0; k < r->terms[0].count; k++) {
            const cf_tile *tile = &r->terms[0].tiles[k];
            const cf_view *v = tile->view;
            int64_t index[8] = {0}, whole[8];
            do {
                uint64_t byte = v->offset;
                int32_t value;
                for (int d = 0; d < v->ndim; d++) {
                    byte += (uint64_t)(index[d] * v->stride[d] * 4);
                    whole[d] = tile->at[d] + index[d];
                }
                memcpy(&value, v->storage->bytes + byte, 4);
                ck_assert_int_eq(value - 1 + from, place(whole, shape, ndim));
                seen++;
            } while (step(index, v->shape, v->ndim));
        }
        ck_assert_int_eq(seen, view->numel);
        ck_assert(cf_tensor_range(&arena, view, numel - view->numel + 1, ndim, shape, &err) ==
                  NULL);
        ck_assert_int_eq(err.code, CF_E_BOUNDS);
        cf_arena_free(&arena);
    }
}
END_TEST

START_TEST(refusals)
{
    cf_arena arena;
    cf_err err = {0};
    cf_arena_init(&arena, 0);
    const int64_t shape[] = {4, 6}, five[] = {5, 5}, twice[] = {0, 0}, open[] = {-1, 5},
                  two[] = {-1, -1};
    plain p = new_plain(&arena, 2, shape);
    const cf_tensor *t = start(&arena, &p, 1, &err);
    ck_assert(!cf_tensor_slice(&arena, t, 3, 2, 0, &err) && err.code == CF_E_BOUNDS);
    ck_assert(!cf_tensor_slice(&arena, t, 0, 7, 1, &err) && err.code == CF_E_BOUNDS);
    ck_assert(!cf_tensor_slice(&arena, t, 0, 1, 2, &err) && err.code == CF_E_BOUNDS);
    ck_assert(!cf_tensor_reshape(&arena, t, five, 2, &err) && err.code == CF_E_LAYOUT);
    ck_assert(!cf_tensor_reshape(&arena, t, open, 2, &err) && err.code == CF_E_LAYOUT);
    ck_assert(!cf_tensor_reshape(&arena, t, two, 2, &err) && err.code == CF_E_LAYOUT);
    ck_assert(!cf_tensor_permute(&arena, t, twice, 2, &err) && err.code == CF_E_LAYOUT);
    const cf_tensor *other = cf_tensor_cast(&arena, t, CF_F32, &err);
    ck_assert(other && other->terms[0].tiles[0].view->stored == CF_I32);
    ck_assert(!cf_tensor_cast(&arena, other, CF_BF16, &err) && err.code == CF_L_PLAN);
    const cf_tensor *both[] = {t, other};
    ck_assert(!cf_tensor_concat(&arena, both, 2, 0, &err) && err.code == CF_L_PLAN);
    const cf_tensor *same[] = {t, t};
    const double half[] = {0.5, 0.5};
    const cf_tensor *sum = cf_tensor_sum(&arena, same, half, 2, &err);
    ck_assert(sum && sum->n_terms == 2 && sum->sum);
    ck_assert(cf_tensor_slice(&arena, sum, 0, 2, 0, &err)->n_terms == 2);
    const cf_tensor *sums[] = {sum, sum};
    ck_assert(!cf_tensor_concat(&arena, sums, 2, 0, &err) && err.code == CF_L_PLAN);
    cf_arena_free(&arena);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tensor");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, random_operations);
    tcase_add_test(c, random_ranges);
    tcase_add_test(c, refusals);
    suite_add_tcase(s, c);
    return run_suite(s);
}
