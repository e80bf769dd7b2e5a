#include "cover.h"

#include <string.h>

/* Of equal boxes the smallest rank's is kept, in whatever order the files came. */
static bool keep_smallest(cf_row *row, cf_arena *scratch, cf_err *err)
{
    uint32_t *kept = CF_NEWS(scratch, uint32_t, row->n_pieces + 1); /* by the first of each box */
    if (!kept) return cf_arena_ok(scratch, err);
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        if (p->replica_of == i) kept[i] = (uint32_t)i;
        uint32_t *best = &kept[p->replica_of];
        if (p->rank >= 0 && p->rank < row->pieces[*best].rank) *best = (uint32_t)i;
    }
    for (size_t i = 0; i < row->n_pieces; i++)
        row->pieces[i].replica_of = kept[row->pieces[i].replica_of];
    return true;
}

bool cf_row_cover(const cf_catalogue *cat, cf_row *row, cf_arena *scratch, cf_cover *cover,
                  cf_cover_fault *fault, cf_err *err)
{
    const size_t dims = row->ndim * sizeof(int64_t);
    cf_box *boxes = CF_NEWS(scratch, cf_box, row->n_pieces + 1);
    cf_map seen;
    cf_map_init(&seen, scratch);
    size_t n = 0;
    bool again = false;
    for (size_t i = 0; boxes && i < row->n_pieces; i++) {
        cf_piece *p = &row->pieces[i];
        p->replica_of = (uint32_t)i;
        /* again: the shape may have come after the piece */
        if (!cf_box_inside(row->ndim, row->shape, p->at, p->view->shape, err))
            return cf_err_in_file(err, cf_source_path(cat->source, p->file));
        if (p->view->numel == 0 && row->numel) continue;
        char *key = cf_alloc(scratch, 2 * dims + 1);
        if (!key) break;
        if (dims) {
            memcpy(key, p->at, dims);
            memcpy(key + dims, p->view->shape, dims);
        }
        bool fresh;
        uint64_t *first = cf_map_put(&seen, key, 2 * dims, &fresh);
        if (!first) break;
        if (fresh) {
            *first = i;
            boxes[n++] = (cf_box){.at = p->at, .size = p->view->shape, .number = (uint32_t)i};
        } else {
            p->replica_of = (uint32_t)*first;
            again = true;
        }
    }
    *fault = (cf_cover_fault){0};
    *cover = CF_COVER_EXACT;
    if (!cf_arena_ok(scratch, err) || (again && !keep_smallest(row, scratch, err))) return false;
    if (row->numel) *cover = cf_boxes_cover(row->ndim, row->shape, boxes, n, fault);
    return true;
}

bool cf_row_whole(const cf_catalogue *cat, cf_row *row, cf_arena *scratch, cf_err *err)
{
    cf_cover cover;
    cf_cover_fault fault;
    CF_TRY(cf_row_cover(cat, row, scratch, &cover, &fault, err));
    if (cover == CF_COVER_EXACT) return true;
    if (cover == CF_COVER_OVERLAP) {
        const cf_piece *a = &row->pieces[fault.a], *b = &row->pieces[fault.b];
        return cf_fail(err, CF_E_OVERLAP, "pieces of rank %d (%s) and rank %d (%s) overlap",
                       a->rank, cf_source_path(cat->source, a->file), b->rank,
                       cf_source_path(cat->source, b->file));
    }
    cf_fail(err, CF_E_COVERAGE, "%lld of %lld elements are in no file", (long long)fault.missing,
            (long long)row->numel);
    if (row->ndim && fault.missing < row->numel)
        cf_err_hint(err, "the first hole is at %s %lld to %lld%s", fault.dim ? "indices" : "rows",
                    (long long)fault.from, (long long)fault.to - 1,
                    fault.dim ? " of an inner dimension" : "");
    return false;
}
