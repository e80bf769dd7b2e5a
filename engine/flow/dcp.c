#include "dcp.h"

#include <stdio.h>
#include <string.h>

#include "item.h"
#include "num.h"

typedef struct making {
    cf_layout l; /* for what makes tensors of entries */
    cf_plan *plan;
    cf_arena *arena;
    cf_dcp *out;
    const cf_write *w;
    const cf_holding *holding;
    cf_rank_sets sets; /* of the new ranks */
    const cf_ranks *all;
    int32_t *list;  /* scratch */
    cf_text single; /* keys that belong to single ranks, for the note */
    size_t n_single;
    bool alone; /* of one rank, nothing cut: all that may be is cut */
    bool roles; /* only what is of the model or the optimizer */
} making;

static bool out_of_memory(making *m, cf_err *err)
{
    return cf_arena_ok(m->arena, err) ? cf_fail(err, CF_E_MEMORY, "out of memory") : false;
}

static bool anew(const making *m)
{
    return m->w->options.ranks > 0;
}

/* ---- who holds what now ------------------------------------------------------------------------
 */

/* Of the whole catalogue, once. */
static bool find_holders(making *m, cf_err *err)
{
    cf_plan *plan = m->plan;
    if (!plan->holding) {
        cf_holding *holding = CF_NEW(&plan->arena, cf_holding);
        if (!holding) return out_of_memory(m, err);
        if (!cf_holders_find(holding, plan->cat, plan->mesh, &plan->arena, err)) return false;
        cf_map_init(&plan->held, &plan->arena);
        for (size_t i = 0; i < holding->count; i++) {
            bool fresh;
            const cf_row **key = cf_memdup(&plan->arena, &holding->items[i].row, sizeof(cf_row *));
            uint64_t *place = key ? cf_map_put(&plan->held, key, sizeof *key, &fresh) : NULL;
            if (!place) return out_of_memory(m, err);
            if (fresh) *place = i;
        }
        plan->holding = holding;
    }
    m->holding = plan->holding;
    return true;
}

/* The items of a row, which lie side by side; an alias has those of its row. */
static const cf_held *held_of(const making *m, const cf_row *row, size_t *count)
{
    uint64_t first;
    if (row->alias) row = row->alias;
    *count = 0;
    if (!cf_map_get(&m->plan->held, &row, sizeof row, &first)) return NULL;
    const cf_held *held = &m->holding->items[first];
    while (first + *count < m->holding->count && held[*count].row == row) ++*count;
    return held;
}

/* ---- items -------------------------------------------------------------------------------------
 */

static bool add(making *m, cf_held held, cf_dcp_item item, cf_err *err)
{
    cf_dcp *d = m->out;
    size_t n = d->count;
    cf_held *h = CF_PUSH(m->arena, d->held, n, d->cap_held);
    cf_dcp_item *i = CF_PUSH(m->arena, d->items, d->count, d->cap_items);
    if (!h || !i || !held.holders) return out_of_memory(m, err);
    *h = held;
    *i = item;
    return true;
}

static bool add_thing(making *m, cf_dcp_thing thing, cf_err *err)
{
    cf_dcp_thing *place = CF_PUSH(m->arena, m->out->things, m->out->n_things, m->out->cap_things);
    if (!place) return out_of_memory(m, err);
    *place = thing;
    place->first = place->last = CF_B_NONE;
    return true;
}

/* The path that nest gave; else the name's own in the checkpoint, where it was not changed. */
static const cf_path *path_of(const making *m, const cf_entry *e, const char *name)
{
    if (m->w->options.nest) return name == e->name ? e->path : NULL;
    return e->row && strcmp(name, e->row->key) == 0 ? e->row->path : NULL;
}

/* Of what is not cut, among the new ranks: everybody's, or the rank's that its key names. */
static const cf_ranks *new_holders(making *m, const char *key)
{
    const int64_t rank = cf_rank_in_key(key);
    if (rank < 0) return m->all;
    if (m->n_single++ < 8) cf_text_printf(&m->single, "%s%s", m->n_single > 1 ? ", " : "", key);
    if (rank >= m->out->ranks) return m->all;
    return cf_rank_set(&m->sets, &(int32_t){(int32_t)rank}, 1);
}

static uint64_t bytes_of(const cf_item *it, int64_t numel)
{
    return (uint64_t)(numel * cf_dtype_size(it->dtype));
}

/* The item that a piece is, if it can be copied with its container: all of it, uncast. A blob that
 * several tensors share has none of its own: then an item is no longer than its elements. */
static const cf_storage *raw_of(const cf_item *it, const cf_row *row, const cf_piece *p)
{
    const cf_view *v = p->view;
    const cf_storage *s = v->storage;
    if (s->place != CF_IN_ITEM || it->dtype != row->dtype || it->cast != row->dtype ||
        v->dtype != s->claim->dtype || v->stored != v->dtype || v->offset || v->conj || v->neg ||
        v->ndim != s->claim->ndim || !cf_view_dense(v) ||
        (v->ndim && memcmp(v->shape, s->claim->shape, v->ndim * sizeof *v->shape) != 0))
        return NULL;
    return s->claim->zstd || s->packed > s->size ? s : NULL;
}

static cf_held held_new(const cf_item *it, const cf_ranks *holders, int64_t numel)
{
    return (cf_held){.key = it->name,
                     .holders = holders,
                     .bytes = bytes_of(it, numel),
                     .whole_bytes = bytes_of(it, it->tensor->numel),
                     .keeper = holders ? holders->list[0] : 0};
}

/* ---- cutting -----------------------------------------------------------------------------------
 */

/* The dimension in which pieces are shorter than the tensor; -1: it is whole. */
static int cut_of(const cf_row *row)
{
    int cut = -1;
    for (size_t i = 0; i < row->n_pieces; i++) {
        const cf_piece *p = &row->pieces[i];
        if (p->start >= 0 && row->ndim) return 0;
        for (int d = 0; d < row->ndim; d++)
            if (p->view->shape[d] != row->shape[d] && (cut < 0 || d < cut)) cut = d;
    }
    return cut;
}

/* What a tensor that a recipe made is cut by: as what it is made of, in dimension 0. */
static int cut_of_made(const cf_tensor *t)
{
    for (size_t i = 0; t->ndim && i < t->n_terms; i++)
        for (size_t k = 0; k < t->terms[i].count; k++)
            if (t->terms[i].tiles[k].row && cut_of(t->terms[i].tiles[k].row) >= 0) return 0;
    return -1;
}

static bool of_parameters(const cf_row *row)
{
    return row->role && (strcmp(row->role, "model") == 0 || strcmp(row->role, "optim") == 0);
}

/* One rank's checkpoint does not tell what others would have cut: then it is all that FSDP2 would,
 * parameters and their states. Without roles nobody knows which these are. */
static void hear_alone(making *m)
{
    const cf_catalogue *cat = m->plan->cat;
    m->alone = anew(m) && m->holding->ranks == 1;
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        if (row->dtype == CF_NO_DTYPE) continue;
        m->roles = m->roles || of_parameters(row);
        m->alone = m->alone && (row->alias || cut_of(row) < 0);
    }
}

static int cut_anew(const making *m, const cf_row *row, const cf_tensor *t)
{
    if (!anew(m)) return -1;
    if (!m->alone) return row ? cut_of(row) : cut_of_made(t);
    return t->ndim && (!row || !m->roles || of_parameters(row)) ? 0 : -1;
}

static const int64_t *box(making *m, const int64_t *from, int ndim, int dim, int64_t value)
{
    int64_t *copy = CF_NEWS(m->arena, int64_t, (size_t)ndim + 1);
    if (copy && from && ndim) memcpy(copy, from, (size_t)ndim * sizeof *copy);
    if (copy && dim >= 0) copy[dim] = value;
    return copy;
}

/* Is the box a piece of the row as it lies? Pieces are sorted by their offsets; number: a guess. */
static const cf_storage *same_piece(const making *m, const cf_item *it, const cf_row *row,
                                    size_t number, const int64_t *at, const int64_t *size)
{
    size_t n = 0;
    const cf_held *held = row ? held_of(m, row, &n) : NULL;
    if (number >= n) return NULL;
    const cf_piece *p = &row->pieces[held[number].piece];
    const size_t dims = row->ndim * sizeof *at;
    if (dims && (memcmp(p->at, at, dims) != 0 || memcmp(p->view->shape, size, dims) != 0))
        return NULL;
    return raw_of(it, row, p);
}

static bool add_whole(making *m, uint32_t thing, const cf_item *it, const cf_row *row, cf_err *err)
{
    const int64_t *at = box(m, NULL, it->ndim, -1, 0);
    const cf_dcp_item item = {.number = thing,
                              .at = at,
                              .size = it->tensor->shape,
                              .raw = at ? same_piece(m, it, row, 0, at, it->tensor->shape) : NULL};
    return add(m, held_new(it, new_holders(m, it->name), it->tensor->numel), item, err);
}

static const cf_ranks *range(making *m, int32_t from, int32_t to)
{
    for (int32_t r = from; r < to; r++) m->list[r - from] = r;
    return cf_rank_set(&m->sets, m->list, (size_t)(to - from));
}

static bool add_cut(making *m, uint32_t thing, const cf_item *it, const cf_row *row, int dim,
                    cf_err *err)
{
    const int64_t *shape = it->tensor->shape, n = shape[dim], ranks = m->out->ranks;
    const int64_t each = (n + ranks - 1) / ranks;
    int64_t numel = 1;
    for (int d = 0; d < it->ndim; d++) numel *= d == dim ? 1 : shape[d];
    if (n == 0) return add_whole(m, thing, it, row, err);
    int32_t k = 0;
    for (int64_t from = 0; from < n; from += each, k++) {
        const int64_t size = cf_min(each, n - from);
        const cf_dcp_item item = {.number = thing,
                                  .at = box(m, NULL, it->ndim, dim, from),
                                  .size = box(m, shape, it->ndim, dim, size)};
        if (!item.at || !item.size) return out_of_memory(m, err);
        cf_dcp_item full = item;
        full.raw = same_piece(m, it, row, (size_t)k, item.at, item.size);
        if (!add(m, held_new(it, range(m, k, k + 1), numel * size), full, err)) return false;
    }
    if (k == ranks) return true;
    const cf_dcp_item none = {.number = thing,
                              .at = box(m, NULL, it->ndim, dim, n),
                              .size = box(m, shape, it->ndim, dim, 0)};
    return none.at && none.size ? add(m, held_new(it, range(m, k, (int32_t)ranks), 0), none, err)
                                : out_of_memory(m, err);
}

/* ---- as it is ----------------------------------------------------------------------------------
 */

static bool add_pieces(making *m, uint32_t thing, const cf_item *it, const cf_row *row, cf_err *err)
{
    size_t n;
    const cf_held *all = held_of(m, row, &n);
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const cf_piece *p = &row->pieces[all[i].piece];
        const cf_storage *raw = raw_of(it, row, p);
        if (!p->view->numel && row->numel && !raw) continue; /* nobody needs no elements */
        cf_held held = held_new(it, all[i].holders, p->view->numel);
        held.keeper = cf_ranks_hold(held.holders, all[i].rank) ? all[i].rank : held.keeper;
        const cf_dcp_item item = {.number = thing, .at = p->at, .size = p->view->shape, .raw = raw};
        if (!add(m, held, item, err)) return false;
        any = true;
    }
    return any ? true : add_whole(m, thing, it, NULL, err);
}

/* ---- entries -----------------------------------------------------------------------------------
 */

static bool add_tensors(making *m, const cf_entry *e, cf_err *err)
{
    cf_items *tensors = &m->out->tensors;
    const size_t first = tensors->count;
    CF_TRY(cf_lay_entry(&m->l, m->w, e, tensors, err));
    const size_t n = tensors->count - first;
    for (size_t i = first; i < tensors->count; i++) {
        const cf_item *it = &tensors->list[i];
        const uint32_t thing = (uint32_t)m->out->n_things;
        CF_TRY(add_thing(m,
                         (cf_dcp_thing){.name = it->name,
                                        .path = path_of(m, e, it->name),
                                        .row = e->row,
                                        .tensor = (uint32_t)i},
                         err));
        const int dim = n > 1 ? -1 : cut_anew(m, e->row, it->tensor);
        bool ok;
        if (dim >= 0)
            ok = add_cut(m, thing, it, e->row, dim, err);
        else if (anew(m) || n > 1 || !e->row) /* one rank's copy of several has its rank's name */
            ok = add_whole(m, thing, it, n > 1 ? NULL : e->row, err);
        else
            ok = add_pieces(m, thing, it, e->row, err);
        if (!ok) return false;
    }
    return true;
}

static bool add_value(making *m, const cf_entry *e, const char *name, const cf_node *node,
                      const cf_held *now, cf_err *err)
{
    const uint32_t thing = (uint32_t)m->out->n_things;
    const cf_storage *raw = cf_node_is_item(node) ? node->storage : NULL;
    CF_TRY(add_thing(m,
                     (cf_dcp_thing){.name = name,
                                    .path = path_of(m, e, name),
                                    .row = e->row,
                                    .value = node,
                                    .tensor = CF_B_NONE},
                     err));
    const bool keep = now && !anew(m);
    cf_held held = {.key = name,
                    .holders = keep ? now->holders : new_holders(m, name),
                    .bytes = raw ? raw->packed : 1,
                    .whole_bytes = 1,
                    .value = true};
    if (!held.holders) return out_of_memory(m, err);
    held.keeper =
        keep && cf_ranks_hold(held.holders, now->rank) ? now->rank : held.holders->list[0];
    return add(m, held, (cf_dcp_item){.number = thing, .value = true, .raw = raw}, err);
}

/* The smallest rank's; with --values per-rank each rank's where they differ. */
static bool add_values(making *m, const cf_entry *e, cf_err *err)
{
    const cf_row *row = e->row;
    size_t n = 0;
    if (!row) return add_value(m, e, e->name, e->value, NULL, err);
    const cf_held *now = held_of(m, row, &n);
    if (!row->differs || m->plan->cat->values != CF_VALUES_PER_RANK)
        return add_value(m, e, e->name, row->values[0].node, n ? now : NULL, err);
    for (size_t i = 0; i < row->n_values; i++) {
        cf_text name = {0};
        cf_text_printf(&name, "rank%d.%s", row->values[i].rank, e->name);
        const char *own = name.at ? cf_strndup(m->arena, name.at, name.size) : NULL;
        cf_text_free(&name);
        if (!own) return out_of_memory(m, err);
        CF_TRY(add_value(m, e, own, cf_row_value(row, i), NULL, err));
    }
    return true;
}

bool cf_dcp_begin(cf_plan *plan, struct cf_write *write, cf_err *err)
{
    making m = {.l = {.plan = plan}, .plan = plan, .arena = &plan->arena, .w = write};
    m.out = write->dcp = CF_NEW(&plan->arena, cf_dcp);
    if (!m.out) return out_of_memory(&m, err);
    if (!find_holders(&m, err)) return false;
    m.out->ranks = anew(&m) ? write->options.ranks : m.holding->ranks;
    hear_alone(&m);
    cf_rank_sets_init(&m.sets, m.arena);
    m.list = CF_NEWS(m.arena, int32_t, (size_t)m.out->ranks);
    m.all = m.list ? range(&m, 0, m.out->ranks) : NULL;
    if (!m.all) return out_of_memory(&m, err);
    bool ok = true;
    for (size_t i = 0; ok && i < write->count; i++) {
        const cf_entry *e = &write->entries[i];
        const bool tensor = e->tensor || (e->row && e->row->dtype != CF_NO_DTYPE);
        ok = tensor ? add_tensors(&m, e, err) : add_values(&m, e, err);
    }
    m.out->differ = m.l.differ;
    m.out->n_differ = m.l.n_differ;
    if (ok && m.n_single && anew(&m))
        cf_text_printf(&plan->notes,
                       "%zu key%s of single ranks cannot be cut for other ranks and %s kept as "
                       "%s: %s%s\n",
                       m.n_single, m.n_single > 1 ? "s" : "", m.n_single > 1 ? "are" : "is",
                       m.n_single > 1 ? "they are" : "it is", m.single.at,
                       m.n_single > 8 ? ", ..." : "");
    cf_text_free(&m.single);
    return ok && cf_arena_ok(m.arena, err);
}
