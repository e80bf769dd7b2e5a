/* The command line: one table of the host's options, from which parsing, help and the check of
 * recipes' options come. Recipes add their own (host.h). */
#ifndef CF_OPTIONS_H
#define CF_OPTIONS_H

#include "catalogue.h"
#include "host.h"
#include "means.h"
#include "print.h"
#include "windows.h"

typedef enum cf_show {
    CF_SHOW_AUTO,
    CF_SHOW_BAR,
    CF_SHOW_PLAIN,
    CF_SHOW_JSON,
    CF_SHOW_NONE
} cf_show;

/* What an option gave that may be given several times. */
typedef struct cf_words {
    const char *const *list;
    int count;
    bool *fits; /* diff: globs that fit a key on one side at least; NULL elsewhere */
} cf_words;

typedef struct cf_options {
    const char *verb;
    const char *recipe;        /* of run and plan */
    const char *const *inputs; /* CKPTs, or what else a verb takes */
    int n_inputs;
    int n_roots;     /* of inputs and, behind them in the list, checkpoints of a recipe's options */
    const char *out; /* -o */
    int threads;
    uint64_t max_mem; /* bytes, of buffers */
    cf_io io;
    int32_t only_rank; /* -1: all */
    cf_share share;    /* --rank; of 0: not given */
    bool overwrite, json, fsync, verify, follow_links, no_confine, inert, salvage, quiet, verbose,
        help, pieces, quick;
    const char *format, *print, *mesh, *sample, *tol;
    cf_words plugins, include, exclude, rename, keep_dtype;
    cf_dtype dtype; /* CF_NO_DTYPE: as they are */
    cf_replicas replicas;
    cf_values values;
    cf_show progress;
    cf_color color;
    const struct cf_damage *damage; /* that an earlier try of this run found; NULL: none */
    const cf_given *given;          /* of the recipe */
    size_t n_given;
    cf_arena arena;
} cf_options;

/* Parses what follows the verb. recipe_options: of the recipe, NULL for verbs without one. E_USAGE
 * with "did you mean". */
bool cf_options_parse(cf_options *o, int argc, char **argv, const cf_option *recipe_options,
                      size_t n_recipe, cf_err *err);
void cf_options_free(cf_options *o);

/* What the option `name` of a recipe or verb was given the number-th time; NULL: not so often. */
const char *cf_given_value(const cf_options *o, const char *name, size_t number);

/* The recipe's name among the arguments of run and plan, without parsing the rest; NULL. */
const char *cf_options_recipe(int argc, char **argv);

/* A name that the host itself uses: a recipe may not. */
bool cf_options_taken(const char *name);

void cf_options_help(cf_text *out, const cf_option *recipe_options, size_t n_recipe);

/* Cores this process may use, by affinity, cgroup and SLURM, at most 4. */
int cf_default_threads(void);

#endif
