/* Boxes that tile, leave a hole or overlap; ranges cut into boxes. */
#include <check.h>
#include <string.h>

#include "shape.h"
#include "suite.h"

typedef struct cover {
    const char *what;
    int ndim;
    int64_t shape[3];
    int n;
    int64_t at[6][3], size[6][3];
    cf_cover want;
    int64_t missing, from, to;
} cover;

static const cover COVERS[] = {
    {"rows",
     2,
     {7, 3},
     3,
     {{0, 0}, {3, 0}, {6, 0}},
     {{3, 3}, {3, 3}, {1, 3}},
     CF_COVER_EXACT,
     0,
     0,
     0},
    {"grid",
     2,
     {4, 4},
     4,
     {{0, 0}, {0, 2}, {2, 0}, {2, 2}},
     {{2, 2}, {2, 2}, {2, 2}, {2, 2}},
     CF_COVER_EXACT,
     0,
     0,
     0},
    {"middle rows", 2, {7, 3}, 2, {{0, 0}, {6, 0}}, {{3, 3}, {1, 3}}, CF_COVER_HOLE, 9, 3, 6},
    {"nothing", 1, {5}, 0, {{0}}, {{0}}, CF_COVER_HOLE, 5, 0, 5},
    /* the volumes add up: only geometry tells */
    {"hole and overlap", 1, {6}, 3, {{0}, {1}, {4}}, {{2}, {2}, {2}}, CF_COVER_OVERLAP, 0, 0, 0},
    {"pinwheel",
     2,
     {3, 3},
     5,
     {{0, 0}, {0, 2}, {2, 1}, {1, 0}, {1, 1}},
     {{1, 2}, {2, 1}, {1, 2}, {2, 1}, {1, 1}},
     CF_COVER_EXACT,
     0,
     0,
     0},
    {"corner", 2, {3, 3}, 2, {{0, 0}, {0, 2}}, {{3, 2}, {2, 1}}, CF_COVER_HOLE, 1, 2, 3},
    {"scalar", 0, {0}, 1, {{0}}, {{0}}, CF_COVER_EXACT, 0, 0, 0},
    {"no scalar", 0, {0}, 0, {{0}}, {{0}}, CF_COVER_HOLE, 1, 0, 1},
};

START_TEST(covers)
{
    const cover *c = &COVERS[_i];
    cf_box boxes[6];
    cf_cover_fault fault = {0};
    for (int i = 0; i < c->n; i++) boxes[i] = (cf_box){c->at[i], c->size[i], (uint32_t)i};
    ck_assert_msg(cf_boxes_cover(c->ndim, c->shape, boxes, (size_t)c->n, &fault) == c->want, "%s",
                  c->what);
    if (c->want == CF_COVER_HOLE) {
        ck_assert_int_eq(fault.missing, c->missing);
        if (c->n) ck_assert_msg(fault.from == c->from && fault.to == c->to, "%s", c->what);
    }
}
END_TEST

typedef struct seen {
    const int64_t *shape;
    int ndim, boxes;
    int64_t next; /* the element that the next box begins with */
} seen;

static bool take(void *ctx, const int64_t *at, const int64_t *size)
{
    seen *s = ctx;
    int64_t first = 0, n = 1, last = 0;
    for (int d = 0; d < s->ndim; d++) {
        first = first * s->shape[d] + at[d];
        last = last * s->shape[d] + at[d] + size[d] - 1;
        n *= size[d];
        ck_assert(at[d] >= 0 && size[d] > 0 && at[d] + size[d] <= s->shape[d]);
    }
    ck_assert_int_eq(first, s->next);
    ck_assert_int_eq(last - first + 1, n); /* one stretch of the row-major order */
    s->next += n;
    s->boxes++;
    return true;
}

START_TEST(every_range)
{
    static const int64_t shape[] = {3, 4, 5};
    for (int ndim = 1; ndim <= 3; ndim++) {
        int64_t numel = 1;
        for (int d = 0; d < ndim; d++) numel *= shape[d];
        for (int64_t from = 0; from < numel; from++)
            for (int64_t to = from; to <= numel; to++) {
                seen s = {.shape = shape, .ndim = ndim, .next = from};
                ck_assert(cf_range_boxes(ndim, shape, from, to, take, &s));
                ck_assert_int_eq(s.next, to);
                ck_assert_int_le(s.boxes, 2 * ndim - 1);
            }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shape");
    TCase *c = tcase_create("all");
    tcase_add_loop_test(c, covers, 0, sizeof COVERS / sizeof *COVERS);
    tcase_add_test(c, every_range);
    suite_add_tcase(s, c);
    return run_suite(s);
}
