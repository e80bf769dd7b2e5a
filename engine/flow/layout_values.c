/* Values as JSON (CLI.md, "Values in JSON"): a flat table of keys, or with `nest` a tree. */
#include <string.h>

#include "json.h"
#include "laying.h"
#include "nest.h"

typedef struct values {
    cf_text text;
    struct cf_json_tensor *tensors; /* met inside values */
    size_t count, cap;
    cf_map keys;
    bool any;
    bool nested; /* values wait in the tree */
    cf_nest nest;
    const cf_node **leaves;
    size_t n_leaves, cap_leaves;
} values;

static bool add_leaf(cf_plan *plan, values *v, const char *key, const cf_path *path,
                     const cf_node *node, cf_err *err)
{
    const char *own = cf_strndup(&plan->arena, key, strlen(key));
    const cf_node **leaf = CF_PUSH(&plan->arena, v->leaves, v->n_leaves, v->cap_leaves);
    if (!own || !leaf) return cf_arena_ok(&plan->arena, err);
    return (cf_source_value(plan->cat->source, node, &plan->arena, leaf, err) &&
            cf_nest_add(&v->nest, own, path, (uint32_t)(v->n_leaves - 1), err)) ||
           cf_err_in_member(err, key);
}

static bool add_value(cf_plan *plan, values *v, const char *key, const cf_path *path,
                      const cf_node *node, cf_err *err)
{
    if (v->nested) return add_leaf(plan, v, key, path, node, err);
    /* a key that --values per-rank made may be there already */
    bool fresh = false;
    const char *own = cf_strndup(&plan->arena, key, strlen(key));
    if (!own || !cf_map_put(&v->keys, own, strlen(own), &fresh))
        return cf_arena_ok(&plan->arena, err);
    if (!fresh) return cf_fail(err, CF_E_DUP_KEY, "two values become %s", key);
    cf_text_str(&v->text, v->any ? ",\n " : "\n ");
    cf_text_json(&v->text, key, strlen(key));
    cf_text_str(&v->text, ": ");
    v->any = true;
    if (!cf_source_value(plan->cat->source, node, &plan->arena, &node, err))
        return cf_err_in_member(err, key);
    cf_json_tensors met = {.arena = &plan->arena, .key = own};
    if (!met.key || !cf_json_value(&v->text, node, 1, &met, err)) return cf_err_in_member(err, key);
    for (size_t i = 0; i < met.count; i++) {
        struct cf_json_tensor *t = CF_PUSH(&plan->arena, v->tensors, v->count, v->cap);
        if (t) *t = met.items[i];
    }
    return cf_arena_ok(&plan->arena, err);
}

/* rank0's value; with --values per-rank, each rank's under rank<N>.<key> where they differ. */
static bool add_row_values(cf_plan *plan, values *v, const cf_entry *e, cf_err *err)
{
    const cf_row *row = e->row;
    if (!row->differs || plan->cat->values != CF_VALUES_PER_RANK)
        return add_value(plan, v, e->name, e->path, row->values[0].node, err);
    for (size_t i = 0; i < row->n_values; i++) {
        const cf_node *node = cf_row_value(row, i);
        cf_text key = {0};
        cf_text_printf(&key, "rank%d.%s", row->values[i].rank, e->name);
        const bool ok = cf_text_ok(&key, err) && add_value(plan, v, key.at, NULL, node, err);
        cf_text_free(&key);
        if (!ok) return false;
    }
    return true;
}

static bool same_stem(const char *a, const char *b)
{
    const char *x = strrchr(a, '.'), *y = strrchr(b, '.');
    return x && y && x - a == y - b && strncmp(a, b, (size_t)(x - a)) == 0;
}

/* ---- nested ------------------------------------------------------------------------------------
 */

static cf_node *key_node(cf_arena *arena, const cf_step *step)
{
    if (step->kind == CF_STEP_TEXT)
        return cf_node_text(arena, CF_NODE_STRING, step->text, step->length);
    return step->kind == CF_STEP_KEY ? (cf_node *)step->key : cf_node_int(arena, step->number);
}

/* What is at and below a branch, as one value; as deep as a path may be. */
static cf_node *value_of(cf_arena *arena, const values *v, uint32_t at, cf_err *err)
{
    const cf_branch *branch = &v->nest.branches[at];
    if (branch->leaf != CF_NO_BRANCH) return (cf_node *)v->leaves[branch->leaf];
    const cf_step_kind kind = cf_nest_kind(&v->nest, branch);
    cf_node *node = cf_node_new(arena, kind == CF_STEP_LIST    ? CF_NODE_LIST
                                       : kind == CF_STEP_TUPLE ? CF_NODE_TUPLE
                                                               : CF_NODE_DICT);
    for (uint32_t i = branch->first; node && i != CF_NO_BRANCH; i = v->nest.branches[i].next) {
        cf_node *below = value_of(arena, v, i, err);
        bool replaced;
        if (!below) return NULL;
        if (kind == CF_STEP_LIST || kind == CF_STEP_TUPLE) {
            if (!cf_list_add(arena, node->list, below)) node = NULL;
        } else {
            cf_node *key = key_node(arena, &v->nest.branches[i].step);
            if (!key) node = NULL;
            if (key && !cf_dict_set(arena, node->dict, key, below, &replaced, err)) return NULL;
        }
    }
    if (!node) cf_arena_ok(arena, err);
    return node;
}

static bool add_tree(cf_plan *plan, values *v, const char *path, cf_err *err)
{
    CF_TRY(cf_nest_finish(&v->nest, err));
    v->nested = false;
    for (uint32_t i = v->nest.branches[0].first; i != CF_NO_BRANCH; i = v->nest.branches[i].next) {
        const cf_step *step = &v->nest.branches[i].step;
        if (step->kind != CF_STEP_TEXT)
            return cf_fail(err, CF_L_PLAN, "%s: the outermost keys of a JSON file are texts", path);
        const char *key = cf_strndup(&plan->arena, step->text, step->length);
        const cf_node *value = value_of(&plan->arena, v, i, err);
        if (!key) return cf_arena_ok(&plan->arena, err);
        if (!value || !add_value(plan, v, key, NULL, value, err)) return false;
    }
    return true;
}

bool cf_lay_values(cf_layout *l, size_t number, cf_err *err)
{
    cf_plan *plan = l->plan;
    const cf_write *w = &plan->writes[number];
    values v = {.nested = w->options.nest};
    cf_map_init(&v.keys, &plan->arena);
    cf_nest_init(&v.nest, &plan->arena);
    cf_text_str(&v.text, "{");
    bool ok = cf_arena_ok(&plan->arena, err);
    for (size_t i = 0; ok && i < w->count; i++) {
        const cf_entry *e = &w->entries[i];
        ok = e->value ? add_value(plan, &v, e->name, e->path, e->value, err)
             : e->row
                 ? add_row_values(plan, &v, e, err)
                 : cf_fail(err, CF_L_PLAN, "%s: JSON cannot hold the tensor %s", w->path, e->name);
    }
    ok = ok && (!v.nested || add_tree(plan, &v, w->path, err));
    cf_text_str(&v.text, v.any ? "\n}\n" : "}\n");
    ok = ok && cf_text_ok(&v.text, err) && cf_arena_ok(&plan->arena, err);
    if (ok) cf_lay_bytes(l, w->path, &v.text);
    cf_text_free(&v.text);
    if (!ok) return false;

    const cf_write *beside = NULL;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_SAFETENSORS &&
            same_stem(plan->writes[i].path, w->path)) {
            beside = &plan->writes[i];
            l->written[i] = true;
        }
    cf_items items = {0};
    if (beside && !cf_lay_items(l, beside, &items, err)) return false;
    for (size_t i = 0; i < v.count; i++)
        if (!cf_lay_view(l, &items, v.tensors[i].name, v.tensors[i].view, err)) return false;
    if (!items.count) return true;
    cf_text path = {0};
    cf_text_add(&path, w->path, strlen(w->path) - strlen("json"));
    cf_text_str(&path, "safetensors");
    ok = cf_text_ok(&path, err) &&
         cf_lay_safetensors(l, path.at, &items, beside ? &beside->options : NULL, err);
    cf_text_free(&path);
    return ok;
}
