/* The Lua host: asks a format plugin what the files mean, and a recipe what shall come out.
 *
 * The only door between flow/ and Lua. Each call makes its Lua states and closes them; nothing of
 * Lua outlives it. Scripts see the environment of DESIGN.md ("What Lua looks like") and the handles
 * of API.md, one file of this room per handle type.
 */
#ifndef CF_HOST_H
#define CF_HOST_H

#include "holders.h"
#include "plan.h"
#include "scripts.h"

/* Detects the format (name NULL) or takes the named one, reads every file it lists (on `threads`
 * threads, each with a Lua state of its own; parts are merged in the order of the files) and
 * finishes the catalogue. E_MAGIC with the best guesses, E_FORMAT_TIE, and what plugins raise. */
bool cf_host_read(cf_scripts *scripts, cf_source *source, const char *format, int threads,
                  cf_catalogue *cat, cf_err *err);

/* In a process of its own: a script that is over its time inside one call of the Lua library, where
 * nothing can stop it, ends the process with this exit status. Uses SIGVTALRM. */
void cf_host_watch(int status);

typedef enum cf_option_type {
    CF_OPT_STRING,
    CF_OPT_NUMBER,
    CF_OPT_BOOLEAN,
    CF_OPT_POLICY,
    CF_OPT_CHECKPOINT
} cf_option_type;

typedef struct cf_option {
    const char *name; /* as in Lua: max_shard_size; on the command line --max-shard-size */
    cf_option_type type;
    bool many;
    const char *fallback; /* the default as text, NULL: none */
    const char *about;
} cf_option;

typedef struct cf_given {
    const char *name, *value; /* as in Lua: underscores; a flag's value is "true" */
} cf_given;

typedef struct cf_recipe {
    cf_arena arena;
    const cf_script *script;
    const char *about;
    bool pieces;        /* it writes pieces: with --only-rank they keep their places in the whole */
    cf_option *options; /* by name */
    size_t n_options;
} cf_recipe;

/* name: "unshard", "unshard.lua", or a path with "/". Loads it once to learn its options. Not
 * found: E_USAGE with the names there are and "did you mean". Which names its options may not have
 * is the affair of whoever has options of its own. */
bool cf_recipe_load(cf_recipe *recipe, cf_scripts *scripts, const char *name, cf_err *err);
void cf_recipe_free(cf_recipe *recipe);

/* Runs its `plan` with the options given; fills plan (cf_plan_init was called), does not finish it.
 * E_USAGE for an unknown option or a value of the wrong type. */
bool cf_recipe_plan(const cf_recipe *recipe, cf_scripts *scripts, cf_catalogue *cat, cf_plan *plan,
                    const cf_given *given, size_t n_given, cf_err *err);

/* Asks a policy (a name, or a file) who keeps each item: fills their keepers, and what each of the
 * ranks then carries, by the policy's weights (load may be NULL). E_USAGE: no such policy; L_PLAN:
 * an answer that is no holder of the item, a weight that is none. */
bool cf_policy_place(const cf_scripts *scripts, const char *name, cf_held *items, size_t count,
                     int32_t ranks, double *load, cf_err *err);

#endif
