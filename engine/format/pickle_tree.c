#include "pickle_tree.h"

#include <string.h>

#include "text.h"

/* ---- what can be held --------------------------------------------------------------------------
 *
 * Answers are kept for each container of a value, so that shared ones cost no more than their
 * number; and with them whether a container is met twice, which then goes into the memo.
 */

enum { UNDER_WAY = 1, HELD, NOT_HELD, ANSWER = 3, TWICE = 4, PUT = 8 /* its number above */ };

typedef struct looking {
    cf_arena arena;
    cf_map known; /* node -> answer and flags, later its number in the memo */
    const char *what;
} looking;

static bool has_data(const cf_view *view)
{
    return view->numel == 0 || view->storage->place != CF_NOWHERE;
}

static bool is_class(const cf_node *node, const char *module, const char *name)
{
    const cf_global *class = node->object->class;
    return strcmp(class->module, module) == 0 && (!name || strcmp(class->name, name) == 0);
}

/* A path is read as an object of one text, a device as one of a text and perhaps a number. */
static const cf_list *arguments(const cf_node *node)
{
    const cf_parts *parts = cf_object_parts(node->object);
    static const cf_list none;
    return parts->args ? parts->args->list : &none;
}

static bool is_path(const cf_node *node)
{
    const cf_list *args = arguments(node);
    const bool path = is_class(node, "pathlib", NULL) || is_class(node, "pathlib._local", NULL);
    return path && args->count == 1 && args->items[0]->kind == CF_NODE_STRING;
}

static bool is_device(const cf_node *node)
{
    const cf_list *args = arguments(node);
    return is_class(node, "torch", "device") && args->count >= 1 && args->count <= 2 &&
           args->items[0]->kind == CF_NODE_STRING &&
           (args->count == 1 || args->items[1]->kind == CF_NODE_INT);
}

static bool holds(looking *l, const cf_node *node, int depth);

static bool is_container(const cf_node *node)
{
    return node->kind == CF_NODE_LIST || node->kind == CF_NODE_TUPLE || node->kind == CF_NODE_SET ||
           node->kind == CF_NODE_DICT;
}

/* What a set holds and a dict has as a key is hashable: containers only as tuples. */
static bool is_hashable(const cf_node *node)
{
    if (is_container(node) && node->kind != CF_NODE_TUPLE) return false;
    for (size_t i = 0; node->kind == CF_NODE_TUPLE && i < node->list->count; i++)
        if (!is_hashable(node->list->items[i])) return false;
    return true;
}

static bool holds_items(looking *l, const cf_node *node, int depth)
{
    if (node->kind == CF_NODE_DICT) { /* entries that cannot be held are left out */
        for (size_t i = 0; i < node->dict->count; i++) {
            const cf_pair *pair = &node->dict->pairs[i];
            holds(l, pair->key, depth + 1);
            holds(l, pair->value, depth + 1);
        }
        return true;
    }
    bool all = true; /* to the end: for what is met twice */
    for (size_t i = 0; i < node->list->count; i++) {
        const cf_node *item = node->list->items[i];
        const bool one = holds(l, item, depth + 1);
        all = all && one;
        if (one && node->kind == CF_NODE_SET && !is_hashable(item)) {
            l->what = "set";
            all = false;
        }
    }
    return all;
}

static bool holds(looking *l, const cf_node *node, int depth)
{
    switch (node->kind) {
    case CF_NODE_LIST:
    case CF_NODE_TUPLE:
    case CF_NODE_SET:
    case CF_NODE_DICT: break;
    case CF_NODE_TENSOR:
        if (!has_data(node->view)) l->what = "meta tensor";
        return has_data(node->view);
    case CF_NODE_OBJECT:
        if (is_path(node) || is_device(node)) return true;
        l->what = cf_node_class(node);
        return false;
    case CF_NODE_BIG:
        if (node->text.length > CF_PICKLE_DIGITS) l->what = "integer";
        return node->text.length <= CF_PICKLE_DIGITS;
    case CF_NODE_GLOBAL:
    case CF_NODE_STORAGE: l->what = cf_node_class(node); return false;
    default: return true;
    }
    if (depth > CF_MOST_DEPTH) {
        l->what = cf_node_class(node);
        return false;
    }
    uint64_t answer;
    bool fresh;
    if (cf_map_get(&l->known, &node, sizeof node, &answer)) {
        uint64_t *place = cf_map_put(&l->known, &node, sizeof node, &fresh);
        if (place) *place |= TWICE;
        if ((answer & ANSWER) == NOT_HELD) return false;
        const bool may_cycle = node->kind == CF_NODE_LIST || node->kind == CF_NODE_DICT;
        if ((answer & ANSWER) == UNDER_WAY && !may_cycle) l->what = cf_node_class(node);
        return (answer & ANSWER) != UNDER_WAY || may_cycle;
    }
    const void *key = cf_memdup(&l->arena, &node, sizeof(const cf_node *));
    uint64_t *place = key ? cf_map_put(&l->known, key, sizeof node, &fresh) : NULL;
    if (!place) return false; /* the arena tells */
    *place = UNDER_WAY;
    const bool held = holds_items(l, node, depth);
    place = cf_map_put(&l->known, &node, sizeof node, &fresh);
    if (place) *place = (*place & TWICE) | (held ? HELD : NOT_HELD);
    return held;
}

static bool look(looking *l, const cf_node *value)
{
    *l = (looking){.what = "value"};
    cf_arena_init(&l->arena, 0);
    cf_map_init(&l->known, &l->arena);
    return holds(l, value, 0);
}

bool cf_pickle_holds(const cf_node *value, const char **what)
{
    looking l;
    const bool held = look(&l, value);
    *what = l.what;
    cf_arena_free(&l.arena);
    return held;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

typedef struct writing {
    const cf_pickle_tree *tree;
    looking known;
    cf_text where;
    cf_err *err;
} writing;

static bool put(writing *w, const cf_node *node, int depth);

static bool is_held(writing *w, const cf_node *node)
{
    uint64_t answer;
    if (!is_container(node)) return holds(&w->known, node, 0);
    return cf_map_get(&w->known.known, &node, sizeof node, &answer) &&
           (answer & ANSWER) != NOT_HELD;
}

/* The class that keeps a value from being held, for the message. */
static const char *what_of(const cf_node *node)
{
    const char *what;
    return cf_pickle_holds(node, &what) ? "key" : what;
}

/* Ends what was written with a memo if it is met again. */
static void memoise(writing *w, const cf_node *node)
{
    uint64_t answer;
    bool fresh;
    if (!cf_map_get(&w->known.known, &node, sizeof node, &answer) || !(answer & TWICE)) return;
    uint64_t *place = cf_map_put(&w->known.known, &node, sizeof node, &fresh);
    if (place) *place |= PUT | (uint64_t)cf_pickle_put(w->tree->p) << 8;
}

static size_t add_where(writing *w, const cf_node *key, size_t number)
{
    const size_t before = w->where.size;
    if (before) cf_text_str(&w->where, ".");
    if (!key)
        cf_text_printf(&w->where, "%zu", number);
    else if (key->kind == CF_NODE_STRING)
        cf_text_shown(&w->where, key->text.at, key->text.length);
    else
        cf_node_show(&w->where, key, w->where.size + 80);
    return before;
}

static void cut_where(writing *w, size_t before)
{
    w->where.size = before;
    if (w->where.at) w->where.at[before] = '\0';
}

static bool held_pair(writing *w, const cf_pair *pair)
{
    return is_held(w, pair->key) && is_hashable(pair->key) && is_held(w, pair->value);
}

static bool put_dict(writing *w, const cf_node *node, int depth)
{
    const cf_dict *dict = node->dict;
    cf_pickler *p = w->tree->p;
    size_t count = 0;
    for (size_t i = 0; i < dict->count; i++) count += held_pair(w, &dict->pairs[i]);
    cf_pickle_dict(p);
    memoise(w, node);
    cf_filling f = cf_pickle_fill_dict(count);
    for (size_t i = 0; i < dict->count; i++) {
        const cf_pair *pair = &dict->pairs[i];
        const size_t before = add_where(w, pair->key, 0);
        if (held_pair(w, pair)) {
            cf_pickle_item(p, &f);
            if (!put(w, pair->key, depth + 1) || !put(w, pair->value, depth + 1)) return false;
        } else if (w->tree->left_out) {
            w->tree->left_out(w->tree->ctx, w->where.at ? w->where.at : "",
                              what_of(is_held(w, pair->key) ? pair->value : pair->key));
        }
        cut_where(w, before);
    }
    cf_pickle_filled(p, &f);
    return true;
}

static bool put_item(writing *w, const cf_node *item, size_t number, int depth)
{
    const size_t before = add_where(w, NULL, number);
    CF_TRY(put(w, item, depth + 1));
    cut_where(w, before);
    return true;
}

static bool put_list(writing *w, const cf_node *node, int depth)
{
    cf_pickler *p = w->tree->p;
    cf_filling f = cf_pickle_fill_list(node->list->count);
    const bool set = node->kind == CF_NODE_SET;
    if (set) cf_pickle_global(p, "__builtin__", "set");
    cf_pickle_list(p);
    if (!set) memoise(w, node);
    for (size_t i = 0; i < node->list->count; i++) {
        cf_pickle_item(p, &f);
        CF_TRY(put_item(w, node->list->items[i], i, depth));
    }
    cf_pickle_filled(p, &f);
    if (!set) return true;
    cf_pickle_tuple_end(p, 1);
    cf_pickle_reduce(p);
    memoise(w, node);
    return true;
}

static bool put_tuple(writing *w, const cf_node *node, int depth)
{
    cf_pickle_tuple(w->tree->p, node->list->count);
    for (size_t i = 0; i < node->list->count; i++)
        CF_TRY(put_item(w, node->list->items[i], i, depth));
    cf_pickle_tuple_end(w->tree->p, node->list->count);
    if (node->list->count) memoise(w, node);
    return true;
}

static bool put_object(writing *w, const cf_node *node)
{
    cf_pickler *p = w->tree->p;
    const cf_list *args = arguments(node);
    const cf_string *text = &args->items[0]->text;
    if (is_path(node)) {
        cf_pickle_string(p, text->at, text->length);
        return true;
    }
    cf_pickle_global(p, "torch", "device");
    cf_pickle_string(p, text->at, text->length);
    if (args->count == 2) cf_pickle_int(p, args->items[1]->integer);
    cf_pickle_tuple_end(p, args->count);
    cf_pickle_reduce(p);
    return true;
}

static bool put_view(writing *w, const cf_view *view)
{
    cf_pickle_view out;
    CF_TRY(w->tree->tensor(w->tree->ctx, view, &out, w->err));
    cf_pickle_tensor(w->tree->p, &out);
    return true;
}

static bool put_scalar(writing *w, const cf_node *node, int depth)
{
    const cf_node *number = cf_node_number(&w->known.arena, node);
    return number ? put(w, number, depth) : cf_arena_ok(&w->known.arena, w->err);
}

static bool put(writing *w, const cf_node *node, int depth)
{
    cf_pickler *p = w->tree->p;
    uint64_t answer;
    if (depth > CF_MOST_DEPTH)
        return cf_fail(w->err, CF_E_DEPTH, "nested more than %d deep", CF_MOST_DEPTH);
    if (is_container(node) && cf_map_get(&w->known.known, &node, sizeof node, &answer) &&
        answer & PUT) {
        cf_pickle_get(p, (uint32_t)(answer >> 8));
        return true;
    }
    switch (node->kind) {
    case CF_NODE_NONE: cf_pickle_none(p); return true;
    case CF_NODE_BOOL: cf_pickle_bool(p, node->integer); return true;
    case CF_NODE_INT: cf_pickle_int(p, node->integer); return true;
    case CF_NODE_BIG: cf_pickle_big(p, node->text.at, node->text.length); return true;
    case CF_NODE_FLOAT: cf_pickle_float(p, node->real); return true;
    case CF_NODE_COMPLEX: cf_pickle_complex(p, node->complex.re, node->complex.im); return true;
    case CF_NODE_STRING: cf_pickle_string(p, node->text.at, node->text.length); return true;
    case CF_NODE_BYTES: cf_pickle_bytes(p, node->text.at, node->text.length); return true;
    case CF_NODE_LIST:
    case CF_NODE_SET: return put_list(w, node, depth);
    case CF_NODE_TUPLE: return put_tuple(w, node, depth);
    case CF_NODE_DICT: return put_dict(w, node, depth);
    case CF_NODE_DTYPE: cf_pickle_dtype(p, node->dtype); return true;
    case CF_NODE_TENSOR:
    case CF_NODE_ARRAY: return put_view(w, node->view);
    case CF_NODE_SCALAR: return put_scalar(w, node, depth);
    case CF_NODE_OBJECT: return put_object(w, node);
    default: return cf_fail(w->err, CF_E_TYPE, "%s %s in a pickle", CF_A(cf_node_class(node)));
    }
}

bool cf_pickle_value(const cf_pickle_tree *tree, const cf_node *value, cf_err *err)
{
    writing w = {.tree = tree, .err = err};
    look(&w.known, value);
    const bool ok = cf_arena_ok(&w.known.arena, err) && put(&w, value, 0) &&
                    cf_arena_ok(&w.known.arena, err) && cf_text_ok(&w.where, err);
    cf_arena_free(&w.known.arena);
    cf_text_free(&w.where);
    return ok;
}
