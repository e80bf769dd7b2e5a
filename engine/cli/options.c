#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"

typedef enum kind {
    FLAG,
    TEXT,
    LIST,
    COUNT,
    DTYPE,
    WORD, /* one of those in `value`; its number */
    SIZE,
    RANK,
    SHARE
} kind;

typedef struct host_option {
    const char *name; /* without the dashes */
    char letter;
    kind kind;
    size_t at; /* in cf_options */
    const char *value, *about;
} host_option;

#define AT(field) offsetof(cf_options, field)

static const host_option OPTIONS[] = {
    {"out", 'o', TEXT, AT(out), "OUT", "folder to write, or file of `plan`"},
    {"jobs", 'j', COUNT, AT(threads), "N", "threads (default: the cores it may use, at most 4)"},
    {"overwrite", 0, FLAG, AT(overwrite), NULL, "replace OUT whole, at the end"},
    {"json", 0, FLAG, AT(json), NULL, "JSON on stdout, errors as JSON on stderr"},
    {"format", 0, TEXT, AT(format), "NAME", "the format plugin to use"},
    {"plugin", 0, LIST, AT(plugins), "FILE", "a plugin file; may be given several times"},
    {"include", 0, LIST, AT(include), "GLOB", "only keys that fit; several: any of them"},
    {"exclude", 0, LIST, AT(exclude), "GLOB", "no keys that fit"},
    {"rename", 0, LIST, AT(rename), "OLD=NEW", "other keys; one * is carried from OLD to NEW"},
    {"dtype", 0, DTYPE, AT(dtype), "T", "cast floating point tensors: BF16, F16, F32 ..."},
    {"keep-dtype", 0, LIST, AT(keep_dtype), "GLOB", "keys that --dtype leaves as they are"},
    {"replicas", 0, WORD, AT(replicas), "auto|compare|trust", "how copies are compared"},
    {"values", 0, WORD, AT(values), "rank0|per-rank|strict", "values that differ between ranks"},
    {"max-mem", 0, SIZE, AT(max_mem), "SIZE", "memory for buffers (default: 64 MiB)"},
    {"only-rank", 0, RANK, AT(only_rank), "N", "what rank N holds, as it holds it, and no more"},
    {"rank", 0, SHARE, AT(share), "R/N",
     "share R of N of one run: each in a process, the last seals"},
    {"io", 0, WORD, AT(io), "auto|pread|mmap|direct", "how the shards are read"},
    {"fsync", 0, FLAG, AT(fsync), NULL, "sync files and folders around the rename"},
    {"verify", 0, FLAG, AT(verify), NULL, "read back from the disk what was written"},
    {"follow-links", 0, FLAG, AT(follow_links), NULL, "follow links that lead out of CKPT"},
    {"no-confine", 0, FLAG, AT(no_confine), NULL, "plan without Landlock and seccomp: debuggers"},
    {"salvage", 0, FLAG, AT(salvage), NULL, "write what is whole of a damaged checkpoint"},
    {"inert", 0, FLAG, AT(inert), NULL, "read files that name forbidden globals, as inert data"},
    {"progress", 0, WORD, AT(progress), "auto|bar|plain|json|none", "how progress is shown"},
    {"color", 0, WORD, AT(color), "auto|always|never", "of errors and notes"},
    {"mesh", 0, TEXT, AT(mesh), "M", "how ranks lie, outermost first: replicate=2,shard=4"},
    {"pieces", 0, FLAG, AT(pieces), NULL,
     "inspect: where each tensor's pieces lie; reads: each item"},
    {"quick", 0, FLAG, AT(quick), NULL, "verify: metadata only, no tensor is read"},
    {"sample", 0, TEXT, AT(sample), "5%|N/M", "verify: so much of it, or part N of M"},
    {"tol", 0, TEXT, AT(tol), "X|X%|Nulp", "diff: so far apart is the same; |a - b| <= X"},
    {"print", 0, TEXT, AT(print), "NAME", "plugins: the text of one"},
    {"quiet", 'q', FLAG, AT(quiet), NULL, "no notes"},
    {"verbose", 'v', FLAG, AT(verbose), NULL, "more notes"},
    {"help", 'h', FLAG, AT(help), NULL, "this"},
};

enum { N_OPTIONS = sizeof OPTIONS / sizeof *OPTIONS };

/* The number of `value` among words with "|" between them; -1. */
static int word(const char *words, const char *value)
{
    const size_t length = strlen(value);
    for (int i = 0;; i++) {
        const size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, value, n) == 0) return i;
        if (!words[n]) return -1;
        words += n + 1;
    }
}

/* Does `given`, with dashes, spell the Lua name with underscores? */
static bool spells(const char *name, const char *given, size_t length)
{
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (given[i] == '-' ? '_' : given[i])) return false;
    return true;
}

static const host_option *find_host(const char *name, size_t length)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (strlen(OPTIONS[i].name) == length && memcmp(OPTIONS[i].name, name, length) == 0)
            return &OPTIONS[i];
    return NULL;
}

bool cf_options_taken(const char *name)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (spells(name, OPTIONS[i].name, strlen(OPTIONS[i].name))) return true;
    return false;
}

static bool unknown(const char *arg, size_t length, const cf_option *own, size_t n_own, cf_err *err)
{
    char name[64], best[64] = "", dashed[64];
    int least = 3;
    snprintf(name, sizeof name, "%.*s", (int)length, arg);
    for (size_t i = 0; i < N_OPTIONS + n_own; i++) {
        snprintf(dashed, sizeof dashed, "%s",
                 i < N_OPTIONS ? OPTIONS[i].name : own[i - N_OPTIONS].name);
        for (char *c = dashed; *c; c++)
            if (*c == '_') *c = '-';
        const int d = cf_text_distance(name, dashed);
        if (d < least) {
            least = d;
            memcpy(best, dashed, sizeof best);
        }
    }
    cf_fail(err, CF_E_USAGE, "there is no option --%s", name);
    if (best[0]) cf_err_hint(err, "did you mean --%s?", best);
    return false;
}

/* Digits, which are passed. */
static bool number(const char **text, uint64_t *n)
{
    const char *p = *text;
    for (*n = 0; *p >= '0' && *p <= '9' && p - *text < 10; p++) *n = *n * 10 + (uint64_t)(*p - '0');
    const bool any = p > *text;
    *text = p;
    return any;
}

/* R counts from 0; N/N is 0/N, so that the numbers of a job array may begin at 1. */
static bool set_share(cf_share *share, const char *value, cf_err *err)
{
    uint64_t rank, of;
    const char *at = value;
    if (!number(&at, &rank) || *at++ != '/' || !number(&at, &of) || *at || rank > of || !of ||
        of > CF_MOST_SHARES) {
        cf_fail(err, CF_E_USAGE,
                "--rank takes R/N, a share from 0 and how many there are, not '%s'", value);
        return cf_err_hint(err,
                           "in a job array: --rank $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT");
    }
    *share = (cf_share){(uint32_t)(rank % of), (uint32_t)of};
    return true;
}

static bool set(cf_options *o, const host_option *h, const char *value, cf_err *err)
{
    char *field = (char *)o + h->at;
    switch (h->kind) {
    case FLAG: *(bool *)field = true; return true;
    case TEXT: *(const char **)(void *)field = value; return true;
    case LIST: {
        cf_words *words = (void *)field;
        const char **list = cf_alloc(&o->arena, ((size_t)words->count + 1) * sizeof *list);
        if (!list) return cf_arena_ok(&o->arena, err);
        if (words->count) memcpy(list, words->list, (size_t)words->count * sizeof *list);
        list[words->count++] = value;
        words->list = list;
        return true;
    }
    case COUNT: {
        char *end;
        errno = 0;
        const long n = strtol(value, &end, 10);
        if (errno || *end || end == value || n < 1 || n > 64)
            return cf_fail(err, CF_E_USAGE, "-j takes a number from 1 to 64, not '%s'", value);
        o->threads = (int)n;
        return true;
    }
    case DTYPE: {
        char name[16] = "";
        for (size_t i = 0; value[i] && i + 1 < sizeof name; i++)
            name[i] = (char)toupper((unsigned char)value[i]);
        const cf_dtype dtype = cf_dtype_named(name, strlen(name));
        const bool floating = cf_dtype_of(dtype)->class == CF_CLASS_FLOATING;
        if (!dtype || !floating || !cf_cast_possible(CF_F32, dtype))
            return cf_fail(err, CF_E_USAGE,
                           "--dtype takes BF16, F16, F32, F64 or a float8, not '%s'", value);
        *(cf_dtype *)(void *)field = dtype;
        return true;
    }
    case SIZE:
        return cf_size_parse(value, (uint64_t *)(void *)field) ||
               cf_fail(err, CF_E_USAGE, "--%s takes a size as 64MiB or 2GB, not '%s'", h->name,
                       value);
    case RANK: {
        uint64_t n;
        if (!number(&value, &n) || *value || n > INT32_MAX)
            return cf_fail(err, CF_E_USAGE, "--%s takes a rank, from 0", h->name);
        *(int32_t *)(void *)field = (int32_t)n;
        return true;
    }
    case SHARE: return set_share((void *)field, value, err);
    case WORD: {
        const int n = word(h->value, value);
        if (n < 0)
            return cf_fail(err, CF_E_USAGE, "--%s takes %s, not '%s'", h->name, h->value, value);
        *(int *)(void *)field = n; /* an enum */
        return true;
    }
    }
    return true;
}

static bool takes_value(const host_option *h)
{
    return h->kind != FLAG;
}

typedef struct parser {
    cf_options *o;
    int argc, at;
    char **argv;
    const cf_option *own;
    size_t n_own;
    cf_given *given;
    const char **inputs;
} parser;

/* The value of the option at hand: behind its "=", or the next argument. */
static bool value_of(parser *p, const char *equals, const char *name, const char **value,
                     cf_err *err)
{
    if (equals)
        *value = equals + 1;
    else if (p->at + 1 < p->argc)
        *value = p->argv[++p->at];
    else
        return cf_fail(err, CF_E_USAGE, "%s needs a value", name);
    return true;
}

static bool long_option(parser *p, const char *arg, cf_err *err)
{
    const char *name = arg + 2, *equals = strchr(name, '='), *value = "true";
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const host_option *h = find_host(name, length);
    if (h) {
        if (takes_value(h) && !value_of(p, equals, arg, &value, err)) return false;
        if (!takes_value(h) && equals)
            return cf_fail(err, CF_E_USAGE, "--%s takes no value", h->name);
        return set(p->o, h, value, err);
    }
    for (size_t i = 0; i < p->n_own; i++) {
        if (!spells(p->own[i].name, name, length)) continue;
        const bool flag = p->own[i].type == CF_OPT_BOOLEAN;
        if (flag && equals) value = equals + 1;
        if (!flag && !value_of(p, equals, arg, &value, err)) return false;
        p->given[p->o->n_given++] = (cf_given){.name = p->own[i].name, .value = value};
        return true;
    }
    return unknown(name, length, p->own, p->n_own, err);
}

static bool short_option(parser *p, const char *arg, cf_err *err)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!OPTIONS[i].letter || OPTIONS[i].letter != arg[1]) continue;
        const char *value = NULL;
        if (takes_value(&OPTIONS[i])) {
            if (arg[2])
                value = arg + 2;
            else if (!value_of(p, NULL, arg, &value, err))
                return false;
        } else if (arg[2]) {
            break;
        }
        return set(p->o, &OPTIONS[i], value, err);
    }
    return cf_fail(err, CF_E_USAGE, "there is no option %s", arg);
}

static bool has_recipe(const char *verb)
{
    return strcmp(verb, "run") == 0 || strcmp(verb, "plan") == 0;
}

bool cf_options_parse(cf_options *o, int argc, char **argv, const cf_option *recipe_options,
                      size_t n_recipe, cf_err *err)
{
    memset(o, 0, sizeof *o);
    cf_arena_init(&o->arena, 0);
    o->verb = argv[1];
    o->threads = cf_default_threads();
    o->max_mem = CF_MAX_MEM;
    o->only_rank = -1;
    parser p = {
        .o = o, .argc = argc, .at = 2, .argv = argv, .own = recipe_options, .n_own = n_recipe};
    p.given = CF_NEWS(&o->arena, cf_given, (size_t)argc);
    p.inputs = CF_NEWS(&o->arena, const char *, (size_t)argc);
    if (!cf_arena_ok(&o->arena, err)) return false;
    bool options = true;
    for (; p.at < argc; p.at++) {
        const char *arg = argv[p.at];
        if (options && strcmp(arg, "--") == 0)
            options = false;
        else if (options && strncmp(arg, "--", 2) == 0) {
            if (!long_option(&p, arg, err)) return false;
        } else if (options && arg[0] == '-' && arg[1]) {
            if (!short_option(&p, arg, err)) return false;
        } else if (has_recipe(o->verb) && !o->recipe) {
            o->recipe = arg;
        } else {
            p.inputs[o->n_inputs++] = arg;
        }
    }
    o->n_roots = o->n_inputs;
    for (size_t i = 0; i < o->n_given; i++)
        for (size_t k = 0; k < n_recipe; k++)
            if (recipe_options[k].type == CF_OPT_CHECKPOINT &&
                strcmp(recipe_options[k].name, p.given[i].name) == 0)
                p.inputs[o->n_roots++] = p.given[i].value;
    o->inputs = p.inputs;
    o->given = p.given;
    return true;
}

const char *cf_given_value(const cf_options *o, const char *name, size_t number)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (strcmp(o->given[i].name, name) == 0 && number-- == 0) return o->given[i].value;
    return NULL;
}

void cf_options_free(cf_options *o)
{
    cf_arena_free(&o->arena);
}

const char *cf_options_recipe(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--") == 0) return i + 1 < argc ? argv[i + 1] : NULL;
        if (arg[0] != '-' || !arg[1]) return arg;
        /* a host option that takes a value takes the next argument with it */
        const host_option *h = NULL;
        if (arg[1] == '-') h = find_host(arg + 2, strlen(arg + 2));
        for (int k = 0; k < N_OPTIONS && arg[1] != '-' && !arg[2]; k++)
            if (OPTIONS[k].letter == arg[1]) h = &OPTIONS[k];
        if (h && takes_value(h)) i++;
    }
    return NULL;
}

void cf_options_help(cf_text *out, const cf_option *own, size_t n_own)
{
    static const char *const TYPE[] = {"TEXT", "N", NULL, "POLICY", "CKPT"};
    if (n_own) cf_text_str(out, "\nOptions of this recipe:\n");
    for (size_t i = 0; i < n_own; i++) {
        char name[80];
        snprintf(name, sizeof name, "--%s%s%s", own[i].name, TYPE[own[i].type] ? " " : "",
                 TYPE[own[i].type] ? TYPE[own[i].type] : "");
        for (char *c = name; *c; c++)
            if (*c == '_') *c = '-';
        cf_text_printf(out, "  %-28s %s", name, own[i].about ? own[i].about : "");
        if (own[i].fallback && own[i].type != CF_OPT_BOOLEAN)
            cf_text_printf(out, "%s(default: %s)", own[i].about ? " " : "", own[i].fallback);
        cf_text_str(out, "\n");
    }
    cf_text_str(out, "\nOptions:\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        const host_option *h = &OPTIONS[i];
        if (!h->about) continue;
        char name[80];
        if (h->letter)
            snprintf(name, sizeof name, "-%c, --%s %s", h->letter, h->name,
                     h->value ? h->value : "");
        else
            snprintf(name, sizeof name, "--%s %s", h->name, h->value ? h->value : "");
        cf_text_printf(out, "  %-28s %s\n", name, h->about);
    }
}

/* ---- cores -------------------------------------------------------------------------------------
 */

/* cgroup v2's "quota period" or v1's two files: whole cores, at least 1; 0 if there is no quota. */
static int quota_cores(void)
{
    long long quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2) quota = -1;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
        if (fscanf(f, "%lld", &quota) != 1) quota = -1;
        fclose(f);
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re"))) {
            if (fscanf(f, "%lld", &period) != 1) period = 0;
            fclose(f);
        }
    }
    if (quota <= 0 || period <= 0) return 0;
    return quota < period ? 1 : (int)(quota / period);
}

int cf_default_threads(void)
{
    enum { MOST = 4 };
    int n = MOST;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < n) n = CPU_COUNT(&set);
    const int quota = quota_cores();
    if (quota && quota < n) n = quota;
    const char *slurm = getenv("SLURM_CPUS_PER_TASK");
    const int given = slurm ? atoi(slurm) : 0;
    if (given > 0 && given < n) n = given;
    return n < 1 ? 1 : n;
}
