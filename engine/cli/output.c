#include "output.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "unshard" of "unshard.lua" or "recipes/unshard.lua". */
static void stem(const char *recipe, char *name, size_t size)
{
    const char *slash = strrchr(recipe, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : recipe);
    const size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".lua") == 0) name[n - 4] = '\0';
}

/* The real path, also of what does not exist yet (then of its parent, and the name). */
static bool real_path(const char *path, char *real)
{
    if (realpath(path, real)) return true;
    char parent[PATH_MAX];
    if ((size_t)snprintf(parent, sizeof parent, "%s", path) >= sizeof parent) return false;
    for (size_t n = strlen(parent); n > 1 && parent[n - 1] == '/'; n--) parent[n - 1] = '\0';
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : parent;
    char base[PATH_MAX];
    if (slash) *slash = '\0';
    if (!realpath(!slash ? "." : slash == parent ? "/" : parent, base)) return false;
    return snprintf(real, PATH_MAX, "%s/%s", strcmp(base, "/") == 0 ? "" : base, name) < PATH_MAX;
}

static bool holds(const char *outer, const char *inner)
{
    const size_t n = strlen(outer);
    return strncmp(outer, inner, n) == 0 && (inner[n] == '/' || inner[n] == '\0' || n == 1);
}

bool cf_output_path(const cf_options *o, char *out, cf_err *err)
{
    if (!o->n_inputs) return cf_fail(err, CF_E_USAGE, "no checkpoint was named");
    int n;
    if (o->out) {
        if (!*o->out) return cf_fail(err, CF_E_USAGE, "-o needs a path");
        n = snprintf(out, PATH_MAX, "%s", o->out);
    } else {
        char first[PATH_MAX], name[256];
        if (!realpath(o->inputs[0], first)) snprintf(first, sizeof first, "%s", o->inputs[0]);
        /* as the user wrote it, unless that ends in no name */
        const char *last = strrchr(o->inputs[0], '/');
        last = last ? last + 1 : o->inputs[0];
        const bool named = *last && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
        stem(o->recipe, name, sizeof name);
        n = snprintf(out, PATH_MAX, "%s-%s", named ? o->inputs[0] : first,
                     strcmp(name, "unshard") == 0 ? "unsharded" : name);
    }
    if (n < 0 || n >= PATH_MAX) return cf_fail(err, CF_E_USAGE, "the output path is too long");
    char real[PATH_MAX], input[PATH_MAX];
    if (!real_path(out, real)) return true; /* its parent is missing: the sink will say so */
    for (int i = 0; i < o->n_roots; i++) {
        if (!realpath(o->inputs[i], input)) continue;
        if (holds(real, input) || holds(input, real))
            return cf_fail(
                err, strcmp(real, input) == 0 && !o->overwrite ? CF_E_EXISTS : CF_E_USAGE,
                "%s: the output may not be, hold or lie in the checkpoint %s", out, o->inputs[i]);
    }
    return true;
}
