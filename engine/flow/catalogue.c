#include "catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num.h"
#include "part.h"
#include "roles.h"
#include "shape.h"

/* What files say of the save as a whole. */
typedef struct cf_said {
    const char *key; /* NULL: `world` */
    const char *text;
    int64_t size;
    int32_t rank;
    uint32_t file;
} cf_said;

void cf_catalogue_init(cf_catalogue *cat, cf_source *source)
{
    memset(cat, 0, sizeof *cat);
    cf_arena_init(&cat->arena, 0);
    cf_map_init(&cat->keys, &cat->arena);
    cat->source = source;
}

void cf_catalogue_free(cf_catalogue *cat)
{
    cf_text_free(&cat->notes);
    cf_arena_free(&cat->arena);
}

cf_row *cf_catalogue_find(const cf_catalogue *cat, const char *key)
{
    uint64_t n;
    return cf_map_get(&cat->keys, key, strlen(key), &n) ? (cf_row *)(uintptr_t)n : NULL;
}

static cf_row *row_of(cf_catalogue *cat, const char *key)
{
    cf_row *row = cf_catalogue_find(cat, key);
    if (row) return row;
    row = CF_NEW(&cat->arena, cf_row);
    cf_row **place = CF_PUSH(&cat->arena, cat->rows, cat->count, cat->cap);
    const char *copy = cf_strndup(&cat->arena, key, strlen(key));
    bool fresh;
    uint64_t *n = copy ? cf_map_put(&cat->keys, copy, strlen(copy), &fresh) : NULL;
    if (!row || !place || !n) return NULL;
    *n = (uintptr_t)row;
    row->key = copy;
    return *place = row;
}

static bool is_tensor(const cf_row *row)
{
    return row->dtype != CF_NO_DTYPE;
}

static const char *file_of(const cf_catalogue *cat, const cf_row *row)
{
    if (row->n_pieces) return cf_source_path(cat->source, row->pieces[0].file);
    if (row->n_values) return cf_source_path(cat->source, row->values[0].file);
    return "what was declared";
}

/* Holds a new claim of dtype and shape (NULL: none) against the row's, and takes it over. */
static bool claim(cf_catalogue *cat, cf_row *row, const cf_op *op, cf_err *err)
{
    if (row->n_values)
        return cf_fail(err, CF_E_META_CONFLICT, "a tensor here, a value in %s", file_of(cat, row));
    char here[256], there[256];
    const bool known = is_tensor(row),
               same_shape = !op->shape || !row->shape || row->hull ||
                            (op->ndim == row->ndim &&
                             memcmp(op->shape, row->shape, op->ndim * sizeof *op->shape) == 0);
    if (known && (row->dtype != op->dtype || row->ndim != op->ndim || !same_shape)) {
        if (op->shape)
            cf_view_text(op->dtype, op->ndim, op->shape, here, sizeof here);
        else
            snprintf(here, sizeof here, "%s of %d dimensions", cf_dtype_of(op->dtype)->name,
                     op->ndim);
        if (row->shape)
            cf_view_text(row->dtype, row->ndim, row->shape, there, sizeof there);
        else
            snprintf(there, sizeof there, "%s of %d dimensions", cf_dtype_of(row->dtype)->name,
                     row->ndim);
        return cf_fail(err, CF_E_META_CONFLICT, "%s here, %s in %s", here, there,
                       file_of(cat, row));
    }
    if (!known) {
        row->dtype = op->dtype;
        row->ndim = op->ndim;
    }
    if (op->shape && !row->shape) {
        row->shape = cf_memdup(&cat->arena, op->shape, op->ndim * sizeof *op->shape);
        if (row->shape) cf_numel(row->shape, row->ndim, &row->numel);
    }
    return cf_arena_ok(&cat->arena, err);
}

/* With a list of faults: what could not be found is told there, and stands here without a place. */
static bool lost(const cf_catalogue *cat, const cf_storage *s)
{
    return cat->source->faults && s->place == CF_NOWHERE;
}

/* Is the error one for the list of faults? The row is broken then. */
static bool taken(const cf_catalogue *cat, cf_row *row, const cf_err *err)
{
    if (!cf_faults_take(cat->source->faults, err)) return false;
    if (row) row->broken = true;
    return true;
}

static bool add_piece(cf_catalogue *cat, uint32_t file, const cf_op *op, cf_row *row, cf_err *err)
{
    if (!claim(cat, row, op, err)) return false;
    if (lost(cat, op->view->storage)) return true; /* a hole, then */
    if (!op->shape && row->shape &&
        !cf_box_inside(row->ndim, row->shape, op->at, op->view->shape, err))
        return false;
    cf_piece *piece = CF_PUSH(&cat->arena, row->pieces, row->n_pieces, row->cap_pieces);
    if (!piece) return cf_arena_ok(&cat->arena, err);
    *piece = (cf_piece){.rank = op->rank,
                        .file = file,
                        .view = cf_view_copy(&cat->arena, op->view),
                        .at = cf_memdup(&cat->arena, op->at, op->ndim * sizeof *op->at),
                        .replica_of = (uint32_t)(row->n_pieces - 1),
                        .start = op->start,
                        .range = op->range ? cf_view_copy(&cat->arena, op->range) : NULL};
    return cf_arena_ok(&cat->arena, err);
}

/* Rank 0's value is kept whole; of the others as much as --values needs: what differs, or that it
 * does. */
static bool add_value(cf_catalogue *cat, uint32_t file, const cf_op *op, cf_row *row, cf_err *err)
{
    if (is_tensor(row))
        return cf_fail(err, CF_E_META_CONFLICT, "a value here, a tensor in %s", file_of(cat, row));
    if (op->node->kind == CF_NODE_STORAGE && lost(cat, op->node->storage)) return true;
    cf_value *value = CF_PUSH(&cat->arena, row->values, row->n_values, row->cap_values);
    if (!value) return cf_arena_ok(&cat->arena, err);
    *value = (cf_value){.rank = op->rank, .file = file, .hash = op->hash};
    const bool first = row->n_values == 1, other = !first && row->values[0].hash != op->hash;
    row->differs |= other;
    if (first || (other && cat->values == CF_VALUES_PER_RANK))
        value->node = cf_node_copy(&cat->arena, op->node);
    return cf_arena_ok(&cat->arena, err);
}

static bool add_op(cf_catalogue *cat, uint32_t file, const cf_op *op, cf_err *err)
{
    if (op->kind == CF_OP_SAME || op->kind == CF_OP_WORLD) {
        cf_said *said = CF_PUSH(&cat->arena, cat->said, cat->n_said, cat->cap_said);
        if (!said) return cf_arena_ok(&cat->arena, err);
        const bool same = op->kind == CF_OP_SAME;
        *said = (cf_said){.key = same ? cf_strndup(&cat->arena, op->key, strlen(op->key)) : NULL,
                          .text = same ? cf_strndup(&cat->arena, op->text, strlen(op->text)) : NULL,
                          .size = op->size,
                          .rank = op->rank,
                          .file = file};
        return cf_arena_ok(&cat->arena, err);
    }
    if (op->kind == CF_OP_ALIAS) {
        if (cf_catalogue_find(cat, op->key)) return true; /* it has a row of its own */
        cf_row *of = row_of(cat, op->text), *row = of ? row_of(cat, op->key) : NULL;
        if (!row) return cf_arena_ok(&cat->arena, err);
        if (of->alias) of = of->alias;
        if (of != row) row->alias = of;
        return true;
    }
    cf_row *row = row_of(cat, op->key);
    if (!row) return cf_arena_ok(&cat->arena, err);
    switch (op->kind) {
    case CF_OP_PIECE: row->alias = NULL; return add_piece(cat, file, op, row, err);
    case CF_OP_VALUE: row->alias = NULL; return add_value(cat, file, op, row, err);
    case CF_OP_DECLARE: return claim(cat, row, op, err);
    default:
        row->role = cf_strndup(&cat->arena, op->text, strlen(op->text));
        row->name = cf_strndup(&cat->arena, op->more, strlen(op->more));
        return cf_arena_ok(&cat->arena, err);
    }
}

bool cf_catalogue_merge(cf_catalogue *cat, cf_part *part, cf_err *err)
{
    if (!cat->was_read) cat->was_read = CF_NEWS(&cat->arena, bool, cat->source->dir.count + 1u);
    bool ok = cf_arena_ok(&cat->arena, err);
    if (ok) cat->was_read[part->file] = true;
    for (size_t i = 0; ok && i < part->count; i++) {
        ok = add_op(cat, part->file, &part->ops[i], err);
        if (!ok) {
            cf_err_in_file(err, cf_source_path(part->source, part->file));
            cf_err_in_member(err, part->ops[i].key);
            ok = taken(cat, cf_catalogue_find(cat, part->ops[i].key), err);
        }
    }
    cf_part_free(part);
    return ok;
}

/* ---- the end: is it one whole checkpoint? ------------------------------------------------------
 */

static void add_rank(cf_text *text, int32_t rank, int n)
{
    cf_text_printf(text, n ? ",%d" : "%d", rank);
}

/* "20 on ranks 0,1,3 (rank0.pt); 10 on rank 2 (rank2.pt)", by the first file that says so. */
static void add_table(const cf_catalogue *cat, const char *key, cf_text *text)
{
    for (size_t i = 0; i < cat->n_said; i++) {
        const cf_said *a = &cat->said[i];
        if (!a->key || strcmp(a->key, key) != 0) continue;
        bool told = false;
        for (size_t k = 0; k < i && !told; k++)
            told = cat->said[k].key && !strcmp(cat->said[k].key, key) &&
                   !strcmp(cat->said[k].text, a->text);
        if (told) continue;
        cf_text ranks = {0};
        int n = 0;
        for (size_t k = i; k < cat->n_said; k++)
            if (cat->said[k].key && !strcmp(cat->said[k].key, key) &&
                !strcmp(cat->said[k].text, a->text))
                add_rank(&ranks, cat->said[k].rank, n++);
        cf_text_printf(text, "%s%s on %s %s (%s)", text->size ? "; " : "", a->text,
                       n > 1 ? "ranks" : "rank", ranks.at ? ranks.at : "?",
                       cf_source_path(cat->source, a->file));
        cf_text_free(&ranks);
    }
}

static bool check_same(const cf_catalogue *cat, cf_err *err)
{
    cf_map firsts;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_map_init(&firsts, &scratch);
    bool ok = true;
    for (size_t i = 0; ok && i < cat->n_said; i++) {
        const cf_said *s = &cat->said[i];
        if (!s->key) continue;
        bool fresh;
        uint64_t *n = cf_map_put(&firsts, s->key, strlen(s->key), &fresh);
        if (!n) {
            ok = cf_arena_ok(&scratch, err);
        } else if (fresh) {
            *n = i;
        } else if (strcmp(cat->said[*n].text, s->text) != 0) {
            cf_text table = {0};
            add_table(cat, s->key, &table);
            cf_fail(err, CF_E_META_CONFLICT, "%s: %s", s->key, table.at ? table.at : "differs");
            cf_err_hint(err, "the files are not of one save");
            cf_text_free(&table);
            ok = taken(cat, NULL, err);
        }
    }
    cf_arena_free(&scratch);
    return ok;
}

static int by_rank(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static int by_said_rank(const void *a, const void *b)
{
    return by_rank(&(*(const cf_said *const *)a)->rank, &(*(const cf_said *const *)b)->rank);
}

static bool check_world(cf_catalogue *cat, cf_err *err)
{
    const cf_said *one = NULL;
    size_t n = 0;
    const cf_said **ranks = CF_NEWS(&cat->arena, const cf_said *, cat->n_said + 1);
    if (!ranks) return cf_arena_ok(&cat->arena, err);
    for (size_t i = 0; i < cat->n_said; i++) {
        const cf_said *s = &cat->said[i];
        if (s->key) continue;
        ranks[n++] = s;
        if (s->size < 0) continue;
        if (one && one->size != s->size) {
            cf_fail(err, CF_E_META_CONFLICT,
                    "world size: %lld on rank %d (%s); %lld on rank %d (%s)", (long long)one->size,
                    one->rank, cf_source_path(cat->source, one->file), (long long)s->size, s->rank,
                    cf_source_path(cat->source, s->file));
            return cf_err_hint(err, "the files are not of one save");
        }
        one = s;
    }
    if (!one) return true;
    cat->world = one->size;
    cat->said_world = true;
    qsort(ranks, n, sizeof *ranks, by_said_rank);
    cf_text missing = {0};
    int lost = 0;
    int64_t next = 0;
    for (size_t i = 0; i <= n; i++) {
        const int64_t rank = i < n ? ranks[i]->rank : one->size;
        if (i < n && rank >= one->size) {
            cf_text_free(&missing);
            cf_fail(err, CF_E_META_CONFLICT, "rank %lld in a world of %lld", (long long)rank,
                    (long long)one->size);
            cf_err_in_file(err, cf_source_path(cat->source, ranks[i]->file));
            return cf_err_hint(err, "a file of another save lies among them");
        }
        if (i < n && rank >= 0 && rank < next) {
            cf_text_free(&missing);
            cf_fail(err, CF_E_META_CONFLICT, "rank %lld is there twice, in %s too", (long long)rank,
                    cf_source_path(cat->source, ranks[i - 1]->file));
            return cf_err_in_file(err, cf_source_path(cat->source, ranks[i]->file));
        }
        for (; next < rank; next++)
            if (lost++ < 32) add_rank(&missing, (int32_t)next, lost - 1);
        next = rank + 1;
    }
    if (!lost) return true;
    cf_fail(err, CF_E_MISSING_FILE, "%s %s%s of world %lld %s missing", lost > 1 ? "ranks" : "rank",
            missing.at, lost > 32 ? ",..." : "", (long long)one->size, lost > 1 ? "are" : "is");
    cf_text_free(&missing);
    return cf_err_hint(err, "it was saved by %lld ranks; %zu files are here", (long long)one->size,
                       n);
}

/* Rows that are only a name or an alias of what no file holds. */
static void drop_empty(cf_catalogue *cat)
{
    size_t n = 0;
    for (size_t i = 0; i < cat->count; i++)
        if (is_tensor(cat->rows[i]) || cat->rows[i]->n_values) cat->rows[n++] = cat->rows[i];
    cat->count = n;
}

static void take_aliases(cf_catalogue *cat)
{
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (!row->alias) continue;
        const cf_row *of = row->alias;
        row->dtype = of->dtype;
        row->ndim = of->ndim;
        row->shape = of->shape;
        row->numel = of->numel;
        row->hull = of->hull;
        row->pieces = of->pieces;
        row->n_pieces = of->n_pieces;
        row->broken = of->broken;
    }
}

static bool take_hull(cf_catalogue *cat, cf_row *row, cf_err *err)
{
    int64_t *shape = CF_NEWS(&cat->arena, int64_t, row->ndim + 1u);
    if (!shape) return cf_arena_ok(&cat->arena, err);
    for (size_t i = 0; i < row->n_pieces; i++)
        for (int d = 0; d < row->ndim; d++) {
            int64_t end;
            const int64_t at = row->pieces[i].at[d];
            if (at < 0 || !cf_add(at, row->pieces[i].view->shape[d], &end))
                return cf_fail(err, CF_E_BOUNDS, "a piece at %lld", (long long)at);
            shape[d] = cf_max(shape[d], end);
        }
    row->shape = shape;
    row->hull = true;
    int64_t bytes;
    if (!cf_numel(shape, row->ndim, &row->numel) ||
        !cf_mul(row->numel, cf_dtype_size(row->dtype), &bytes))
        return cf_fail(err, CF_E_OVERFLOW, "the sizes of a tensor multiply beyond 63 bits");
    return true;
}

/* Equal boxes are replicas of the first; the others must tile the tensor. */
static bool check_cover(cf_catalogue *cat, cf_row *row, cf_arena *scratch, cf_err *err)
{
    const size_t dims = row->ndim * sizeof(int64_t);
    cf_box *boxes = CF_NEWS(scratch, cf_box, row->n_pieces + 1);
    cf_map seen;
    cf_map_init(&seen, scratch);
    size_t n = 0;
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
        }
    }
    if (!cf_arena_ok(scratch, err)) return false;
    if (row->numel == 0) return true;
    cf_cover_fault fault;
    switch (cf_boxes_cover(row->ndim, row->shape, boxes, n, &fault)) {
    case CF_COVER_EXACT: return true;
    case CF_COVER_OVERLAP: {
        const cf_piece *a = &row->pieces[fault.a], *b = &row->pieces[fault.b];
        return cf_fail(err, CF_E_OVERLAP, "pieces of rank %d (%s) and rank %d (%s) overlap",
                       a->rank, cf_source_path(cat->source, a->file), b->rank,
                       cf_source_path(cat->source, b->file));
    }
    default: break;
    }
    cf_fail(err, CF_E_COVERAGE, "%lld of %lld elements are in no file", (long long)fault.missing,
            (long long)row->numel);
    if (row->ndim && n)
        cf_err_hint(err, "the first hole is at %s %lld to %lld%s", fault.dim ? "indices" : "rows",
                    (long long)fault.from, (long long)fault.to - 1,
                    fault.dim ? " of an inner dimension" : "");
    return false;
}

const char *cf_values_kept(cf_values values, size_t n)
{
    return values == CF_VALUES_PER_RANK ? "all are kept"
           : n > 1                      ? "the smallest rank's are taken"
                                        : "the smallest rank's is taken";
}

/* One line for all values that differ, not one for each. */
static bool check_values(cf_catalogue *cat, cf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        const bool some = cat->values == CF_VALUES_STRICT && cat->said_world && row->n_values &&
                          (int64_t)row->n_values < cat->world;
        if (some) {
            cf_fail(err, CF_E_META_CONFLICT, "%zu of %lld ranks have it", row->n_values,
                    (long long)cat->world);
            return cf_err_in_member(err, row->key);
        }
        n += row->differs;
    }
    if (!n) return true;
    cf_text names = {0};
    size_t k = 0;
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        if (!row->differs) continue;
        if (k++ < 8) cf_text_printf(&names, "%s%s", k > 1 ? ", " : "", row->key);
        if (cat->values == CF_VALUES_STRICT) {
            int32_t other = 0;
            for (size_t v = 1; v < row->n_values && !other; v++)
                if (row->values[v].hash != row->values[0].hash) other = row->values[v].rank;
            cf_fail(err, CF_E_META_CONFLICT, "differs between rank %d and rank %d",
                    row->values[0].rank, other);
            cf_err_in_member(err, row->key);
            cf_text_free(&names);
            return cf_err_hint(err, "without --values strict the smallest rank's is taken");
        }
    }
    cf_text_printf(&cat->notes, "%zu value%s between ranks, %s: %s%s\n", n,
                   n > 1 ? "s differ" : " differs", cf_values_kept(cat->values, n),
                   names.at ? names.at : "", n > 8 ? ", ..." : "");
    cf_text_free(&names);
    return true;
}

bool cf_catalogue_finish(cf_catalogue *cat, const cf_role *roles, size_t n_roles, cf_err *err)
{
    if (!check_same(cat, err) || (!check_world(cat, err) && !taken(cat, NULL, err))) return false;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    bool ok = true;
    for (size_t i = 0; ok && i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (row->alias) continue;
        if (!is_tensor(row)) continue;
        ok = (row->shape || take_hull(cat, row, err)) && check_cover(cat, row, &scratch, err);
        row->broken |= row->hull && !row->n_pieces; /* all of them were lost */
        if (!ok) {
            cf_err_in_member(err, row->key);
            ok = taken(cat, row, err);
        }
        if (scratch.held > (1 << 20)) cf_arena_free(&scratch);
    }
    cf_arena_free(&scratch);
    if (!ok) return false;
    take_aliases(cat);
    drop_empty(cat);
    for (size_t i = 0; i < cat->count; i++)
        if (!cf_role_find(&cat->arena, cat->rows[i], roles, n_roles))
            return cf_arena_ok(&cat->arena, err);
    if (!cat->world) {
        int32_t *ranks;
        cat->world = (int64_t)cf_catalogue_ranks(cat, &ranks);
    }
    return (check_values(cat, err) || taken(cat, NULL, err)) && cf_arena_ok(&cat->arena, err);
}

size_t cf_catalogue_ranks(cf_catalogue *cat, int32_t **ranks)
{
    int32_t *list = NULL;
    size_t n = 0, cap = 0;
    cf_map seen;
    cf_map_init(&seen, &cat->arena);
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        for (size_t k = 0; k < row->n_pieces + row->n_values; k++) {
            const int32_t *rank =
                k < row->n_pieces ? &row->pieces[k].rank : &row->values[k - row->n_pieces].rank;
            bool fresh;
            if (!cf_map_put(&seen, rank, sizeof *rank, &fresh) || !fresh) continue;
            int32_t *place = CF_PUSH(&cat->arena, list, n, cap);
            if (place) *place = *rank;
        }
    }
    if (n) qsort(list, n, sizeof *list, by_rank);
    *ranks = list;
    return n;
}
