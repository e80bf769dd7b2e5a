/* What the child does: nothing here writes anywhere but to the text that it hands back. */
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "layout.h"
#include "losses.h"
#include "print.h"
#include "verbs.h"

/* ---- a recipe's options ---- */

/* A line each: name, type, many, default, about; the last three may be empty. The recipe's own
 * about is the first line. Tabs and newlines in texts become spaces. */
static void add_field(cf_text *out, const char *text)
{
    cf_text_str(out, "\t");
    for (; text && *text; text++) cf_text_add(out, *text == '\t' || *text == '\n' ? " " : text, 1);
}

bool cf_job_options(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    (void)notes;
    const cf_ask *ask = ctx;
    cf_scripts scripts;
    cf_recipe recipe;
    if (!cf_scripts_find(&scripts, ask->plugins, ask->n_plugins, err) ||
        !cf_recipe_load(&recipe, &scripts, ask->recipe, err))
        return false;
    add_field(out, recipe.about);
    cf_text_str(out, "\n");
    for (size_t i = 0; i < recipe.n_options; i++) {
        const cf_option *o = &recipe.options[i];
        if (cf_options_taken(o->name))
            return cf_fail(err, CF_L_ERROR, "%s: the option '%s' is one of ckptflow's own",
                           recipe.script->origin, o->name);
        cf_text_printf(out, "%s\t%d\t%d", o->name, (int)o->type, o->many);
        cf_text_printf(out, "\t%d", o->fallback != NULL);
        add_field(out, o->fallback);
        add_field(out, o->about);
        cf_text_str(out, "\n");
    }
    return cf_text_ok(out, err);
}

/* The next field of a line, NUL-terminated in place. */
static char *field(char **line)
{
    char *at = *line;
    const size_t n = strcspn(at, "\t");
    *line = at + n + (at[n] == '\t');
    at[n] = '\0';
    return at;
}

bool cf_options_decode(const cf_reply *reply, cf_arena *arena, cf_option **options, size_t *count,
                       const char **about, cf_err *err)
{
    char *text = cf_strndup(arena, reply->bytes, reply->size);
    size_t lines = 0;
    for (char *p = text; p && *p; p++) lines += *p == '\n';
    *options = CF_NEWS(arena, cf_option, lines + 1);
    *count = 0;
    *about = "";
    if (!cf_arena_ok(arena, err)) return false;
    for (char *next = text, *line; *next;) {
        line = next;
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = '\0';
        if (line == text) {
            *about = line + 1;
            continue;
        }
        cf_option *o = &(*options)[(*count)++];
        o->name = field(&line);
        const int type = atoi(field(&line));
        o->type = type < 0 || type > CF_OPT_CHECKPOINT ? CF_OPT_STRING : (cf_option_type)type;
        o->many = atoi(field(&line)) != 0;
        const bool has = atoi(field(&line)) != 0;
        const char *fallback = field(&line);
        o->fallback = has ? fallback : NULL;
        o->about = field(&line);
        if (!*o->about) o->about = NULL;
    }
    return true;
}

/* ---- a plan ---- */

bool cf_open_inputs(const cf_options *o, cf_source *source, cf_err *err)
{
    return cf_source_open(source, o->inputs, o->n_inputs, o->inert, err);
}

cf_filter cf_options_filter(const cf_options *o)
{
    return (cf_filter){.include = o->include.list,
                       .n_include = o->include.count,
                       .included = o->include.fits,
                       .exclude = o->exclude.list,
                       .n_exclude = o->exclude.count,
                       .excluded = o->exclude.fits,
                       .rename = o->rename.list,
                       .n_rename = o->rename.count};
}

/* pieces: for a recipe that writes them */
static bool read_opened(const cf_options *o, bool pieces, cf_scripts *scripts, cf_source *source,
                        cf_catalogue *cat, cf_err *err)
{
    const cf_filter filter = cf_options_filter(o);
    cf_catalogue_init(cat, source);
    cat->values = o->values;
    cat->only_rank = o->only_rank;
    cat->in_part = pieces;
    cat->damage = o->damage;
    return cf_host_read(scripts, source, o->format, o->threads, cat, err) &&
           cf_catalogue_filter(cat, &filter, err);
}

bool cf_read_opened(const cf_options *o, cf_scripts *scripts, cf_source *source, cf_catalogue *cat,
                    cf_err *err)
{
    return read_opened(o, false, scripts, source, cat, err);
}

bool cf_read_inputs(const cf_options *o, cf_scripts *scripts, cf_source *source, cf_catalogue *cat,
                    cf_err *err)
{
    return cf_open_inputs(o, source, err) && cf_read_opened(o, scripts, source, cat, err);
}

static cf_ref text_of(cf_blocker *b, const char *text)
{
    return cf_blocker_text(b, text ? text : "", text ? strlen(text) : 0);
}

void cf_block_texts(cf_blocker *b, const cf_text *notes, const char *recipe, const char *format,
                    const char *why)
{
    b->text[CF_B_NOTES] = text_of(b, notes->at);
    b->text[CF_B_RECIPE] = text_of(b, recipe);
    b->text[CF_B_FORMAT] = text_of(b, format);
    b->text[CF_B_WHY] = text_of(b, why);
}

/* All that a plan is made from; the process ends, and nothing small is freed. */
typedef struct planning {
    cf_scripts scripts;
    cf_source source;
    cf_catalogue cat;
    cf_recipe recipe;
    cf_plan plan;
    cf_faults faults; /* --salvage */
    cf_text missing;
} planning;

/* With --salvage faults of the input are collected, and what they are about is left out. */
static bool read_for_plan(const cf_options *o, planning *p, cf_err *err)
{
    if (!cf_open_inputs(o, &p->source, err)) return false;
    cf_faults_init(&p->faults);
    if (o->salvage) p->source.faults = &p->faults;
    p->source.salvage = o->salvage;
    const bool ok = read_opened(o, p->recipe.pieces, &p->scripts, &p->source, &p->cat, err) &&
                    (!o->salvage || cf_losses_drop(&p->cat, &p->missing, err));
    p->source.faults = NULL;
    return ok;
}

static bool make_plan(const cf_options *o, planning *p, cf_blocker *b, cf_err *err)
{
    if (!cf_scripts_find(&p->scripts, o->plugins.list, o->plugins.count, err) ||
        !cf_recipe_load(&p->recipe, &p->scripts, o->recipe, err) || !read_for_plan(o, p, err))
        return false;
    cf_plan_init(&p->plan, &p->cat);
    cf_mesh *mesh = o->mesh ? CF_NEW(&p->plan.arena, cf_mesh) : NULL;
    if (mesh && !cf_mesh_parse(mesh, o->mesh, err)) return false;
    p->plan.mesh = mesh;
    p->plan.threads = o->threads;
    p->plan.replicas = o->replicas;
    p->plan.dtype = o->dtype;
    p->plan.keep_dtype = o->keep_dtype.list;
    p->plan.n_keep = o->keep_dtype.count;
    return cf_recipe_plan(&p->recipe, &p->scripts, &p->cat, &p->plan, o->given, o->n_given, err) &&
           cf_plan_finish(&p->plan, err) && cf_plan_layout(&p->plan, b, err);
}

bool cf_job_plan(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    static planning p; /* notes of what was not reached are empty */
    cf_blocker b = {0};
    const bool ok = make_plan(ctx, &p, &b, err);
    const cf_text *all[] = {&p.scripts.notes, &p.source.notes, &p.cat.notes, &p.plan.notes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cf_text_add(notes, all[i]->at, all[i]->size);
    if (!ok) cf_text_add(out, p.cat.losses.at, p.cat.losses.size);
    if (!ok) return false;
    cf_block_texts(&b, notes, p.recipe.script->name, p.cat.format, p.cat.why);
    b.text[CF_B_MISSING] = text_of(&b, p.missing.at);
    cf_catalogue_free(&p.cat); /* the sections hold what counts, and are about to be copied */
    return cf_blocker_finish(&b, out, err);
}
