/* Torch files: the tree of names as a pickle that weights_only=True takes, storages in the order in
 * which it names them, and the archive around both.
 */
#include <string.h>

#include "laying.h"
#include "nest.h"
#include "num.h"
#include "pickle_tree.h"

/* What hangs on a branch: a tensor (number of its item), or a value. */
typedef struct leaf {
    const char *name;
    const cf_path *path;  /* NULL: the name alone */
    const cf_row *row;    /* NULL: made by the recipe */
    const cf_node *value; /* NULL: a tensor */
    uint32_t item;
    uint32_t part; /* number of the file that it goes to, from 0 */
} leaf;

/* A record data/<n>. Items that are in it are chained. */
typedef struct stored {
    uint32_t first, last; /* items; the first fills it where it is not kept whole */
    const cf_view *whole; /* a storage that is kept */
    int64_t numel;
    uint64_t size;
} stored;

typedef struct torch {
    cf_layout *l;
    const cf_write *w;
    cf_arena *arena;
    cf_items items;
    leaf *leaves;
    size_t n_leaves, cap_leaves;
    cf_sharing sharing;
    const leaf **leaf_of; /* by number of the item; beyond `sharing.count` items are arrays */
    cf_text left;         /* for the note: what could not be held */
    size_t n_left;

    /* of the file that is being laid out */
    uint64_t file; /* its number */
    cf_nest nest;
    cf_pickler p;
    stored *storages;
    size_t n_storages, cap_storages;
    uint32_t *next;      /* by number of the item: in the chain of its storage */
    uint32_t *item_at;   /* storage + 1 of an item that is alike, */
    uint32_t *kept_at;   /* and of a storage that is kept */
    const leaf *current; /* whose value is being written */
    cf_text lacks;
} torch;

static bool out_of_memory(torch *t, cf_err *err)
{
    return cf_arena_ok(t->arena, err) ? cf_fail(err, CF_E_MEMORY, "out of memory") : false;
}

/* ---- leaves ------------------------------------------------------------------------------------
 */

static bool add_leaf(torch *t, leaf one, cf_err *err)
{
    leaf *place = CF_PUSH(t->arena, t->leaves, t->n_leaves, t->cap_leaves);
    if (!place) return out_of_memory(t, err);
    *place = one;
    return true;
}

/* The path that nest gave; else the name's own in the checkpoint, where it was not changed. */
static const cf_path *path_of(const torch *t, const cf_entry *e, const char *name)
{
    if (t->w->options.nest) return name == e->name ? e->path : NULL;
    return e->row && strcmp(name, e->row->key) == 0 ? e->row->path : NULL;
}

static bool add_tensors(torch *t, const cf_entry *e, cf_err *err)
{
    const size_t first = t->items.count;
    CF_TRY(cf_lay_entry(t->l, t->w, e, &t->items, err));
    for (size_t i = first; i < t->items.count; i++) {
        const char *name = t->items.list[i].name;
        CF_TRY(cf_lay_compares(t->l, &t->items.list[i], err));
        CF_TRY(add_leaf(
            t,
            (leaf){.name = name, .path = path_of(t, e, name), .row = e->row, .item = (uint32_t)i},
            err));
    }
    return true;
}

static bool add_value(torch *t, const cf_entry *e, const char *name, const cf_node *node,
                      cf_err *err)
{
    leaf one = {.name = name, .path = path_of(t, e, name), .row = e->row, .item = CF_B_NONE};
    if (!cf_source_value(t->l->plan->cat->source, node, t->arena, &one.value, err))
        return cf_err_in_member(err, name);
    return add_leaf(t, one, err);
}

/* The smallest rank's; with --values per-rank each rank's where they differ. */
static bool add_values(torch *t, const cf_entry *e, cf_err *err)
{
    const cf_row *row = e->row;
    if (!row) return add_value(t, e, e->name, e->value, err);
    if (!row->differs || t->l->plan->cat->values != CF_VALUES_PER_RANK)
        return add_value(t, e, e->name, row->values[0].node, err);
    for (size_t i = 0; i < row->n_values; i++) {
        cf_text name = {0};
        cf_text_printf(&name, "rank%d.%s", row->values[i].rank, e->name);
        const char *own = name.at ? cf_strndup(t->arena, name.at, name.size) : NULL;
        cf_text_free(&name);
        if (!own) return out_of_memory(t, err);
        CF_TRY(add_value(t, e, own, cf_row_value(row, i), err));
    }
    return true;
}

static bool add_entries(torch *t, cf_err *err)
{
    for (size_t i = 0; i < t->w->count; i++) {
        const cf_entry *e = &t->w->entries[i];
        const bool tensor = e->tensor || (e->row && e->row->dtype != CF_NO_DTYPE);
        if (!(tensor ? add_tensors(t, e, err) : add_values(t, e, err))) return false;
    }
    return true;
}

/* ---- parts -------------------------------------------------------------------------------------
 */

/* How much a tensor adds to a file: nothing if it shares the bytes of one that is there. */
static bool size_of(const torch *t, uint32_t item, uint64_t *size, cf_err *err)
{
    const cf_shared *s = &t->sharing.of[item];
    if (s->storage != CF_B_NONE) {
        *size = t->sharing.storages[s->storage]->storage->size;
        return true;
    }
    return cf_lay_size(&t->items.list[item], size, err);
}

/* The number of the file for each leaf; tensors that share go where the first of them went. */
static bool split(torch *t, uint64_t most, size_t *parts, cf_err *err)
{
    uint32_t *part_of = CF_NEWS(t->arena, uint32_t, t->items.count + 1);
    uint32_t *part_of_kept = CF_NEWS(t->arena, uint32_t, t->sharing.n_storages + 1);
    if (!part_of || !part_of_kept) return out_of_memory(t, err);
    uint64_t bytes = 0;
    uint32_t part = 0;
    for (size_t i = 0; i < t->n_leaves; i++) {
        leaf *f = &t->leaves[i];
        if (most && f->path)
            return cf_fail(err, CF_L_PLAN, "%s: only a flat file can be split, %s is nested",
                           t->w->path, f->name);
        f->part = part;
        if (!most || f->value) continue;
        const cf_shared *s = &t->sharing.of[f->item];
        uint32_t *known = s->storage != CF_B_NONE ? &part_of_kept[s->storage] : &part_of[s->like];
        if (!*known) {
            uint64_t size, sum;
            CF_TRY(size_of(t, f->item, &size, err));
            if (bytes && (__builtin_add_overflow(bytes, size, &sum) || sum > most)) {
                part++;
                bytes = 0;
            }
            bytes += size;
            *known = part + 1;
        }
        f->part = *known - 1;
    }
    *parts = (size_t)part + 1;
    return true;
}

/* ---- the pickle --------------------------------------------------------------------------------
 */

static bool new_storage(torch *t, stored one, uint32_t *number, cf_err *err)
{
    stored *s = CF_PUSH(t->arena, t->storages, t->n_storages, t->cap_storages);
    if (!s) return out_of_memory(t, err);
    *s = one;
    *number = (uint32_t)(t->n_storages - 1);
    return true;
}

/* The storage of an item and the view that the item is of it; both are chained. */
static bool place_item(torch *t, uint32_t item, cf_pickle_view *out, cf_err *err)
{
    const cf_item *it = &t->items.list[item];
    const cf_shared *s = &t->sharing.of[item];
    const bool kept = s->storage != CF_B_NONE;
    uint32_t *known = kept ? &t->kept_at[s->storage] : &t->item_at[s->like], number;
    if (!*known) {
        const cf_view *whole = kept ? t->sharing.storages[s->storage] : NULL;
        stored one = {.first = CF_B_NONE, .last = CF_B_NONE, .whole = whole};
        if (kept) {
            one.numel = whole->numel;
            one.size = whole->storage->size;
        } else {
            CF_TRY(cf_lay_size(it, &one.size, err));
            one.numel = (int64_t)one.size / cf_dtype_size(it->dtype);
        }
        CF_TRY(new_storage(t, one, &number, err));
        *known = number + 1;
    }
    number = *known - 1;
    stored *to = &t->storages[number];
    if (to->last == CF_B_NONE)
        to->first = item;
    else
        t->next[to->last] = item;
    to->last = item;
    t->next[item] = CF_B_NONE;
    *out = (cf_pickle_view){.dtype = it->dtype,
                            .ndim = (uint8_t)it->ndim,
                            .shape = it->shape,
                            .key = number,
                            .numel = to->numel};
    if (kept) {
        out->stride = s->view->stride;
        out->offset = (int64_t)(s->view->offset / (uint64_t)cf_dtype_size(it->dtype));
    }
    return true;
}

/* A tensor or array inside a value: a storage of its own. */
static bool place_array(void *ctx, const cf_view *view, cf_pickle_view *out, cf_err *err)
{
    torch *t = ctx;
    const cf_view *own = cf_view_copy(t->arena, view);
    stored one = {.first = CF_B_NONE,
                  .last = CF_B_NONE,
                  .numel = view->numel,
                  .size = (uint64_t)(view->numel * cf_dtype_size(view->dtype))};
    uint32_t number;
    if (!own) return out_of_memory(t, err);
    one.first = (uint32_t)t->items.count; /* an item without a name */
    CF_TRY(cf_lay_view(t->l, &t->items, "", own, err));
    CF_TRY(new_storage(t, one, &number, err));
    *out = (cf_pickle_view){.dtype = view->dtype,
                            .ndim = view->ndim,
                            .shape = own->shape,
                            .key = number,
                            .numel = view->numel};
    return true;
}

static void add_lack(torch *t, const char *where, const char *what)
{
    cf_text_printf(&t->lacks, "%s%s%s%s", t->lacks.size ? ", " : "", where, *where ? ": " : "",
                   what);
    if (t->n_left++ < 4)
        cf_text_printf(&t->left, "%s%s%s%s (%s)", t->n_left > 1 ? ", " : "", t->current->name,
                       *where ? "." : "", where, what);
}

static void left_out(void *ctx, const char *where, const char *what)
{
    add_lack(ctx, where, what);
}

/* What the manifest says of the values of a file. */
static void keep_value(torch *t, const leaf *f, bool held)
{
    if (!f->row) return;
    cf_b_value value = cf_lay_value_names(t->l, t->file, f->row, f->name);
    value.path = held ? cf_lay_path(t->l, f->path) : (cf_ref){0};
    if (t->lacks.size) value.lacks = cf_blocker_text(t->l->b, t->lacks.at, t->lacks.size);
    cf_text_add(&t->l->values, &value, sizeof value);
}

/* A value that cannot be held is told in the manifest, and has no entry. */
static bool holds(torch *t, const leaf *f)
{
    const char *what;
    if (!f->value || cf_pickle_holds(f->value, &what)) return true;
    t->current = f;
    t->lacks.size = 0;
    add_lack(t, "", what);
    keep_value(t, f, false);
    return false;
}

static bool put_leaf(torch *t, const leaf *f, cf_err *err)
{
    cf_pickle_view view;
    if (!f->value) {
        CF_TRY(place_item(t, f->item, &view, err));
        cf_pickle_tensor(&t->p, &view);
        return true;
    }
    const cf_pickle_tree tree = {.p = &t->p, .tensor = place_array, .left_out = left_out, .ctx = t};
    t->current = f;
    t->lacks.size = 0;
    if (!cf_pickle_value(&tree, f->value, err)) return cf_err_in_member(err, f->name);
    keep_value(t, f, true);
    return true;
}

static bool put_step(torch *t, const cf_step *s, bool word, cf_err *err)
{
    const cf_pickle_tree tree = {.p = &t->p, .ctx = t};
    if (s->kind == CF_STEP_KEY) return cf_pickle_value(&tree, s->key, err);
    if (s->kind == CF_STEP_TEXT)
        (word ? cf_pickle_word : cf_pickle_string)(&t->p, s->text, s->length);
    else
        cf_pickle_int(&t->p, s->number);
    return true;
}

static bool put_level(torch *t, const cf_branch *level, int depth, cf_err *err)
{
    const cf_step_kind kind = cf_nest_kind(&t->nest, level);
    const bool dict = kind == CF_STEP_TEXT;
    cf_filling f = dict ? cf_pickle_fill_dict(level->count) : cf_pickle_fill_list(level->count);
    if (kind == CF_STEP_TUPLE)
        cf_pickle_tuple(&t->p, level->count);
    else
        dict ? cf_pickle_dict(&t->p) : cf_pickle_list(&t->p);
    for (uint32_t i = level->first; i != CF_NO_BRANCH;) {
        const cf_branch *b = &t->nest.branches[i];
        if (kind != CF_STEP_TUPLE) cf_pickle_item(&t->p, &f);
        /* names of states return for each parameter */
        if (dict && !put_step(t, &b->step, depth > 0 && b->leaf != CF_NO_BRANCH, err)) return false;
        if (!(b->leaf == CF_NO_BRANCH ? put_level(t, b, depth + 1, err)
                                      : put_leaf(t, &t->leaves[b->leaf], err)))
            return false;
        i = b->next;
    }
    if (kind == CF_STEP_TUPLE)
        cf_pickle_tuple_end(&t->p, level->count);
    else
        cf_pickle_filled(&t->p, &f);
    return true;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static bool lay_storage(torch *t, cf_archive *a, uint32_t number, cf_err *err)
{
    const stored *s = &t->storages[number];
    const cf_item *first = &t->items.list[s->first];
    const uint64_t begin = cf_lay_storage(t->l, a, s->size);
    cf_b_chunk chunk = {
        .begin = begin, .end = begin + s->size, .tensor = CF_B_NONE, .dtype = (uint8_t)first->cast};
    cf_item whole = *first;
    cf_tensor row;
    cf_term term;
    cf_tile tile;
    if (s->whole) { /* of the row's own elements, as bytes in the order they lie */
        static const int64_t zero[1];
        tile = (cf_tile){.at = zero, .view = s->whole};
        term = (cf_term){.tiles = &tile, .count = 1, .weight = 1};
        row = (cf_tensor){.dtype = s->whole->dtype,
                          .ndim = 1,
                          .shape = s->whole->shape,
                          .numel = s->whole->numel,
                          .terms = &term,
                          .n_terms = 1};
        whole.tensor = &row;
        whole.shape = s->whole->shape;
        whole.ndim = 1;
    }
    if (s->size && !cf_lay_filling(t->l, &whole, &chunk, err)) return false;
    for (uint32_t i = s->first; i != CF_B_NONE && i < t->sharing.count; i = t->next[i]) {
        const uint32_t tensor =
            cf_lay_tensor(t->l, &t->items.list[i], cf_lay_path(t->l, t->leaf_of[i]->path));
        if (chunk.tensor == CF_B_NONE) chunk.tensor = tensor;
    }
    cf_blocker_add(t->l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
    return true;
}

/* What the file is called without its suffix, as torch names the folder in its zip. */
static void top_of(const char *path, char *top, size_t room)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    memcpy(top, "archive", sizeof "archive");
    if (n >= room || n > 100) return;
    memcpy(top, name, n);
    top[n] = '\0';
}

static bool make_pickle(torch *t, uint32_t part, cf_text *pickle, cf_err *err)
{
    cf_nest_init(&t->nest, t->arena);
    t->n_storages = 0;
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        const leaf *f = &t->leaves[i];
        if (f->part == part && holds(t, f) && !cf_nest_add(&t->nest, f->name, f->path, i, err))
            return false;
    }
    CF_TRY(cf_nest_finish(&t->nest, err));
    cf_pickler_init(&t->p, pickle);
    const bool ok = put_level(t, &t->nest.branches[0], 0, err) && cf_pickler_end(&t->p, err);
    cf_pickler_free(&t->p);
    return ok;
}

static bool lay_file(torch *t, const char *path, uint32_t part, cf_err *err)
{
    const uint64_t first = cf_lay_chunks(t->l);
    char top[128];
    cf_text pickle = {0};
    cf_archive a;
    uint64_t end;
    top_of(path, top, sizeof top);
    t->file = t->l->b->sections[CF_B_FILES].size / sizeof(cf_b_file);
    if (!make_pickle(t, part, &pickle, err)) {
        cf_text_free(&pickle);
        return false;
    }
    cf_lay_archive(t->l, &a, 0, top, &pickle);
    cf_text_free(&pickle);
    bool ok = true;
    for (uint32_t k = 0; ok && k < t->n_storages; k++) ok = lay_storage(t, &a, k, err);
    ok = cf_lay_archive_end(t->l, &a, &end, ok ? err : &(cf_err){0}) && ok;
    if (ok) cf_lay_file(t->l, path, end, first);
    return ok;
}

static bool lay_parts(torch *t, size_t parts, cf_err *err)
{
    cf_text index = {0}, name = {0};
    const char *slash = strrchr(t->w->path, '/');
    const size_t folder = slash ? (size_t)(slash - t->w->path) + 1 : 0;
    uint64_t total = 0;
    bool ok = true, any = false;
    for (size_t i = 0; ok && i < t->items.count; i++) {
        uint64_t size = 0;
        ok = cf_lay_size(&t->items.list[i], &size, err);
        total += size;
    }
    cf_text_printf(&index, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
                   (unsigned long long)total);
    for (uint32_t part = 0; ok && part < parts; part++) {
        name.size = 0;
        cf_lay_part_name(&name, t->w->path, part + 1, parts);
        ok = cf_text_ok(&name, err) && lay_file(t, name.at, part, err);
        for (size_t i = 0; ok && i < t->n_leaves; i++) {
            if (t->leaves[i].part != part) continue;
            cf_text_str(&index, any ? ",\n " : "\n ");
            cf_text_json(&index, t->leaves[i].name, strlen(t->leaves[i].name));
            cf_text_str(&index, ": ");
            cf_text_json(&index, name.at + folder, name.size - folder);
            any = true;
        }
    }
    cf_text_str(&index, "\n}}\n");
    name.size = 0;
    cf_text_printf(&name, "%s.index.json", t->w->path);
    ok = ok && cf_text_ok(&index, err) && cf_text_ok(&name, err);
    if (ok) cf_lay_bytes(t->l, name.at, &index);
    cf_text_free(&index);
    cf_text_free(&name);
    return ok;
}

static bool lay(torch *t, cf_err *err)
{
    size_t parts;
    CF_TRY(add_entries(t, err) && cf_lay_sharing(t->l, &t->items, &t->sharing, err) &&
           split(t, t->w->options.max_shard_size, &parts, err));
    t->leaf_of = CF_NEWS(t->arena, const leaf *, t->items.count + 1);
    t->next = CF_NEWS(t->arena, uint32_t, t->items.count + 1);
    t->item_at = CF_NEWS(t->arena, uint32_t, t->items.count + 1);
    t->kept_at = CF_NEWS(t->arena, uint32_t, t->sharing.n_storages + 1);
    if (!t->leaf_of || !t->next || !t->item_at || !t->kept_at) return out_of_memory(t, err);
    for (size_t i = 0; i < t->n_leaves; i++)
        if (!t->leaves[i].value) t->leaf_of[t->leaves[i].item] = &t->leaves[i];
    return parts < 2 ? lay_file(t, t->w->path, 0, err) : lay_parts(t, parts, err);
}

bool cf_lay_torch(cf_layout *l, size_t number, cf_err *err)
{
    torch t = {.l = l, .w = &l->plan->writes[number], .arena = &l->plan->arena};
    const bool ok = lay(&t, err);
    if (ok && t.n_left)
        cf_text_printf(&l->plan->notes,
                       "%s: %zu value%s weights_only=True does not take: %s%s; the manifest lists "
                       "what is left out\n",
                       t.w->path, t.n_left, t.n_left > 1 ? "s that" : " that", t.left.at,
                       t.n_left > 4 ? ", ..." : "");
    cf_text_free(&t.left);
    cf_text_free(&t.lacks);
    return ok;
}
