#include "alone.h"

#include <stdlib.h>
#include <string.h>

static bool set_shape(cf_catalogue *cat, cf_row *row, int ndim, const int64_t *shape)
{
    row->shape = cf_memdup(&cat->arena, shape, (size_t)ndim * sizeof *shape);
    row->ndim = (uint8_t)ndim;
    row->hull = false;
    row->numel = 1;
    for (int d = 0; d < ndim; d++) row->numel *= shape[d]; /* sums of what is in files */
    return row->shape != NULL;
}

/* One after another, in the order they were read: that of the rank's flat memory. */
static bool flatten(cf_catalogue *cat, cf_row *row, cf_err *err)
{
    int64_t next = 0;
    for (size_t i = 0; i < row->n_pieces; i++) {
        cf_piece *p = &row->pieces[i];
        if (!cf_view_dense(p->view))
            return cf_fail(err, CF_E_COVERAGE, "rank %d holds %zu boxes of it that do not make one",
                           p->rank, row->n_pieces);
        const cf_view *v = p->view;
        p->at = cf_memdup(&cat->arena, &next, sizeof next);
        p->view =
            cf_view_new(&cat->arena, v->storage, v->stored, v->offset, 1, &v->numel, NULL, err);
        if (!p->view || !p->at) return cf_arena_ok(&cat->arena, err);
        p->start = -1;
        p->range = NULL;
        next += v->numel;
    }
    return set_shape(cat, row, 1, &next) || cf_arena_ok(&cat->arena, err);
}

/* The one dimension in which the boxes differ; -1: none, -2: there are several. */
static int differing(const cf_row *row)
{
    int found = -1;
    const cf_piece *a = row->pieces;
    for (int d = 0; d < row->ndim; d++)
        for (size_t i = 1; i < row->n_pieces; i++) {
            const cf_piece *b = &row->pieces[i];
            if (a->at[d] == b->at[d] && a->view->shape[d] == b->view->shape[d]) continue;
            if (found >= 0 && found != d) return -2;
            found = d;
        }
    return found;
}

/* Boxes that are alike but for dimension d, joined in it; equal ones are one. */
static bool join(cf_catalogue *cat, cf_row *row, int d, cf_err *err)
{
    int64_t shape[CF_MOST_DIMS], next = 0;
    size_t n = 0;
    memcpy(shape, row->pieces[0].view->shape, row->ndim * sizeof *shape);
    for (size_t i = 1; d >= 0 && i < row->n_pieces; i++) /* few: those of one rank */
        for (size_t k = i; k && row->pieces[k - 1].at[d] > row->pieces[k].at[d]; k--) {
            const cf_piece swap = row->pieces[k];
            row->pieces[k] = row->pieces[k - 1];
            row->pieces[k - 1] = swap;
        }
    int64_t last = -1;
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        if (i && (d < 0 || p->at[d] == last)) continue;
        int64_t *at = CF_NEWS(&cat->arena, int64_t, row->ndim + 1u);
        if (!at) return cf_arena_ok(&cat->arena, err);
        if (d >= 0) {
            last = p->at[d];
            at[d] = next;
            next += p->view->shape[d];
        }
        row->pieces[n] = *p;
        row->pieces[n++].at = at;
    }
    row->n_pieces = n;
    if (d >= 0) shape[d] = next;
    return set_shape(cat, row, row->ndim, shape) || cf_arena_ok(&cat->arena, err);
}

bool cf_row_alone(cf_catalogue *cat, cf_row *row, cf_err *err)
{
    if (!row->n_pieces) {
        row->dtype = CF_NO_DTYPE;
        return true;
    }
    bool flat = false;
    for (size_t i = 0; i < row->n_pieces; i++) flat |= row->pieces[i].start >= 0;
    const int d = flat ? -2 : differing(row);
    return d == -2 ? flatten(cat, row, err) : join(cat, row, d, err);
}

void cf_row_in_part(cf_row *row)
{
    if (!row->n_pieces && row->numel == 0 && !row->hull) return; /* nobody holds any of it */
    if (!row->n_pieces) row->dtype = CF_NO_DTYPE;
    row->in_part = true;
    row->numel = 0;
    for (size_t i = 0; i < row->n_pieces; i++) row->numel += row->pieces[i].view->numel;
}

bool cf_alone_check(cf_catalogue *cat, cf_err *err)
{
    size_t tensors = 0;
    for (size_t i = 0; i < cat->count; i++) tensors += cat->rows[i]->dtype != CF_NO_DTYPE;
    if (!cat->count && cat->in_part && cat->only_rank < cat->world) return true;
    if (!cat->count && cat->most_rank < 0)
        return cf_fail(err, CF_E_USAGE, "--only-rank %d: no file says whose it is", cat->only_rank);
    if (!cat->count)
        return cf_fail(err, CF_E_USAGE, "rank %d holds nothing: the ranks go up to %d",
                       cat->only_rank, cat->most_rank);
    cf_text_printf(&cat->notes, "rank %d alone: %s%zu tensor%s%s, %zu values\n", cat->only_rank,
                   cat->in_part ? "its pieces of " : "", tensors, tensors == 1 ? "" : "s",
                   cat->in_part ? "" : " as it holds them", cat->count - tensors);
    return true;
}
