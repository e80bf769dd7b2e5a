/* reads: which rank opens which file when it loads, as the files are and after a policy.
 *
 * On a terminal a grid for each side, ranks down and files across; with --json the table of CLI.md,
 * to which each side adds "written" (bytes in a rank's files) and its own "max_fan_in". "bytes" and
 * "requests" count stretches as they lie in the files (an item with its container), since a loader
 * takes it whole; "duplicated_bytes" what a second, third ... rank reads again. With --pieces also
 * "items": what policies are asked about, as `place` takes them, and who keeps it in each side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "reads.h"
#include "simulate.h"
#include "verbs.h"

enum { MOST_SIDES = 8, MOST_ROWS = 32, MOST_COLUMNS = 32 };

typedef struct side {
    const char *name;
    cf_reads reads;
    int32_t *keepers; /* by item; NULL unless asked for */
} side;

typedef struct view {
    const cf_options *o;
    const char *format, *simulated; /* one of them */
    cf_arena arena;
    cf_holding holding;
    side sides[MOST_SIDES + 1];
    int n_sides;
} view;

/* ---- for people ---- */

static bool utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

/* How many of the ranks from..to-1 open how many of the files: a block, the fuller the more. */
static const char *cell(const cf_reads *r, int32_t rank, int32_t ranks, uint32_t file,
                        uint32_t files)
{
    static const char *const BLOCKS[][5] = {{".", "-", "+", "x", "#"}, {"·", "░", "▒", "▓", "█"}};
    uint64_t open = 0;
    for (int32_t k = rank; k < rank + ranks; k++)
        for (uint32_t f = file; f < file + files; f++) open += cf_reads_opens(r, k, f);
    const uint64_t all = (uint64_t)ranks * files;
    const int shade = !open ? 0 : open == all ? 4 : 1 + (int)(open * 3 / all);
    return BLOCKS[utf8()][shade];
}

static int columns_of(const cf_reads *r)
{
    return r->n_files < MOST_COLUMNS ? (int)r->n_files : MOST_COLUMNS;
}

static void add_name(cf_text *out, const char *name, int width)
{
    const size_t start = out->size;
    cf_text_shown(out, name, strlen(name));
    const int used = (int)(out->size - start);
    cf_text_printf(out, "%*s", used < width ? width - used : 1, "");
}

static int width_of(const side *s)
{
    const int grid = columns_of(&s->reads) + 8, name = (int)strlen(s->name) + 2;
    return grid > name ? grid : name;
}

static void end_line(cf_text *out)
{
    while (out->size && out->at[out->size - 1] == ' ') out->at[--out->size] = '\0';
    cf_text_str(out, "\n");
}

static void add_grid(cf_text *out, const view *v)
{
    const int32_t ranks = v->holding.ranks;
    const int32_t rows = ranks < MOST_ROWS ? ranks : MOST_ROWS;
    cf_text_printf(out, "%-16s", "");
    for (int s = 0; s < v->n_sides; s++) add_name(out, v->sides[s].name, width_of(&v->sides[s]));
    end_line(out);
    for (int32_t row = 0; row < rows; row++) {
        const int32_t first = (int32_t)((int64_t)ranks * row / rows),
                      end = (int32_t)((int64_t)ranks * (row + 1) / rows);
        char label[40];
        snprintf(label, sizeof label, end - first > 1 ? "ranks %d-%d" : "rank %d", first, end - 1);
        cf_text_printf(out, "%-16s", label);
        for (int s = 0; s < v->n_sides; s++) {
            const cf_reads *r = &v->sides[s].reads;
            const int columns = columns_of(r);
            for (int c = 0; c < columns; c++) {
                const uint32_t from = (uint32_t)((uint64_t)r->n_files * (uint32_t)c /
                                                 (uint32_t)columns),
                               to = (uint32_t)((uint64_t)r->n_files * (uint32_t)(c + 1) /
                                               (uint32_t)columns);
                cf_text_str(out, cell(r, first, end - first, from, to - from));
            }
            uint32_t most = 0;
            for (int32_t k = first; k < end; k++)
                if (r->fan_in[k] > most) most = r->fan_in[k];
            cf_text_printf(out, " %-4u%*s", most, width_of(&v->sides[s]) - columns - 5, "");
        }
        end_line(out);
    }
}

typedef struct spread {
    uint64_t most, sum;
} spread;

static spread spread_of(const uint64_t *list, int32_t n)
{
    spread s = {0};
    for (int32_t i = 0; i < n; i++) {
        s.sum += list[i];
        if (list[i] > s.most) s.most = list[i];
    }
    return s;
}

static void add_size(cf_text *out, uint64_t bytes, int width)
{
    cf_text size = {0};
    cf_text_size(&size, bytes);
    cf_text_printf(out, "%*s", width, size.at ? size.at : "");
    cf_text_free(&size);
}

static void add_table(cf_text *out, const view *v)
{
    const int32_t n = v->holding.ranks;
    cf_text_printf(out, "%-16s%21s%13s%13s%13s%13s\n", "", "files a rank opens", "requests",
                   "bytes read", "read again", "largest file");
    cf_text_printf(out, "%-16s%10s%11s%13s%13s%13s%13s\n", "", "most", "mean", "a rank, most",
                   "a rank, most", "in all", "to the mean");
    for (int s = 0; s < v->n_sides; s++) {
        const cf_reads *r = &v->sides[s].reads;
        uint64_t opened = 0;
        for (int32_t k = 0; k < n; k++) opened += r->fan_in[k];
        const spread requests = spread_of(r->requests, n), bytes = spread_of(r->bytes, n),
                     kept = spread_of(r->kept, n);
        add_name(out, v->sides[s].name, 16);
        cf_text_printf(out, "%10u%11.1f%13llu", r->max_fan_in, (double)opened / n,
                       (unsigned long long)requests.most);
        add_size(out, bytes.most, 13);
        add_size(out, r->duplicated, 13);
        if (kept.sum)
            cf_text_printf(out, "%12.2fx\n", (double)kept.most * n / (double)kept.sum);
        else
            cf_text_printf(out, "%13s\n", "-");
    }
}

static void show_text(const view *v, cf_text *out)
{
    size_t several = 0;
    for (size_t i = 0; i < v->holding.count; i++) several += v->holding.items[i].holders->count > 1;
    if (v->simulated) {
        cf_text_str(out, "simulated, ");
        cf_text_shown(out, v->simulated, strlen(v->simulated));
    } else {
        cf_text_shown(out, v->format, strlen(v->format));
    }
    cf_text_printf(out, ": %d rank%s, %zu item%s, %zu held by several", v->holding.ranks,
                   v->holding.ranks == 1 ? "" : "s", v->holding.count,
                   v->holding.count == 1 ? "" : "s", several);
    cf_text_str(out, v->simulated           ? "\n\n"
                     : !v->holding.inferred ? "\n\n"
                     : v->o->mesh           ? "; holders by --mesh\n\n"
                                            : "; holders are inferred, --mesh says otherwise\n\n");
    add_grid(out, v);
    cf_text_str(out, "\n");
    add_table(out, v);
}

/* ---- for programs ---- */

static void add_numbers(cf_text *out, const char *name, const uint64_t *list, int32_t n)
{
    cf_text_printf(out, ",\"%s\":[", name);
    for (int32_t i = 0; i < n; i++)
        cf_text_printf(out, i ? ",%llu" : "%llu", (unsigned long long)list[i]);
    cf_text_str(out, "]");
}

static void add_side(cf_text *out, const view *v, int number, bool policy)
{
    if (number >= v->n_sides) {
        cf_text_str(out, "null");
        return;
    }
    const side *s = &v->sides[number];
    const cf_reads *r = &s->reads;
    cf_text_str(out, "{");
    if (policy) {
        cf_text_str(out, "\"policy\":");
        cf_text_json(out, s->name, strlen(s->name));
        cf_text_str(out, ",");
    }
    cf_text_str(out, "\"files\":[");
    for (int32_t k = 0; k < v->holding.ranks; k++) {
        cf_text_str(out, k ? ",[" : "[");
        bool first = true;
        for (uint32_t f = 0; f < r->n_files; f++) {
            if (!cf_reads_opens(r, k, f)) continue;
            if (!first) cf_text_str(out, ",");
            cf_text_json(out, r->files[f], strlen(r->files[f]));
            first = false;
        }
        cf_text_str(out, "]");
    }
    cf_text_str(out, "]");
    add_numbers(out, "requests", r->requests, v->holding.ranks);
    add_numbers(out, "bytes", r->bytes, v->holding.ranks);
    add_numbers(out, "written", r->kept, v->holding.ranks);
    cf_text_printf(out, ",\"max_fan_in\":%u}", r->max_fan_in);
}

static void add_item(cf_text *out, const view *v, size_t i)
{
    const cf_held *held = &v->holding.items[i];
    cf_text_str(out, i ? ",\n{\"key\":" : "\n{\"key\":");
    cf_text_json(out, held->key, strlen(held->key));
    cf_text_printf(out, ",\"kind\":\"%s\",\"bytes\":%llu,\"whole_bytes\":%llu",
                   held->value ? "value" : "tensor", (unsigned long long)held->bytes,
                   (unsigned long long)held->whole_bytes);
    if (held->row && !held->value) {
        cf_text_str(out, ",\"at\":[");
        for (int d = 0; d < held->row->ndim; d++)
            cf_text_printf(out, d ? ",%lld" : "%lld",
                           (long long)held->row->pieces[held->piece].at[d]);
        cf_text_str(out, "]");
    }
    cf_text_str(out, ",\"holders\":[");
    for (size_t k = 0; k < held->holders->count; k++)
        cf_text_printf(out, k ? ",%d" : "%d", held->holders->list[k]);
    cf_text_str(out, "],\"keepers\":[");
    for (int s = 0; s < v->n_sides; s++)
        cf_text_printf(out, s ? ",%d" : "%d",
                       v->sides[s].keepers ? v->sides[s].keepers[i] : held->rank);
    cf_text_str(out, "]}");
}

static void show_json(const view *v, cf_text *out)
{
    const cf_reads *now = &v->sides[0].reads;
    cf_text_printf(out, "{\"schema\":\"ckptflow.reads/1\",\"ranks\":%d,\"inferred\":%s",
                   v->holding.ranks, v->holding.inferred && !v->o->mesh ? "true" : "false");
    cf_text_str(out, v->simulated ? ",\"simulated\":" : ",\"format\":");
    const char *what = v->simulated ? v->simulated : v->format;
    cf_text_json(out, what, strlen(what));
    cf_text_str(out, ",\"before\":");
    add_side(out, v, 0, v->simulated != NULL);
    cf_text_str(out, ",\"after\":");
    add_side(out, v, 1, true);
    if (v->n_sides > 2) cf_text_str(out, ",\"policies\":[");
    for (int s = 1; v->n_sides > 2 && s < v->n_sides; s++) {
        if (s > 1) cf_text_str(out, ",");
        add_side(out, v, s, true);
    }
    if (v->n_sides > 2) cf_text_str(out, "]");
    if (v->o->pieces) {
        cf_text_str(out, ",\"items\":[");
        for (size_t i = 0; i < v->holding.count; i++) add_item(out, v, i);
        cf_text_str(out, "]");
    }
    cf_text_printf(out, ",\"max_fan_in\":%u,\"duplicated_bytes\":%llu}\n", now->max_fan_in,
                   (unsigned long long)now->duplicated);
}

/* ---- all ---- */

static bool add_policy(view *v, const cf_scripts *scripts, const char *name, cf_err *err)
{
    if (v->n_sides > MOST_SIDES)
        return cf_fail(err, CF_E_USAGE, "more than %d policies at a time", MOST_SIDES);
    side *s = &v->sides[v->n_sides];
    s->name = name;
    if (!cf_policy_place(scripts, name, v->holding.items, v->holding.count, v->holding.ranks, NULL,
                         err) ||
        !cf_reads_kept(&s->reads, &v->holding, &v->arena, err))
        return false;
    v->n_sides++;
    if (!v->o->pieces) return true;
    s->keepers = CF_NEWS(&v->arena, int32_t, v->holding.count + 1);
    for (size_t i = 0; s->keepers && i < v->holding.count; i++)
        s->keepers[i] = v->holding.items[i].keeper;
    return cf_arena_ok(&v->arena, err);
}

static bool look(view *v, const cf_options *o, cf_scripts *scripts, cf_source *source,
                 cf_catalogue *cat, cf_err *err)
{
    cf_mesh mesh;
    const char *simulate = cf_given_value(o, "simulate", 0);
    cf_arena_init(&v->arena, 0);
    v->o = o;
    if (simulate) {
        if (o->n_inputs || o->mesh)
            return cf_fail(err, CF_E_USAGE, "--simulate is instead of a checkpoint and its mesh");
        v->simulated = simulate;
        if (!cf_simulate(&v->holding, simulate, &v->arena, err)) return false;
        if (!add_policy(v, scripts, "balanced", err)) return false; /* what torch does by itself */
    } else {
        if (o->mesh && !cf_mesh_parse(&mesh, o->mesh, err)) return false;
        if (!cf_read_inputs(o, scripts, source, cat, err)) return false;
        v->format = cat->format;
        if (!cf_holders_find(&v->holding, cat, o->mesh ? &mesh : NULL, &v->arena, err) ||
            !cf_reads_now(&v->sides[0].reads, &v->holding, cat, &v->arena, err))
            return false;
        if (o->mesh && !v->holding.inferred)
            cf_text_str(&cat->notes, "--mesh is not needed: every rank wrote what it holds\n");
        v->sides[0].name = "now";
        v->n_sides = 1;
    }
    const char *policy;
    for (size_t i = 0; (policy = cf_given_value(o, "policy", i)); i++)
        if (!add_policy(v, scripts, policy, err)) return false;
    return true;
}

bool cf_job_reads(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    const cf_options *o = ctx;
    static cf_scripts scripts; /* notes of what was not reached are empty */
    static cf_source source;
    static cf_catalogue cat;
    static view v;
    const bool ok = cf_scripts_find(&scripts, o->plugins.list, o->plugins.count, err) &&
                    look(&v, o, &scripts, &source, &cat, err);
    const cf_text *all[] = {&scripts.notes, &source.notes, &cat.notes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cf_text_add(notes, all[i]->at, all[i]->size);
    if (!ok) cf_text_add(out, cat.losses.at, cat.losses.size);
    if (!ok) return false;
    cf_text_add(out, notes->at, notes->size);
    cf_text_add(out, "", 1);
    (o->json ? show_json : show_text)(&v, out);
    return cf_text_ok(out, err);
}

bool cf_verb_reads(const cf_options *o, cf_err *err)
{
    if (!o->n_inputs && !cf_given_value(o, "simulate", 0)) {
        cf_fail(err, CF_E_USAGE, "no checkpoint was named");
        return cf_err_hint(err, "or --simulate ranks=512,shard=8,params=7B");
    }
    return cf_show_job(cf_job_reads, o, err);
}

const cf_option cf_reads_options[] = {
    {.name = "policy",
     .type = CF_OPT_POLICY,
     .many = true,
     .about = "also as it would be after this policy; several: side by side"},
    {.name = "simulate",
     .type = CF_OPT_STRING,
     .about = "of a layout that is not there: ranks=512,shard=8,params=7B,tensors=300,"
              "states=2,values=24,dtype=F32,replicas=outermost"},
    {0}};
