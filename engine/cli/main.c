/* ckptflow: argv in, exit code out. Each verb has a file of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "signals.h"
#include "verbs.h"

typedef struct verb {
    const char *name, *usage, *about;
    cf_verb *go;          /* NULL: of the contract, not in this version */
    const cf_option *own; /* ends with one without a name; NULL: none */
} verb;

static const verb VERBS[] = {
    {"run", "RECIPE CKPT... [-o OUT]", "do what the recipe says", cf_verb_run, NULL},
    {"plan", "RECIPE CKPT... [-o FILE]", "the same, priced; nothing is written", cf_verb_plan,
     NULL},
    {"inspect", "CKPT [PATTERN...]", "what is in it: format and why, ranks, tree, sizes",
     cf_verb_inspect, NULL},
    {"verify", "CKPT [--quick | --sample 5%]",
     "is it whole and sound; exit 1 and all faults if not", cf_verb_verify, NULL},
    {"diff", "A B [--tol X]", "names, shapes, dtypes and values of both; exit 1 if they differ",
     cf_verb_diff, NULL},
    {"reads", "CKPT [--policy P]...", "which rank must read which file, before and after a policy",
     cf_verb_reads, cf_reads_options},
    {"place", "--policy NAME|FILE",
     "a policy as a filter: items and holders in, keepers out (JSON)", cf_verb_place,
     cf_place_options},
    {"plugins", "[--print NAME]", "formats, policies, recipes and where they come from",
     cf_verb_plugins, NULL},
    {"version", "", "the version", cf_verb_version, NULL},
    {.name = "report"},
    {.name = "new"},
    {.name = "test"},
    {.name = "doctor"},
    {.name = "demo"},
    {.name = "completion"},
};

enum { N_VERBS = sizeof VERBS / sizeof *VERBS };

bool cf_verb_version(const cf_options *o, cf_err *err)
{
    cf_text text = {0};
    cf_text_printf(&text,
                   o->json ? "{\"schema\":\"ckptflow.version/1\",\"version\":\"%s\",\"api\":1}\n"
                           : "ckptflow %s (plugin api 1)\n",
                   CF_VERSION);
    const bool ok = cf_print_out(&text, err);
    cf_text_free(&text);
    return ok;
}

static bool help(const verb *v, const cf_option *own, size_t n_own, const char *about, cf_err *err)
{
    cf_text text = {0};
    if (v) {
        cf_text_printf(&text, "usage: ckptflow %s %s\n\n", v->name, v->usage);
        cf_text_printf(&text, "%s\n", *about ? about : v->about);
        cf_options_help(&text, own, n_own);
    } else {
        cf_text_str(&text,
                    "ckptflow joins, converts and looks into sharded checkpoints.\n\nusage:\n");
        for (int i = 0; i < N_VERBS; i++)
            if (VERBS[i].go)
                cf_text_printf(&text, "  ckptflow %-8s %-26s %s\n", VERBS[i].name, VERBS[i].usage,
                               VERBS[i].about);
        cf_text_str(&text, "\nckptflow VERB --help tells the options of a verb, ckptflow run "
                           "RECIPE --help a recipe's too.\n");
    }
    const bool ok = cf_print_out(&text, err);
    cf_text_free(&text);
    return ok;
}

static bool find_verb(const char *name, const verb **found, cf_err *err)
{
    const char *best = NULL;
    int least = 3;
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(VERBS[i].name, name) == 0) {
            *found = &VERBS[i];
            return VERBS[i].go ? true : cf_fail(err, CF_E_USAGE, "%s is not in this version", name);
        }
        const int d = cf_text_distance(name, VERBS[i].name);
        if (d < least) {
            least = d;
            best = VERBS[i].name;
        }
    }
    cf_fail(err, CF_E_USAGE, "there is no verb %s", name);
    return best ? cf_err_hint(err, "did you mean %s?", best)
                : cf_err_hint(err, "ckptflow help lists them");
}

/* run and plan take the options of their recipe too: a child reads them. */
static bool ask_recipe(int argc, char **argv, cf_arena *arena, cf_option **own, size_t *n_own,
                       const char **about, cf_err *err)
{
    cf_ask ask = {.recipe = cf_options_recipe(argc, argv)};
    if (!ask.recipe) return true;
    bool free = false;
    const char **plugins = CF_NEWS(arena, const char *, (size_t)argc);
    for (int i = 2; plugins && i < argc; i++) {
        if (strcmp(argv[i], "--plugin") == 0 && i + 1 < argc)
            plugins[ask.n_plugins++] = argv[i + 1];
        if (strncmp(argv[i], "--plugin=", 9) == 0) plugins[ask.n_plugins++] = argv[i] + 9;
        free |= strcmp(argv[i], "--no-confine") == 0;
    }
    ask.plugins = plugins;
    const cf_options o = {.recipe = ask.recipe,
                          .plugins = {.list = plugins, .count = ask.n_plugins},
                          .quiet = true,
                          .no_confine = free};
    cf_reply reply;
    if (!cf_arena_ok(arena, err) || !cf_child_run(cf_job_options, &ask, &o, &reply, err))
        return false;
    const bool ok = cf_options_decode(&reply, arena, own, n_own, about, err);
    cf_reply_free(&reply);
    return ok;
}

static bool go(int argc, char **argv, cf_err *err)
{
    const verb *v;
    const char *name = argc > 1 ? argv[1] : "help", *about = "";
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(NULL, NULL, 0, "", err);
    if (strcmp(name, "--version") == 0) name = "version";
    if (!find_verb(name, &v, err)) return false;
    cf_arena arena;
    cf_arena_init(&arena, 0);
    cf_option *own = NULL;
    size_t n_own = 0;
    cf_options o = {0};
    bool ok = true;
    if (v->go == cf_verb_run || v->go == cf_verb_plan)
        ok = ask_recipe(argc, argv, &arena, &own, &n_own, &about, err);
    for (; v->own && v->own[n_own].name; n_own++) own = (cf_option *)v->own;
    ok = ok && cf_options_parse(&o, argc, argv, own, n_own, err);
    cf_follow_links = o.follow_links;
    cf_print_in_color(o.color);
    if (ok && o.help)
        ok = help(v, own, n_own, about, err);
    else if (ok && (v->go == cf_verb_run || v->go == cf_verb_plan) && !o.recipe)
        ok = cf_fail(err, CF_E_USAGE, "%s needs a recipe and a checkpoint", name);
    else if (ok) /* run looks at its output first, and unpacks beside it */
        ok = (v->go == cf_verb_run || cf_unpack_inputs(&o, NULL, err)) && v->go(&o, err);
    cf_options_free(&o);
    cf_arena_free(&arena);
    return ok;
}

int main(int argc, char **argv)
{
    cf_err err = {0};
    cf_signals_catch();
    if (go(argc, argv, &err)) return cf_verb_status;
    bool json = false;
    for (int i = 1; i < argc; i++) json |= strcmp(argv[i], "--json") == 0;
    const int status = err.code == CF_E_INTERRUPTED ? cf_signals_exit()
                       : err.resumable              ? 75
                                                    : cf_code_exit(err.code);
    cf_print_error(&err, status, json);
    return status;
}
