/* The planner's half of diff: which row goes with which, and the moves of both. */
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "diff_values.h"
#include "moves.h"
#include "tensor.h"

typedef struct side {
    cf_catalogue *cat;
    cf_mover mover;
    bool *matched;  /* by number of the row */
    cf_text chunks; /* cf_b_chunk: of the virtual file that this side is */
    uint64_t end;   /* of that file */
} side;

typedef struct pairing {
    side sides[2];
    cf_blocker *b;
    cf_arena arena;
    double tolerance;
} pairing;

static bool is_tensor(const cf_row *row)
{
    return row->dtype != CF_NO_DTYPE;
}

static cf_ref text_of(cf_blocker *b, const char *text)
{
    return cf_blocker_text(b, text, strlen(text));
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* A chunk that a tensor fills; its number among those of its side. */
static bool add_chunk(pairing *p, side *s, const cf_tensor *t, uint64_t *number, cf_err *err)
{
    cf_text *moves = &p->b->sections[CF_B_MOVES];
    const uint64_t size = (uint64_t)(t->numel * cf_dtype_size(t->dtype));
    cf_b_chunk chunk = {.begin = s->end,
                        .end = s->end + size,
                        .move = moves->size / sizeof(cf_b_move),
                        .tensor = CF_B_NONE,
                        .dtype = (uint8_t)t->dtype};
    for (size_t i = 0; t->numel && i < t->terms[0].count; i++) {
        const cf_tile *tile = &t->terms[0].tiles[i];
        uint64_t move;
        if (!cf_mover_add(&s->mover, tile->view, t->shape, tile->at, t->dtype, &move, err))
            return false;
    }
    if (!cf_text_ok(moves, err)) return false;
    chunk.moves = moves->size / sizeof(cf_b_move) - chunk.move;
    if (chunk.moves > 1)
        qsort(moves->at + chunk.move * sizeof(cf_b_move), chunk.moves, sizeof(cf_b_move),
              cf_move_order);
    s->end += size;
    *number = s->chunks.size / sizeof chunk;
    cf_text_add(&s->chunks, &chunk, sizeof chunk);
    return cf_text_ok(&s->chunks, err);
}

static void add_shape(pairing *p, cf_b_pair *pair, int which, cf_dtype dtype, int ndim,
                      const int64_t *shape)
{
    pair->dtype[which] = (uint8_t)dtype;
    pair->ndim[which] = (uint8_t)ndim;
    pair->dims[which] = p->b->sections[CF_B_NUMBERS].size / sizeof(int64_t);
    cf_blocker_add(p->b, CF_B_NUMBERS, shape, (size_t)ndim * sizeof *shape);
}

static bool row_chunk(pairing *p, cf_b_pair *pair, int which, cf_row *row, cf_err *err)
{
    const cf_tensor *t = cf_tensor_of_row(&p->arena, row, err);
    if (t && add_chunk(p, &p->sides[which], t, &pair->chunk[which], err)) return true;
    return cf_err_in_member(err, row->key);
}

static void add_pair(pairing *p, const cf_b_pair *pair)
{
    cf_blocker_add(p->b, CF_B_PAIRS, pair, sizeof *pair);
}

static cf_b_pair new_pair(pairing *p, cf_pair_kind kind, const cf_row *a, const cf_row *b)
{
    cf_b_pair pair = {.kind = (uint8_t)kind, .in_b = !a, .chunk = {CF_B_NONE, CF_B_NONE}};
    const cf_row *rows[] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!rows[i]) continue;
        pair.key[i] = text_of(p->b, rows[i]->key);
        if (is_tensor(rows[i]))
            add_shape(p, &pair, i, rows[i]->dtype, rows[i]->ndim, rows[i]->shape);
    }
    return pair;
}

static bool pair_tensors(pairing *p, cf_row *a, cf_row *b, cf_err *err)
{
    const bool shapes =
        a->ndim == b->ndim && (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
    cf_b_pair pair = new_pair(p, shapes ? CF_PAIR_TENSORS : CF_PAIR_SHAPES, a, b);
    if (shapes && (!row_chunk(p, &pair, 0, a, err) || !row_chunk(p, &pair, 1, b, err)))
        return false;
    add_pair(p, &pair);
    return true;
}

/* ---- values ------------------------------------------------------------------------------------
 */

/* A tensor inside a value: a pair of its own. */
static bool pair_views(pairing *p, const cf_row *a, const cf_row *b, const cf_value_views *v,
                       cf_err *err)
{
    cf_b_pair pair = {.kind = CF_PAIR_TENSORS, .chunk = {CF_B_NONE, CF_B_NONE}};
    const cf_row *rows[] = {a, b};
    const cf_view *views[] = {v->left, v->right};
    for (int i = 0; i < 2; i++) {
        cf_text key = {0};
        cf_text_printf(&key, "%s%s", rows[i]->key, v->path);
        const cf_tensor *t = cf_tensor_of_view(&p->arena, views[i], NULL, err);
        bool ok = t && cf_text_ok(&key, err);
        if (ok) {
            pair.key[i] = text_of(p->b, key.at);
            add_shape(p, &pair, i, views[i]->dtype, views[i]->ndim, views[i]->shape);
            ok = add_chunk(p, &p->sides[i], t, &pair.chunk[i], err);
        }
        if (!ok) cf_err_add_member(err, rows[i]->key);
        cf_text_free(&key);
        if (!ok) return false;
    }
    add_pair(p, &pair);
    return true;
}

static bool pair_values(pairing *p, const cf_row *a, const cf_row *b, cf_err *err)
{
    const cf_row *rows[] = {a, b};
    const cf_node *nodes[2];
    cf_arena *arena = &p->arena; /* views of tensors inside live on in moves only */
    for (int i = 0; i < 2; i++)
        if (!cf_source_value(p->sides[i].cat->source, rows[i]->values[0].node, arena, &nodes[i],
                             err))
            return cf_err_in_member(err, rows[i]->key);
    cf_value_diff d = {.arena = arena, .tolerance = p->tolerance};
    const bool alike = cf_values_alike(&d, nodes[0], nodes[1]);
    bool ok = cf_arena_ok(arena, err) && cf_text_ok(&d.where, err);
    if (ok) {
        cf_b_pair pair = new_pair(p, alike ? CF_PAIR_EQUAL : CF_PAIR_VALUES, a, b);
        if (d.where.size) pair.what = cf_blocker_text(p->b, d.where.at, d.where.size);
        add_pair(p, &pair);
    }
    cf_text_free(&d.where);
    for (size_t i = 0; ok && i < d.count; i++) ok = pair_views(p, a, b, &d.views[i], err);
    return ok;
}

/* ---- which goes with which ---------------------------------------------------------------------
 */

static bool pair_rows(pairing *p, size_t i, size_t k, cf_err *err)
{
    side *a = &p->sides[0], *b = &p->sides[1];
    cf_row *x = a->cat->rows[i], *y = b->cat->rows[k];
    a->matched[i] = b->matched[k] = true;
    if (is_tensor(x) && is_tensor(y)) return pair_tensors(p, x, y, err);
    if (!is_tensor(x) && !is_tensor(y)) return pair_values(p, x, y, err);
    const cf_b_pair pair = new_pair(p, CF_PAIR_KINDS, x, y);
    add_pair(p, &pair);
    return true;
}

/* What a row is called: its key, or its role and its name in it. NULL: it has no other name. */
static const char *called(pairing *p, const cf_row *row, bool by_role)
{
    if (!by_role) return row->key;
    if (strcmp(row->role, "rest") == 0) return NULL;
    const size_t n = strlen(row->role), m = strlen(row->name);
    char *text = cf_alloc(&p->arena, n + m + 2);
    if (!text) return NULL;
    memcpy(text, row->role, n);
    text[n] = ' ';
    memcpy(text + n + 1, row->name, m + 1);
    return text;
}

static bool match(pairing *p, bool by_role, cf_err *err)
{
    side *a = &p->sides[0], *b = &p->sides[1];
    cf_map names;
    cf_map_init(&names, &p->arena);
    for (size_t k = 0; k < b->cat->count; k++) {
        const char *name = b->matched[k] ? NULL : called(p, b->cat->rows[k], by_role);
        bool fresh;
        uint64_t *number = name ? cf_map_put(&names, name, strlen(name), &fresh) : NULL;
        if (number && fresh) *number = k;
    }
    for (size_t i = 0; i < a->cat->count; i++) {
        const char *name = a->matched[i] ? NULL : called(p, a->cat->rows[i], by_role);
        uint64_t k;
        if (!name || !cf_map_get(&names, name, strlen(name), &k) || b->matched[k]) continue;
        if (!pair_rows(p, i, k, err)) return false;
    }
    return cf_arena_ok(&p->arena, err);
}

/* dtype and shape as bytes. */
static const void *form_of(pairing *p, const cf_row *row, size_t *size)
{
    *size = (1u + row->ndim) * sizeof(int64_t);
    int64_t *form = cf_alloc(&p->arena, *size);
    if (!form) return NULL;
    form[0] = row->dtype;
    if (row->ndim) memcpy(form + 1, row->shape, row->ndim * sizeof *form);
    return form;
}

/* What is left: only in one of them. Those that could be each other under another name get chunks.
 */
static bool add_rest(pairing *p, cf_err *err)
{
    cf_map forms[2];
    for (int s = 0; s < 2; s++) {
        const side *from = &p->sides[s];
        cf_map_init(&forms[s], &p->arena);
        for (size_t i = 0; i < from->cat->count; i++) {
            const cf_row *row = from->cat->rows[i];
            size_t size;
            bool fresh;
            if (from->matched[i] || !is_tensor(row)) continue;
            const void *form = form_of(p, row, &size);
            if (!form || !cf_map_put(&forms[s], form, size, &fresh))
                return cf_arena_ok(&p->arena, err);
        }
    }
    for (int s = 0; s < 2; s++) {
        const side *from = &p->sides[s];
        for (size_t i = 0; i < from->cat->count; i++) {
            cf_row *row = from->cat->rows[i];
            size_t size;
            uint64_t none;
            if (from->matched[i]) continue;
            const bool copy = strcmp(row->role, "copy") == 0;
            cf_b_pair pair =
                new_pair(p, copy ? CF_PAIR_COPY : CF_PAIR_ALONE, s ? NULL : row, s ? row : NULL);
            const void *form = is_tensor(row) && row->numel ? form_of(p, row, &size) : NULL;
            if (form && !copy && cf_map_get(&forms[!s], form, size, &none) &&
                !row_chunk(p, &pair, s, row, err))
                return false;
            add_pair(p, &pair);
        }
    }
    return cf_arena_ok(&p->arena, err);
}

/* Each side's chunks become a file of their own; the numbers in pairs follow. */
static void add_files(pairing *p)
{
    uint64_t first = 0;
    cf_text *pairs = &p->b->sections[CF_B_PAIRS];
    for (int s = 0; s < 2; s++) {
        side *from = &p->sides[s];
        const uint64_t count = from->chunks.size / sizeof(cf_b_chunk);
        const cf_b_file file = {.path = text_of(p->b, s ? "B" : "A"),
                                .size = from->end,
                                .chunk = first,
                                .chunks = count};
        cf_blocker_add(p->b, CF_B_FILES, &file, sizeof file);
        cf_text_add(&p->b->sections[CF_B_CHUNKS], from->chunks.at, from->chunks.size);
        cf_b_pair *list = (cf_b_pair *)(void *)pairs->at;
        for (size_t i = 0; i < pairs->size / sizeof *list; i++)
            if (list[i].chunk[s] != CF_B_NONE) list[i].chunk[s] += first;
        first += count;
    }
}

bool cf_diff_plan(cf_catalogue *const cats[2], double tolerance, cf_blocker *b, cf_err *err)
{
    pairing p = {.b = b, .tolerance = tolerance};
    cf_arena_init(&p.arena, 0);
    bool ok = true;
    for (int s = 0; ok && s < 2; s++) {
        p.sides[s].cat = cats[s];
        p.sides[s].matched = CF_NEWS(&p.arena, bool, cats[s]->count + 1);
        ok = p.sides[s].matched && cf_mover_init(&p.sides[s].mover, cats[s]->source, b, err);
        p.sides[s].mover.root = (uint32_t)s;
    }
    ok = ok && match(&p, false, err) && match(&p, true, err) && add_rest(&p, err) &&
         cf_text_ok(&b->sections[CF_B_PAIRS], err) && cf_text_ok(&b->sections[CF_B_CHUNKS], err);
    for (int s = 0; ok && s < 2; s++) ok = cf_source_bears(cats[s]->source, p.sides[s].end, err);
    if (ok) add_files(&p);
    for (int s = 0; s < 2; s++) {
        cf_text_free(&p.sides[s].chunks);
        cf_mover_free(&p.sides[s].mover);
    }
    cf_arena_free(&p.arena);
    return ok && cf_text_ok(&b->sections[CF_B_CHUNKS], err);
}
