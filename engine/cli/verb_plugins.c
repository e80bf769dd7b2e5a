/* plugins: formats, policies and recipes, where each comes from, and what it shadows. */
#include <string.h>

#include "verbs.h"

static const char *const KINDS[] = {"format", "policy", "recipe", "module"};

static bool print_one(const cf_scripts *scripts, const char *name, cf_text *out, cf_err *err)
{
    for (size_t i = 0; i < scripts->count; i++) {
        const cf_script *s = &scripts->items[i];
        if (strcmp(s->name, name) != 0) continue;
        const char *text;
        size_t size;
        cf_text scratch = {0};
        if (!cf_script_text(s, &scratch, &text, &size, err)) return false;
        cf_text_add(out, text, size);
        cf_text_free(&scratch);
        return cf_text_ok(out, err);
    }
    cf_fail(err, CF_E_USAGE, "nothing is called %s", name);
    return cf_err_hint(err, "ckptflow plugins lists all of them");
}

static void show_text(const cf_scripts *scripts, cf_text *out)
{
    for (size_t i = 0; i < scripts->count; i++) {
        const cf_script *s = &scripts->items[i];
        if (s->kind == CF_MODULE && !s->shadows) continue; /* of interest only where replaced */
        cf_text_printf(out, "%-7s %-20s ", KINDS[s->kind], s->name);
        cf_text_shown(out, s->origin, strlen(s->origin));
        for (const cf_script *h = s->shadows; h; h = h->shadows) {
            cf_text_str(out, h == s->shadows ? "  (shadows " : ", ");
            cf_text_shown(out, h->origin, strlen(h->origin));
        }
        cf_text_str(out, s->shadows ? ")\n" : "\n");
    }
}

static void show_json(const cf_scripts *scripts, cf_text *out)
{
    cf_text_str(out, "{\"schema\":\"ckptflow.plugins/1\",\"plugins\":[");
    for (size_t i = 0; i < scripts->count; i++) {
        const cf_script *s = &scripts->items[i];
        cf_text_printf(out, "%s{\"kind\":\"%s\",\"name\":", i ? "," : "", KINDS[s->kind]);
        cf_text_json(out, s->name, strlen(s->name));
        cf_text_str(out, ",\"origin\":");
        cf_text_json(out, s->origin, strlen(s->origin));
        cf_text_str(out, ",\"shadows\":[");
        for (const cf_script *h = s->shadows; h; h = h->shadows) {
            if (h != s->shadows) cf_text_str(out, ",");
            cf_text_json(out, h->origin, strlen(h->origin));
        }
        cf_text_str(out, "]}");
    }
    cf_text_str(out, "]}\n");
}

bool cf_job_plugins(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    (void)notes; /* they are part of the result */
    const cf_options *o = ctx;
    cf_scripts scripts;
    if (!cf_scripts_find(&scripts, o->plugins.list, o->plugins.count, err)) return false;
    cf_text_add(out, scripts.notes.at, scripts.notes.size);
    cf_text_add(out, "", 1);
    if (o->print) return print_one(&scripts, o->print, out, err);
    if (o->json)
        show_json(&scripts, out);
    else
        show_text(&scripts, out);
    return cf_text_ok(out, err);
}

bool cf_verb_plugins(const cf_options *o, cf_err *err)
{
    return cf_show_job(cf_job_plugins, o, err);
}
