/* Recipes: their options, and the one call of `plan`.
 */
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "join.h"

static const char RECIPE[] = "recipe"; /* in the registry */

static const char *const type_names[] = {"string", "number",     "boolean",
                                         "policy", "checkpoint", NULL};

static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

/* ---- loading: what options there are */

static int load_table(lua_State *L, const cf_script *script)
{
    cf_load_table(L, script);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, RECIPE);
    return 0;
}

static const char *keep(lua_State *L, cf_recipe *recipe, int index)
{
    size_t length;
    const char *text = luaL_tolstring(L, index, &length);
    const char *kept = cf_strndup(&recipe->arena, text, length);
    lua_pop(L, 1);
    return kept;
}

static cf_option_type type_of_default(lua_State *L, const char *name)
{
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN: return CF_OPT_BOOLEAN;
    case LUA_TNUMBER: return CF_OPT_NUMBER;
    case LUA_TSTRING: return CF_OPT_STRING;
    default:
        return (cf_option_type)luaL_error(L,
                                          "the option '%s' is a %s: a default, or "
                                          "{ type =, default =, many =, about = }",
                                          name, luaL_typename(L, -1));
    }
}

/* The table at the top as an option. */
static void long_option(lua_State *L, cf_recipe *recipe, cf_option *option)
{
    static const char *const fields[] = {"type", "default", "many", "about", NULL};
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *field = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        if (find_name(fields, field) < 0)
            luaL_error(L, "the option '%s' has no field '%s'%s", option->name, field,
                       cf_push_guess(L, field, fields));
    }
    if (lua_getfield(L, -1, "about") != LUA_TNIL) option->about = keep(L, recipe, -1);
    lua_getfield(L, -2, "many");
    option->many = lua_toboolean(L, -1);
    const bool typed = lua_getfield(L, -3, "type") == LUA_TSTRING;
    const int type = typed ? find_name(type_names, lua_tostring(L, -1)) : -1;
    if (typed && type < 0) {
        const char *given = lua_tostring(L, -1);
        luaL_error(L, "%s: the option '%s' is of no type '%s'%s", recipe->script->origin,
                   option->name, given, cf_push_guess(L, given, type_names));
    }
    lua_getfield(L, -4, "default");
    option->type = typed ? (cf_option_type)type : type_of_default(L, option->name);
    /* a checkpoint that is not given is `false` in many recipes */
    if (!lua_isnil(L, -1) && !(option->type == CF_OPT_CHECKPOINT && !lua_toboolean(L, -1)))
        option->fallback = keep(L, recipe, -1);
    lua_pop(L, 4);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cf_option *)a)->name, ((const cf_option *)b)->name);
}

static int learn_job(lua_State *L)
{
    cf_recipe *recipe = lua_touserdata(L, 1);
    load_table(L, recipe->script);
    lua_getfield(L, -1, "about");
    recipe->about = keep(L, recipe, -1);
    lua_getfield(L, -2, "pieces");
    recipe->pieces = lua_toboolean(L, -1);
    lua_getfield(L, -3, "options");
    if (lua_isnil(L, -1)) return 0;
    size_t cap = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) return luaL_error(L, "an option has no name");
        cf_option *option = CF_PUSH(&recipe->arena, recipe->options, recipe->n_options, cap);
        if (!option) return 0;
        *option = (cf_option){.name = keep(L, recipe, -2)};
        if (!option->name) return 0;
        if (lua_istable(L, -1)) {
            long_option(L, recipe, option);
        } else {
            option->type = type_of_default(L, option->name);
            option->fallback = keep(L, recipe, -1);
        }
    }
    if (recipe->n_options > 1)
        qsort(recipe->options, recipe->n_options, sizeof *recipe->options, by_name);
    return 0;
}

bool cf_recipe_load(cf_recipe *recipe, cf_scripts *scripts, const char *name, cf_err *err)
{
    *recipe = (cf_recipe){0};
    cf_arena_init(&recipe->arena, 0);
    cf_host host = {0};
    recipe->script = cf_script_named(scripts, &recipe->arena, CF_RECIPE, name, err);
    bool ok = recipe->script && cf_host_start(&host, scripts, NULL, err);
    if (ok) {
        ok = cf_host_run(&host, learn_job, recipe, err) && cf_arena_ok(&recipe->arena, err);
        cf_host_stop(&host);
    }
    if (!ok) cf_recipe_free(recipe);
    return ok;
}

void cf_recipe_free(cf_recipe *recipe)
{
    cf_arena_free(&recipe->arena);
    *recipe = (cf_recipe){0};
}

/* ---- running: options as Lua values */

typedef struct run {
    const cf_recipe *recipe;
    cf_catalogue *cat;
    const cf_given *given;
    size_t n_given;
    uint32_t n_inputs;
} run;

/* Reads another checkpoint, with the format that is found; number: of its root. */
static bool read_other(cf_host *host, const char *const *path, uint32_t root, cf_other **out,
                       cf_err *err)
{
    cf_plan *plan = host->plan;
    cf_source *first = plan->cat->source;
    cf_other *o = CF_NEW(&plan->arena, cf_other);
    if (!o) return cf_arena_ok(&plan->arena, err);
    const bool opened = cf_source_open(&o->source, path, 1, first->inert, err);
    cf_catalogue_init(&o->cat, &o->source);
    o->next = plan->others;
    plan->others = o;
    o->cat.values = plan->cat->values;
    bool ok = opened && cf_host_read((cf_scripts *)host->scripts, &o->source, NULL,
                                     plan->threads ? plan->threads : 1, &o->cat, err);
    cf_text_add(&plan->notes, o->source.notes.at, o->source.notes.size);
    cf_text_add(&plan->notes, o->cat.notes.at, o->cat.notes.size);
    *out = o;
    if (ok) return cf_join(first, &o->source, &o->cat, root, err);
    if (!err->hint[0]) cf_err_set_hint(err, "that is of the checkpoint %s", *path);
    return false;
}

/* The roots of the command line are its checkpoints, then those of options, as they came. */
static uint32_t root_of(const run *r, size_t given)
{
    uint32_t root = r->n_inputs;
    for (size_t i = 0; i < given; i++)
        for (size_t k = 0; k < r->recipe->n_options; k++)
            root += r->recipe->options[k].type == CF_OPT_CHECKPOINT &&
                    strcmp(r->recipe->options[k].name, r->given[i].name) == 0;
    return root;
}

static void push_checkpoint(lua_State *L, const run *r, size_t given)
{
    cf_err err;
    cf_other *other = NULL;
    const int64_t paused = cf_host_pause();
    const bool ok =
        read_other(cf_host_of(L), &r->given[given].value, root_of(r, given), &other, &err);
    cf_host_resume(cf_host_of(L), paused);
    if (!ok) cf_raise(L, &err);
    cf_host_of(L)->rows += other->cat.count;
    cf_push_catalogue(L, &other->cat);
}

static void push_option(lua_State *L, const cf_option *option, const char *value)
{
    switch (option->type) {
    case CF_OPT_STRING: lua_pushstring(L, value); return;
    case CF_OPT_NUMBER:
        if (lua_stringtonumber(L, value)) return;
        break;
    case CF_OPT_BOOLEAN:
        if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
            lua_pushboolean(L, value[0] == 't');
            return;
        }
        break;
    case CF_OPT_POLICY: cf_push_policy(L, value); return;
    case CF_OPT_CHECKPOINT: break; /* a default is no checkpoint */
    }
    cf_raise_code(L, CF_E_USAGE, "the option '%s' takes a %s, not '%s'", option->name,
                  type_names[option->type], value);
}

/* Pushes the value of one option: what was given, else the default. */
static void push_value(lua_State *L, const run *r, const cf_option *option)
{
    lua_Integer count = 0;
    if (option->many) lua_newtable(L);
    for (size_t i = 0; i < r->n_given; i++) {
        if (strcmp(r->given[i].name, option->name) != 0) continue;
        if (count++ && !option->many)
            cf_raise_code(L, CF_E_USAGE, "the option '%s' is given twice", option->name);
        if (option->type == CF_OPT_CHECKPOINT)
            push_checkpoint(L, r, i);
        else
            push_option(L, option, r->given[i].value);
        if (option->many) lua_rawseti(L, -2, count);
    }
    if (count > 0) return;
    if (option->fallback) {
        push_option(L, option, option->fallback);
        if (option->many) lua_rawseti(L, -2, 1);
    } else if (!option->many) {
        option->type == CF_OPT_CHECKPOINT ? lua_pushboolean(L, false) : lua_pushnil(L);
    }
}

static void check_given(lua_State *L, const run *r)
{
    const cf_recipe *recipe = r->recipe;
    const char **names = lua_newuserdatauv(L, (recipe->n_options + 1) * sizeof *names, 0);
    for (size_t i = 0; i < recipe->n_options; i++) names[i] = recipe->options[i].name;
    names[recipe->n_options] = NULL;
    for (size_t i = 0; i < r->n_given; i++) {
        const char *name = r->given[i].name;
        if (find_name(names, name) < 0)
            cf_raise_code(L, CF_E_USAGE, "the recipe %s has no option '%s'%s", recipe->script->name,
                          name, cf_push_guess(L, name, names));
    }
    lua_pop(L, 1);
}

static int plan_job(lua_State *L)
{
    const run *r = lua_touserdata(L, 1);
    check_given(L, r);
    load_table(L, r->recipe->script);
    lua_getfield(L, -1, "plan");
    cf_push_catalogue(L, r->cat);
    cf_push_plan(L);
    lua_newtable(L);
    for (size_t i = 0; i < r->recipe->n_options; i++) {
        push_value(L, r, &r->recipe->options[i]);
        lua_setfield(L, -2, r->recipe->options[i].name);
    }
    lua_call(L, 3, 0);
    return 0;
}

/* Bytes for what a recipe makes of views: a few lines of it can put a tensor together with itself
 * until there are a billion pieces. */
static size_t most_views(const cf_catalogue *cat)
{
    enum { ROW = 8 << 10, PIECE = 2 << 10 };
    size_t pieces = 0;
    for (size_t i = 0; i < cat->count; i++) pieces += cat->rows[i]->n_pieces;
    return CF_SCRIPT_MOST_MEMORY + ROW * cat->count + PIECE * pieces;
}

bool cf_recipe_plan(const cf_recipe *recipe, cf_scripts *scripts, cf_catalogue *cat, cf_plan *plan,
                    const cf_given *given, size_t n_given, cf_err *err)
{
    cf_host host;
    CF_TRY(cf_host_start(&host, scripts, cat->source, err));
    host.plan = plan;
    host.rows = cat->count;
    run r = {recipe, cat, given, n_given, (uint32_t)cat->source->dir.n_roots};
    plan->arena.limit = plan->arena.held + most_views(cat);
    bool ok = cf_host_run(&host, plan_job, &r, err);
    plan->arena.limit = 0;
    if (plan->arena.over)
        ok = cf_fail(err, CF_L_LIMIT_MEM, "the views and entries of a plan take more than %zu MiB",
                     most_views(cat) >> 20);
    cf_host_stop(&host);
    return ok;
}
