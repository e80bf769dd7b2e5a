#include "catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "cover.h"
#include "damage.h"
#include "losses.h"
#include "num.h"
#include "part.h"
#include "roles.h"
#include "save.h"
#include "shape.h"

void cf_catalogue_init(cf_catalogue *cat, cf_source *source)
{
    memset(cat, 0, sizeof *cat);
    cf_arena_init(&cat->arena, 0);
    cf_map_init(&cat->keys, &cat->arena);
    cat->source = source;
    cat->only_rank = cat->most_rank = -1;
}

void cf_catalogue_free(cf_catalogue *cat)
{
    cf_text_free(&cat->notes);
    cf_text_free(&cat->losses);
    cf_text_free(&cat->misnamed);
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
    if (lost(cat, op->view->storage)) { /* a hole, then */
        row->holed = true;
        return true;
    }
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

/* Is it of another rank than the one that is asked for? Of parts of a whole, what is no rank's in
 * particular is rank 0's: somebody has to take it. */
static bool of_another(cf_catalogue *cat, int32_t rank)
{
    if (cat->only_rank < 0) return false;
    if (rank > cat->most_rank) cat->most_rank = rank;
    return (cat->in_part ? cf_max(rank, 0) : rank) != cat->only_rank;
}

/* Pieces that the part made for the catalogue: they lie in what it takes over from the part. */
static bool add_items(cf_catalogue *cat, const cf_op *op, cf_row *row, cf_err *err)
{
    if (!claim(cat, row, op, err)) return false;
    if (!row->n_pieces && cat->only_rank < 0) {
        row->pieces = op->pieces;
        row->n_pieces = op->n_pieces;
        row->cap_pieces = op->cap_pieces;
        return true;
    }
    for (size_t i = 0; i < op->n_pieces; i++) {
        if (of_another(cat, op->pieces[i].rank)) continue;
        cf_piece *piece = CF_PUSH(&cat->arena, row->pieces, row->n_pieces, row->cap_pieces);
        if (!piece) return cf_arena_ok(&cat->arena, err);
        *piece = op->pieces[i];
        piece->replica_of = (uint32_t)(row->n_pieces - 1);
    }
    return true;
}

/* Where a value of this rank belongs among those that are there, by rank. */
static cf_value *insert_value(cf_catalogue *cat, cf_row *row, int32_t rank)
{
    const cf_value *end = CF_PUSH(&cat->arena, row->values, row->n_values, row->cap_values);
    if (!end) return NULL;
    size_t at = row->n_values - 1;
    for (; at && row->values[at - 1].rank > rank; at--) row->values[at] = row->values[at - 1];
    return &row->values[at];
}

/* The smallest rank's value is kept whole, in whatever order the files come; of the others as much
 * as --values needs: what differs, or that it does. */
static bool add_value(cf_catalogue *cat, uint32_t file, const cf_op *op, cf_row *row, cf_err *err)
{
    if (is_tensor(row))
        return cf_fail(err, CF_E_META_CONFLICT, "a value here, a tensor in %s", file_of(cat, row));
    if (op->node->kind == CF_NODE_STORAGE && lost(cat, op->node->storage)) return true;
    cf_value *value = insert_value(cat, row, op->rank);
    if (!value) return cf_arena_ok(&cat->arena, err);
    *value = (cf_value){.rank = op->rank, .file = file, .hash = op->hash};
    const bool first = value == row->values;
    cf_value *like = row->n_values == 1 ? NULL : first ? value + 1 : row->values;
    const bool other = like && like->hash != op->hash;
    row->differs |= other;
    if (first && like && !other) { /* the first has the node */
        value->node = like->node;
        like->node = NULL;
    } else if (first || (other && cat->values == CF_VALUES_PER_RANK)) {
        value->node = cf_node_copy(&cat->arena, op->node);
    }
    if (first && other && cat->values != CF_VALUES_PER_RANK) like->node = NULL;
    return cf_arena_ok(&cat->arena, err);
}

const cf_node *cf_row_value(const cf_row *row, size_t number)
{
    const cf_value *value = &row->values[number];
    for (size_t i = 0; !value->node && i < row->n_values; i++)
        if (row->values[i].node && row->values[i].hash == value->hash) return row->values[i].node;
    return value->node;
}

static bool add_note(cf_catalogue *cat, const char *text, cf_err *err)
{
    enum { MOST_NOTES = 32 };
    if (!cat->noted.arena) cf_map_init(&cat->noted, &cat->arena);
    bool fresh;
    const char *copy = cf_strndup(&cat->arena, text, strlen(text));
    uint64_t *n = copy ? cf_map_put(&cat->noted, copy, strlen(copy), &fresh) : NULL;
    if (!n) return cf_arena_ok(&cat->arena, err);
    if (!fresh || cat->n_notes == MOST_NOTES) return true;
    cat->n_notes++;
    for (; *text; text++) cf_text_add(&cat->notes, *text == '\n' ? " " : text, 1);
    cf_text_str(&cat->notes, "\n");
    return true;
}

static bool passed_over(cf_catalogue *cat, const cf_op *op)
{
    switch (op->kind) {
    case CF_OP_PIECE:
    case CF_OP_VALUE:
    case CF_OP_SAME:
    case CF_OP_WORLD: return of_another(cat, op->rank);
    default: return false;
    }
}

static bool add_op(cf_catalogue *cat, uint32_t file, const cf_op *op, cf_err *err)
{
    if (passed_over(cat, op)) return true;
    if (op->kind == CF_OP_NOTE) return add_note(cat, op->key, err);
    if (op->kind == CF_OP_WRITERS) {
        cat->writers = cf_max(cat->writers, op->size);
        return true;
    }
    if (op->kind == CF_OP_SAME || op->kind == CF_OP_WORLD) {
        cf_said *said = CF_PUSH(&cat->arena, cat->said, cat->n_said, cat->cap_said);
        if (!said) return cf_arena_ok(&cat->arena, err);
        const bool same = op->kind == CF_OP_SAME;
        *said =
            (cf_said){.key = same ? cf_strndup(&cat->arena, op->key, strlen(op->key)) : NULL,
                      .text = op->text ? cf_strndup(&cat->arena, op->text, strlen(op->text)) : NULL,
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
        row->path = cf_path_copy(&cat->arena, op->path, op->key, row->key);
        return cf_arena_ok(&cat->arena, err);
    }
    cf_row *row = row_of(cat, op->key);
    if (!row) return cf_arena_ok(&cat->arena, err);
    if (op->path && (!row->path || op->kind == CF_OP_PATH))
        row->path = cf_path_copy(&cat->arena, op->path, op->key, row->key);
    switch (op->kind) {
    case CF_OP_PATH: return cf_arena_ok(&cat->arena, err);
    case CF_OP_PIECE: row->alias = NULL; return add_piece(cat, file, op, row, err);
    case CF_OP_ITEMS: row->alias = NULL; return add_items(cat, op, row, err);
    case CF_OP_VALUE: row->alias = NULL; return add_value(cat, file, op, row, err);
    case CF_OP_DECLARE: return op->dtype == CF_NO_DTYPE || claim(cat, row, op, err);
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
    if (part->named >= 0 && part->named != part->rank && cat->n_misnamed++ < 4)
        cf_text_printf(&cat->misnamed, "%s%s holds rank %d", cat->n_misnamed > 1 ? ", " : "",
                       cf_source_path(cat->source, part->file), part->rank);
    for (size_t i = 0; ok && i < part->count; i++) {
        ok = add_op(cat, part->file, &part->ops[i], err);
        if (!ok) {
            cf_err_in_file(err, cf_source_path(part->source, part->file));
            cf_err_in_member(err, part->ops[i].key);
            ok = taken(cat, cf_catalogue_find(cat, part->ops[i].key), err);
        }
    }
    for (size_t i = 0; ok && i < part->n_lost; i++) {
        cf_lost *lost = CF_PUSH(&cat->arena, cat->lost, cat->n_lost, cat->cap_lost);
        if (lost) *lost = part->lost[i];
        ok = lost || cf_arena_ok(&cat->arena, err);
    }
    cf_arena_adopt(&cat->arena, &part->kept);
    cf_part_free(part);
    return ok;
}

/* ---- the end: is it one whole checkpoint? ------------------------------------------------------
 */

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
        row->in_part = of->in_part;
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

/* Files whose name is another rank's than what they hold. */
static void note_misnamed(cf_catalogue *cat)
{
    if (!cat->n_misnamed) return;
    cf_text_printf(&cat->notes, "%s%s; ranks are known by what is inside\n", cat->misnamed.at,
                   cat->n_misnamed > 4 ? ", ..." : "");
}

/* How many ranks hold something; what lies in files of no rank in particular is one's if all does.
 */
static int64_t ranks_seen(cf_catalogue *cat)
{
    int64_t n = 0;
    cf_map seen;
    cf_map_init(&seen, &cat->arena);
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        for (size_t k = 0; k < row->n_pieces + row->n_values; k++) {
            const int32_t *rank =
                k < row->n_pieces ? &row->pieces[k].rank : &row->values[k - row->n_pieces].rank;
            bool fresh = false;
            if (*rank >= 0) cf_map_put(&seen, rank, sizeof *rank, &fresh);
            n += fresh;
        }
    }
    return cat->count ? cf_max(n, 1) : 0;
}

bool cf_catalogue_finish(cf_catalogue *cat, const cf_role *roles, size_t n_roles, cf_err *err)
{
    const bool alone = cat->only_rank >= 0, in_part = alone && cat->in_part;
    if (in_part) cf_save_said_world(cat);
    if (!alone && (!cf_save_same(cat, err) || (!cf_save_world(cat, err) && !taken(cat, NULL, err))))
        return false;
    if (cat->damage && !cf_damage_strike(cat->damage, cat, err)) return false;
    if (!cf_losses_check(cat, err)) return false;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    bool ok = true;
    for (size_t i = 0; ok && i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (row->alias) continue;
        if (!is_tensor(row)) continue;
        ok = !alone || in_part || cf_row_alone(cat, row, err);
        if (!is_tensor(row)) continue;
        ok = ok && (row->shape || take_hull(cat, row, err));
        if (in_part)
            cf_row_in_part(row);
        else
            ok = ok && cf_row_whole(cat, row, &scratch, err);
        /* how large it was nobody knows */
        row->broken |= row->hull && (row->holed || cat->left_out);
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
    if (in_part)
        cat->world = cat->world ? cat->world : cat->writers; /* 0: one rank alone does not know */
    else if (!cat->world)
        cat->world = cf_max(ranks_seen(cat), alone ? 0 : cat->writers);
    if (alone && !cf_alone_check(cat, err)) return false;
    note_misnamed(cat);
    return (cf_save_values(cat, err) || taken(cat, NULL, err)) && cf_arena_ok(&cat->arena, err);
}
