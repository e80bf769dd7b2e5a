#include "diff_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 1 << 22, SHOWN = 60 };

typedef struct walk {
    cf_value_diff *d;
    cf_text path;
    uint64_t steps;
} walk;

static bool alike(walk *w, const cf_node *a, const cf_node *b, int depth);

static bool differ(walk *w, const cf_node *a, const cf_node *b)
{
    cf_text *to = &w->d->where;
    if (to->size) return false;
    cf_text_add(to, w->path.at, w->path.size);
    cf_text_str(to, w->path.size ? ": " : "");
    cf_node_show(to, a, SHOWN);
    cf_text_str(to, " / ");
    cf_node_show(to, b, SHOWN);
    return false;
}

static bool differ_in(walk *w, const char *what)
{
    cf_text *to = &w->d->where;
    if (to->size) return false;
    cf_text_add(to, w->path.at, w->path.size);
    cf_text_printf(to, "%s%s", w->path.size ? ": " : "", what);
    return false;
}

static void leave(walk *w, size_t size)
{
    w->path.size = size;
    if (w->path.at) w->path.at[size] = '\0';
}

static bool alike_lists(walk *w, const cf_list *a, const cf_list *b, int depth)
{
    if (a->count != b->count) {
        char what[96];
        snprintf(what, sizeof what, "%zu items / %zu items", a->count, b->count);
        return differ_in(w, what);
    }
    for (size_t i = 0; i < a->count; i++) {
        const size_t size = w->path.size;
        cf_text_printf(&w->path, "[%zu]", i);
        if (!alike(w, a->items[i], b->items[i], depth + 1)) return false;
        leave(w, size);
    }
    return true;
}

static void enter_key(walk *w, const cf_node *key)
{
    cf_text_str(&w->path, "[");
    cf_node_show(&w->path, key, SHOWN);
    cf_text_str(&w->path, "]");
}

static bool alike_dicts(walk *w, const cf_dict *a, const cf_dict *b, int depth)
{
    for (size_t i = 0; i < a->count; i++) {
        const size_t size = w->path.size;
        const cf_node *other = cf_dict_find(b, a->pairs[i].key);
        enter_key(w, a->pairs[i].key);
        if (!other) return differ_in(w, "only in A");
        if (!alike(w, a->pairs[i].value, other, depth + 1)) return false;
        leave(w, size);
    }
    for (size_t i = 0; a->count != b->count && i < b->count; i++)
        if (!cf_dict_find(a, b->pairs[i].key)) {
            enter_key(w, b->pairs[i].key);
            return differ_in(w, "only in B");
        }
    return true;
}

static bool alike_parts(walk *w, const cf_node *a, const cf_node *b, const char *name, int depth)
{
    if (!a && !b) return true;
    const size_t size = w->path.size;
    cf_text_printf(&w->path, ".%s", name);
    if (!a || !b) return differ_in(w, a ? "only in A" : "only in B");
    if (!alike(w, a, b, depth + 1)) return false;
    leave(w, size);
    return true;
}

static bool alike_objects(walk *w, const cf_object *a, const cf_object *b, int depth)
{
    if (strcmp(a->class->module, b->class->module) != 0 ||
        strcmp(a->class->name, b->class->name) != 0)
        return differ_in(w, "objects of two classes");
    cf_record ra, rb;
    const cf_dict *fa = cf_object_dict(a, &ra), *fb = cf_object_dict(b, &rb);
    const cf_parts *pa = cf_object_parts(a), *pb = cf_object_parts(b);
    if (!fa != !fb) return differ_in(w, "objects of two forms");
    return alike_parts(w, pa->args, pb->args, "args", depth) &&
           (fa ? alike_dicts(w, fa, fb, depth)
               : alike_parts(w, pa->state, pb->state, "state", depth)) &&
           alike_lists(w, &pa->items, &pb->items, depth) &&
           alike_dicts(w, &pa->pairs, &pb->pairs, depth);
}

static const cf_view *view_of(const cf_node *n)
{
    const bool has =
        n->kind == CF_NODE_TENSOR || n->kind == CF_NODE_ARRAY || n->kind == CF_NODE_SCALAR;
    return has ? n->view : NULL;
}

static bool alike_views(walk *w, const cf_view *a, const cf_view *b)
{
    const bool shapes =
        a->ndim == b->ndim && (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
    if (a->dtype != b->dtype || !shapes) {
        char here[256], there[256], what[520];
        cf_view_text(a->dtype, a->ndim, a->shape, here, sizeof here);
        cf_view_text(b->dtype, b->ndim, b->shape, there, sizeof there);
        snprintf(what, sizeof what, "%s / %s", here, there);
        return differ_in(w, what);
    }
    cf_value_diff *d = w->d;
    cf_value_views *v = CF_PUSH(d->arena, d->views, d->count, d->cap);
    if (!v) return false;
    *v = (cf_value_views){.path = cf_strndup(d->arena, w->path.at ? w->path.at : "", w->path.size),
                          .left = a,
                          .right = b};
    return v->path != NULL;
}

static bool same_text(const cf_node *a, const cf_node *b)
{
    return a->text.length == b->text.length &&
           (!a->text.length || !memcmp(a->text.at, b->text.at, a->text.length));
}

static bool same_real(const walk *w, double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= w->d->tolerance;
}

static bool alike(walk *w, const cf_node *a, const cf_node *b, int depth)
{
    if (a == b) return true;
    if (depth > CF_MOST_DEPTH) return differ_in(w, "nested too deeply to be compared");
    if (++w->steps > MOST_STEPS) return differ_in(w, "too large to be compared");
    const cf_view *va = view_of(a), *vb = view_of(b);
    if (va && vb) return alike_views(w, va, vb);
    if (a->kind != b->kind) return differ(w, a, b);
    switch (a->kind) {
    case CF_NODE_BOOL:
    case CF_NODE_INT: return a->integer == b->integer || differ(w, a, b);
    case CF_NODE_FLOAT: return same_real(w, a->real, b->real) || differ(w, a, b);
    case CF_NODE_COMPLEX:
        return (same_real(w, a->complex.re, b->complex.re) &&
                same_real(w, a->complex.im, b->complex.im)) ||
               differ(w, a, b);
    case CF_NODE_BIG:
    case CF_NODE_STRING:
    case CF_NODE_BYTES: return same_text(a, b) || differ(w, a, b);
    case CF_NODE_LIST:
    case CF_NODE_TUPLE: return alike_lists(w, a->list, b->list, depth);
    case CF_NODE_DICT: return alike_dicts(w, a->dict, b->dict, depth);
    case CF_NODE_OBJECT: return alike_objects(w, a->object, b->object, depth);
    default: return cf_node_equal(a, b) || differ(w, a, b);
    }
}

bool cf_values_alike(cf_value_diff *d, const cf_node *a, const cf_node *b)
{
    walk w = {.d = d};
    const bool same = alike(&w, a, b, 0);
    cf_text_free(&w.path);
    return same;
}
