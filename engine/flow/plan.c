#include "plan.h"

#include <string.h>

#include "dcp.h"
#include "layout.h"
#include "num.h"
#include "path.h"
#include "pattern.h"
#include "sink.h"

static const struct {
    const char *name, *suffix;
    cf_writer writer;
} WRITERS[] = {{"safetensors", ".safetensors", CF_WRITE_SAFETENSORS},
               {"json", ".json", CF_WRITE_JSON},
               {"torch", ".pt", CF_WRITE_TORCH},
               {"torch", ".pth", CF_WRITE_TORCH},
               {"torch", ".bin", CF_WRITE_TORCH},
               {"torch", ".ckpt", CF_WRITE_TORCH},
               {"dcp", NULL, CF_WRITE_DCP},
               {"npy", ".npy", CF_WRITE_NPY}};

enum { N_WRITERS = sizeof WRITERS / sizeof *WRITERS };

void cf_plan_init(cf_plan *plan, cf_catalogue *cat)
{
    memset(plan, 0, sizeof *plan);
    cf_arena_init(&plan->arena, 0);
    plan->cat = cat;
}

void cf_plan_free(cf_plan *plan)
{
    for (cf_other *o = plan->others; o; o = o->next) {
        cf_catalogue_free(&o->cat);
        cf_source_close(&o->source);
    }
    cf_text_free(&plan->notes);
    cf_arena_free(&plan->arena);
}

static int writer_of(const char *path, const char *as)
{
    for (int i = 0; i < N_WRITERS; i++) {
        const char *suffix = WRITERS[i].suffix;
        if (as ? strcmp(WRITERS[i].name, as) == 0
               : suffix && cf_text_ends(path, suffix) && strcmp(path, suffix) != 0)
            return i;
    }
    return -1;
}

bool cf_plan_holds_values(const char *path, const char *as)
{
    const int w = writer_of(path, as);
    return w >= 0 && (WRITERS[w].writer == CF_WRITE_JSON || WRITERS[w].writer == CF_WRITE_TORCH ||
                      WRITERS[w].writer == CF_WRITE_DCP);
}

/* A folder may be the output itself. */
static bool check_path(const cf_plan *plan, const char *path, bool folder, cf_err *err)
{
    const size_t length = strlen(path);
    if ((length || !folder) && cf_path_kind_of(path, length) != CF_PATH_PLAIN)
        return cf_fail(err, CF_L_PLAN, "plan:write: '%s' is no path within the output", path);
    if (cf_utf8_valid(path, length) < length)
        return cf_fail(err, CF_L_PLAN, "plan:write: '%s' is no path within the output", path);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return cf_fail(err, CF_L_PLAN, "plan:write: a path with control characters");
    if (cf_sink_reserved(path))
        return cf_fail(err, CF_L_PLAN, "plan:write: %s is written by ckptflow itself", path);
    for (size_t i = 0; i < plan->n_writes; i++)
        if (strcmp(plan->writes[i].path, path) == 0)
            return cf_fail(err, CF_L_PLAN, "plan:write: %s is written twice", path);
    return true;
}

/* Elements of rows that a tensor is made of. */
static void count_written(const cf_tensor *t)
{
    for (size_t i = 0; i < t->n_terms; i++)
        for (size_t k = 0; k < t->terms[i].count; k++) {
            const cf_tile *tile = &t->terms[i].tiles[k];
            if (tile->row && !cf_add(tile->row->written, tile->view->numel, &tile->row->written))
                tile->row->written = INT64_MAX;
        }
}

static const char *const *copy_texts(cf_arena *arena, const char *const *texts, size_t count)
{
    const char **copy = CF_NEWS(arena, const char *, count + 1);
    for (size_t i = 0; copy && i < count; i++)
        copy[i] = cf_strndup(arena, texts[i], strlen(texts[i]));
    return copy;
}

bool cf_plan_write(cf_plan *plan, const char *path, const cf_entry *entries, size_t count,
                   const cf_write_options *options, cf_err *err)
{
    const int w = writer_of(path, options->as);
    if (w < 0 && options->as)
        return cf_fail(err, CF_L_PLAN, "plan:write: no writer is called '%s'", options->as);
    if (w < 0) {
        cf_fail(err, CF_L_PLAN, "plan:write: no writer for '%s'", path);
        return cf_err_hint(err, "name one with as = \"safetensors\" or \"json\"");
    }
    const cf_writer writer = WRITERS[w].writer;
    const bool tensors_only = writer == CF_WRITE_SAFETENSORS || writer == CF_WRITE_NPY;
    const char *kind = writer == CF_WRITE_NPY ? "npy" : "safetensors";
    if (options->nest && writer != CF_WRITE_TORCH && writer != CF_WRITE_JSON)
        return cf_fail(err, CF_L_PLAN, "%s: the option 'nest' is for torch and JSON files", path);
    if (writer == CF_WRITE_NPY && count > 1)
        return cf_fail(err, CF_L_PLAN, "%s: an npy file holds one tensor, not %zu", path, count);
    if (!check_path(plan, path, WRITERS[w].writer == CF_WRITE_DCP, err)) return false;
    for (size_t i = 0; i < count; i++) {
        cf_row *row = entries[i].row;
        if (entries[i].tensor && writer == CF_WRITE_JSON)
            return cf_fail(err, CF_L_PLAN, "%s: JSON cannot hold the tensor %s", path,
                           entries[i].name);
        if (entries[i].value && tensors_only)
            return cf_fail(err, CF_L_PLAN, "%s: %s cannot hold the value %s", path, kind,
                           entries[i].name);
        if (!row && !entries[i].tensor) continue;
        if (!row) {
            count_written(entries[i].tensor);
            continue;
        }
        if (tensors_only && row->dtype == CF_NO_DTYPE)
            return cf_fail(err, CF_L_PLAN, "%s: %s cannot hold the value %s", path, kind, row->key);
        if (WRITERS[w].writer == CF_WRITE_JSON && row->dtype != CF_NO_DTYPE)
            return cf_fail(err, CF_L_PLAN, "%s: JSON cannot hold the tensor %s", path, row->key);
        row->used = true;
    }
    if (!count && WRITERS[w].writer != CF_WRITE_JSON) return true;
    cf_write *write = CF_PUSH(&plan->arena, plan->writes, plan->n_writes, plan->cap_writes);
    if (!write) return cf_arena_ok(&plan->arena, err);
    *write = (cf_write){.path = cf_strndup(&plan->arena, path, strlen(path)),
                        .writer = WRITERS[w].writer,
                        .entries = cf_memdup(&plan->arena, entries, count * sizeof *entries),
                        .count = count,
                        .options = *options};
    for (size_t i = 0; write->entries && i < count; i++) {
        cf_entry *e = &write->entries[i];
        e->name = cf_strndup(&plan->arena, e->name, strlen(e->name));
        if (e->value) e->value = cf_node_copy(&plan->arena, e->value);
        if (e->path && e->name)
            e->path = cf_path_copy(&plan->arena, e->path, entries[i].name, e->name);
    }
    write->options.meta = copy_texts(&plan->arena, options->meta, 2 * options->n_meta);
    write->options.keep_dtype = copy_texts(&plan->arena, options->keep_dtype, options->n_keep);
    if (!cf_arena_ok(&plan->arena, err)) return false;
    return write->writer != CF_WRITE_DCP || cf_dcp_begin(plan, write, err);
}

cf_held *cf_plan_held(const cf_plan *plan, size_t *count, int32_t *ranks)
{
    const cf_write *last = plan->n_writes ? &plan->writes[plan->n_writes - 1] : NULL;
    const bool dcp = last && last->dcp;
    *count = dcp ? last->dcp->count : 0;
    *ranks = dcp ? last->dcp->ranks : 0;
    return dcp ? last->dcp->held : NULL;
}

void cf_plan_drop(cf_plan *plan, cf_row *row)
{
    (void)plan;
    row->used = true;
}

bool cf_plan_copy(cf_plan *plan, const char *glob, cf_err *err)
{
    if (!cf_pattern_check(glob, err)) return false;
    cf_copy *copy = CF_PUSH(&plan->arena, plan->copies, plan->n_copies, plan->cap_copies);
    if (!copy) return cf_arena_ok(&plan->arena, err);
    copy->glob = cf_strndup(&plan->arena, glob, strlen(glob));
    return cf_arena_ok(&plan->arena, err);
}

bool cf_plan_finish(cf_plan *plan, cf_err *err)
{
    for (size_t i = 0; i < plan->cat->count; i++) {
        const cf_row *row = plan->cat->rows[i];
        if (row->used || row->alias) continue;
        const bool tensor = row->dtype != CF_NO_DTYPE;
        if (tensor && row->written >= row->numel) continue;
        if (tensor && row->written) {
            cf_fail(err, CF_L_PLAN, "%lld of %lld elements of %s are neither written nor dropped",
                    (long long)(row->numel - row->written), (long long)row->numel, row->key);
            return cf_err_hint(err, "plan:drop(row, why) if that is meant");
        }
        cf_fail(err, CF_L_PLAN, "%s is neither written nor dropped", row->key);
        return cf_err_hint(err, "plan:drop(cat:match(\"%s\"), why) if that is meant", row->key);
    }
    return true;
}
