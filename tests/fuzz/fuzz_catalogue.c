/* Pieces as a byte string says, of tensors so small that a map of their elements is easy: what the
 * catalogue calls complete has every element in exactly one box, replicas counted once; what it
 * calls a hole or an overlap is one. */
#include <string.h>

#include "catalogue.h"
#include "fuzz.h"
#include "num.h"

enum { FILES = 4, SIDE = 4, MOST_ELEMENTS = 4 * 4 * 4 };

static cf_dir_file names[FILES] = {{.path = "f0"}, {.path = "f1"}, {.path = "f2"}, {.path = "f3"}};
static const char *const nowhere_at_all[] = {"/dev/null/none"}; /* no file of them can be opened */
static cf_source source = {
    .dir = {.roots = nowhere_at_all, .n_roots = 1, .files = names, .count = FILES}};
static const cf_storage nowhere = {.place = CF_NOWHERE, .size = 1 << 20, .name = ""};

/* Elements of a row-major stretch. */
static bool add_range(cf_part *part, fuzz_feed *feed, const char *key, cf_dtype dtype, int ndim,
                      const int64_t *shape, cf_arena *arena, cf_err *err)
{
    int64_t numel = 0;
    cf_numel(shape, ndim, &numel);
    const int64_t start = fuzz_byte(feed) % (numel + 1),
                  size = fuzz_byte(feed) % (numel - start + 1);
    const cf_view *view = cf_view_new(arena, &nowhere, dtype, 0, 1, &size, NULL, err);
    return cf_part_range(part, key, 1, ndim, shape, start, view, NULL, NULL, err);
}

static bool one_op(cf_part *part, fuzz_feed *feed, cf_arena *arena, cf_err *err)
{
    const uint8_t what = fuzz_byte(feed), which = fuzz_byte(feed);
    const char key[2] = {(char)('a' + which % 3), 0}, other[2] = {(char)('a' + which / 3 % 3), 0};
    const cf_dtype dtype = which & 0x80 ? CF_F16 : CF_F32;
    int64_t shape[3], size[3], at[3];
    const int ndim = which >> 4 & 3;
    for (int d = 0; d < ndim; d++) shape[d] = fuzz_byte(feed) % (SIDE + 1);
    cf_node none = {.kind = CF_NODE_NONE};
    switch (what % 16) {
    case 0: return cf_part_declare(part, key, 1, dtype, ndim, shape, err);
    case 1: return cf_part_value(part, key, 1, &none, err);
    case 2: return cf_part_name(part, key, 1, "model", other, err);
    case 3: return cf_part_alias(part, key, 1, other, err);
    case 4: return cf_part_same(part, key, 1, which & 0x40 ? other : NULL, err);
    case 5: return cf_part_world(part, which % 8, which & 0x40 ? which % 8 : -1, err);
    case 6: return add_range(part, feed, key, dtype, ndim, shape, arena, err);
    default: break;
    }
    for (int d = 0; d < ndim; d++) { /* a box inside */
        at[d] = fuzz_byte(feed) % (shape[d] + 1);
        size[d] = fuzz_byte(feed) % (shape[d] - at[d] + 1);
    }
    const cf_view *view = cf_view_new(arena, &nowhere, dtype, 0, ndim, size, NULL, err);
    return cf_part_piece(part, key, 1, ndim, what & 0x10 ? NULL : shape, ndim, at, view, err);
}

/* How many different boxes each element is in: elements in none, and in more than one. */
static void count(const cf_row *row, int64_t *holes, int64_t *overlaps)
{
    int times[MOST_ELEMENTS] = {0};
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        const size_t bytes = row->ndim * sizeof(int64_t);
        bool replica = false;
        for (size_t k = 0; k < i; k++)
            replica |= memcmp(row->pieces[k].at, p->at, bytes) == 0 &&
                       memcmp(row->pieces[k].view->shape, p->view->shape, bytes) == 0;
        for (int64_t n = 0; !replica && n < p->view->numel; n++) {
            int64_t rest = n, place = 0, step = 1;
            for (int d = row->ndim - 1; d >= 0; d--) {
                const int64_t index = p->at[d] + rest % p->view->shape[d];
                rest /= p->view->shape[d];
                CLAIM(index < row->shape[d]);
                place += index * step;
                step *= row->shape[d];
            }
            times[place]++;
        }
    }
    *holes = *overlaps = 0;
    for (int64_t n = 0; n < row->numel; n++) {
        *holes += times[n] == 0;
        *overlaps += times[n] > 1;
    }
}

static void judge(cf_catalogue *cat)
{
    static const cf_role roles[] = {{"model", "{name}"}};
    cf_err err;
    int64_t holes, overlaps;
    if (cf_catalogue_finish(cat, roles, 1, &err)) {
        for (size_t i = 0; i < cat->count; i++) {
            const cf_row *row = cat->rows[i];
            CLAIM(row->role && row->name);
            if (row->dtype == CF_NO_DTYPE) continue;
            count(row, &holes, &overlaps);
            CLAIM(holes == 0 && overlaps == 0);
        }
    } else if (err.code == CF_E_COVERAGE || err.code == CF_E_OVERLAP) {
        const cf_row *row = cf_catalogue_find(cat, err.member);
        CLAIM(row);
        count(row, &holes, &overlaps);
        CLAIM(err.code == CF_E_COVERAGE ? holes > 0 : overlaps > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_feed feed = {data, size};
    cf_arena arena;
    cf_arena_init(&arena, 0);
    cf_catalogue cat;
    cf_catalogue_init(&cat, &source);
    cf_err err;
    bool ok = true;
    for (uint32_t file = 0; ok && file < FILES; file++) {
        cf_part *part = cf_part_new(&source, file, (int32_t)file);
        for (int n = fuzz_byte(&feed) % 16; ok && n > 0; n--)
            ok = one_op(part, &feed, &arena, &err);
        if (ok)
            ok = cf_catalogue_merge(&cat, part, &err);
        else
            cf_part_free(part);
    }
    if (ok) judge(&cat);
    cf_catalogue_free(&cat);
    cf_arena_free(&arena);
    return 0;
}
