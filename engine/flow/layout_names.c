/* What a manifest says beside bytes: the name that each tensor has within its role, and the values
 * of JSON files with their keys, names and roles. With it our own output can be read back as what
 * it was made from.
 */
#include <string.h>

#include "laying.h"

static const char *text_at(const cf_layout *l, cf_ref ref)
{
    return l->b->sections[CF_B_BYTES].at + ref.at;
}

/* Most often a text ends another one, which is there already. */
static cf_ref text_within(const cf_layout *l, cf_ref other, const char *text)
{
    const size_t n = strlen(text);
    if (n <= other.size && strcmp(text_at(l, other) + other.size - n, text) == 0)
        return (cf_ref){other.at + other.size - n, n};
    return cf_blocker_text(l->b, text, n);
}

static bool name_tensors(cf_layout *l, cf_err *err)
{
    cf_text *tensors = &l->b->sections[CF_B_TENSORS];
    for (size_t i = 0; i < tensors->size / sizeof(cf_b_tensor); i++) {
        CF_TRY(cf_text_ok(&l->b->sections[CF_B_BYTES], err));
        cf_b_tensor *t = &((cf_b_tensor *)(void *)tensors->at)[i];
        const cf_row *row = cf_catalogue_find(l->plan->cat, text_at(l, t->key));
        const bool same = row && strcmp(row->role, text_at(l, t->role)) == 0;
        t->role_name = same ? text_within(l, t->key, row->name) : t->name;
    }
    return true;
}

cf_ref cf_lay_path(cf_layout *l, const cf_path *path)
{
    if (!path) return (cf_ref){0};
    cf_text text = {0};
    for (size_t i = 0; i < path->count; i++) {
        const cf_step *s = &path->steps[i];
        cf_text_str(&text, i ? "," : "[");
        if (s->kind == CF_STEP_TEXT) {
            cf_text_json(&text, s->text, s->length);
        } else if (s->kind == CF_STEP_KEY) {
            cf_text shown = {0};
            cf_node_show(&shown, s->key, 200);
            cf_text_json(&text, shown.at ? shown.at : "", shown.size);
            cf_text_free(&shown);
        } else {
            cf_text_printf(&text, "%lld", (long long)s->number);
        }
    }
    cf_text_str(&text, "]");
    const cf_ref ref = cf_blocker_text(l->b, text.at ? text.at : "", text.size);
    cf_text_free(&text);
    return ref;
}

cf_b_value cf_lay_value_names(cf_layout *l, uint64_t file, const cf_row *row, const char *name)
{
    cf_b_value value = {.key = cf_blocker_text(l->b, row->key, strlen(row->key)),
                        .role = cf_blocker_text(l->b, row->role, strlen(row->role)),
                        .file = file};
    if (l->b->sections[CF_B_BYTES].failed) return value;
    value.name = text_within(l, value.key, name);
    value.role_name = text_within(l, value.key, row->name);
    return value;
}

static bool name_values(cf_layout *l, uint64_t file, const cf_write *w, cf_err *err)
{
    for (size_t i = 0; i < w->count; i++) {
        const cf_row *row = w->entries[i].row;
        if (!row) continue; /* the recipe made it: it is no value of the checkpoint */
        const bool each = row->differs && l->plan->cat->values == CF_VALUES_PER_RANK;
        for (size_t k = 0; k < (each ? row->n_values : 1); k++) {
            cf_text name = {0};
            if (each) cf_text_printf(&name, "rank%d.", row->values[k].rank);
            cf_text_str(&name, w->entries[i].name);
            const bool ok = cf_text_ok(&name, err);
            if (ok) {
                cf_b_value value = cf_lay_value_names(l, file, row, name.at);
                if (!each && w->options.nest) value.path = cf_lay_path(l, w->entries[i].path);
                cf_blocker_add(l->b, CF_B_VALUES, &value, sizeof value);
            }
            cf_text_free(&name);
            if (!ok) return false;
        }
    }
    return cf_text_ok(&l->b->sections[CF_B_BYTES], err) &&
           cf_text_ok(&l->b->sections[CF_B_VALUES], err);
}

bool cf_lay_names(cf_layout *l, cf_err *err)
{
    const cf_text *files = &l->b->sections[CF_B_FILES];
    CF_TRY(cf_text_ok(files, err) && cf_text_ok(&l->b->sections[CF_B_TENSORS], err));
    CF_TRY(name_tensors(l, err));
    for (uint64_t i = 0; i < files->size / sizeof(cf_b_file); i++) {
        const cf_b_file *f = &((const cf_b_file *)(const void *)files->at)[i];
        for (size_t k = 0; k < l->plan->n_writes; k++) {
            const cf_write *w = &l->plan->writes[k];
            if (w->writer == CF_WRITE_JSON && strcmp(w->path, text_at(l, f->path)) == 0)
                CF_TRY(name_values(l, i, w, err));
        }
    }
    cf_text_add(&l->b->sections[CF_B_VALUES], l->values.at, l->values.size); /* of later files */
    return cf_text_ok(&l->values, err) && cf_text_ok(&l->b->sections[CF_B_VALUES], err);
}
