/* Values as JSON, a flat table of keys (CLI.md, "Values in JSON"). */
#include <string.h>

#include "json.h"
#include "laying.h"

typedef struct values {
    cf_text text;
    struct cf_json_tensor *tensors; /* met inside values */
    size_t count, cap;
    cf_map keys;
    bool any;
} values;

static bool add_value(cf_plan *plan, values *v, const char *key, const cf_node *node, cf_err *err)
{
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
static bool add_row_values(cf_plan *plan, values *v, const char *name, const cf_row *row,
                           cf_err *err)
{
    if (!row->differs || plan->cat->values != CF_VALUES_PER_RANK)
        return add_value(plan, v, name, row->values[0].node, err);
    for (size_t i = 0; i < row->n_values; i++) {
        const cf_node *node = cf_row_value(row, i);
        cf_text key = {0};
        cf_text_printf(&key, "rank%d.%s", row->values[i].rank, name);
        const bool ok = cf_text_ok(&key, err) && add_value(plan, v, key.at, node, err);
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

bool cf_lay_values(cf_layout *l, size_t number, cf_err *err)
{
    cf_plan *plan = l->plan;
    const cf_write *w = &plan->writes[number];
    values v = {0};
    cf_map_init(&v.keys, &plan->arena);
    cf_text_str(&v.text, "{");
    bool ok = true;
    for (size_t i = 0; ok && i < w->count; i++) {
        const cf_row *row = w->entries[i].row;
        const char *name = w->entries[i].name;
        ok = w->entries[i].value ? add_value(plan, &v, name, w->entries[i].value, err)
             : row               ? add_row_values(plan, &v, name, row, err)
                   : cf_fail(err, CF_L_PLAN, "%s: JSON cannot hold the tensor %s", w->path,
                             w->entries[i].name);
    }
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
