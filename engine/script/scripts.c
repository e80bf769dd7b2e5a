/* The search path, walked once: every script that could be named, the first of a name first.
 *
 * A folder is read for formats/, policies/, recipes/ and lua/ckptflow/; <prefix> is where the
 * running program lies (bin/..), so that an installation can be moved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bind.h"

enum { MOST_SCRIPT = 4 << 20 };

typedef struct kind_info {
    const char *name, *folder;
    const char *source; /* its folder in the source tree */
} kind_info;

static const kind_info kinds[] = {
    [CF_FORMAT] = {"format", "formats", "plugins/formats"},
    [CF_POLICY] = {"policy", "policies", "plugins/policies"},
    [CF_RECIPE] = {"recipe", "recipes", "examples/recipes"},
    [CF_MODULE] = {"module", "lua/ckptflow", "lua/ckptflow"},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

const char *cf_script_kind_name(cf_script_kind kind)
{
    return kinds[kind].name;
}

/* ---- one script */

static char *join(cf_arena *arena, const char *a, const char *b)
{
    const size_t n = strlen(a) + strlen(b) + 2;
    char *path = cf_alloc(arena, n);
    if (path) snprintf(path, n, "%s/%s", a, b);
    return path;
}

/* "olmo-legacy" of "olmo-legacy.lua"; "ckptflow.torch" for a module. */
static const char *name_of(cf_arena *arena, cf_script_kind kind, const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *start = slash ? slash + 1 : file;
    size_t length = strlen(start);
    if (length > 4 && strcmp(start + length - 4, ".lua") == 0) length -= 4;
    char *name = cf_alloc(arena, length + 10);
    if (name)
        snprintf(name, length + 10, "%s%.*s", kind == CF_MODULE ? "ckptflow." : "", (int)length,
                 start);
    return name;
}

cf_script *cf_script_at(cf_arena *arena, cf_script_kind kind, const char *path)
{
    cf_script *script = CF_NEW(arena, cf_script);
    if (!script) return NULL;
    script->kind = kind;
    script->name = name_of(arena, kind, path);
    script->path = script->origin = cf_strndup(arena, path, strlen(path));
    return script->name && script->path ? script : NULL;
}

bool cf_script_text(const cf_script *script, cf_text *scratch, const char **text, size_t *size,
                    cf_err *err)
{
    *text = script->text;
    *size = script->size;
    if (script->text) return true;
    FILE *file = fopen(script->path, "rbe");
    if (!file) {
        cf_fail_sys(err, errno, "cannot read the script");
        return cf_err_in_file(err, script->origin);
    }
    scratch->size = 0;
    char bytes[8192];
    size_t n;
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0 && scratch->size < MOST_SCRIPT)
        cf_text_add(scratch, bytes, n);
    const bool broken = ferror(file);
    const int sys = errno;
    fclose(file);
    bool ok = cf_text_ok(scratch, err);
    if (broken)
        ok = cf_fail_sys(err, sys, "cannot read the script");
    else if (scratch->size >= MOST_SCRIPT)
        ok = cf_fail(err, CF_E_LIMIT, "a script of more than %d bytes", MOST_SCRIPT);
    if (!ok) return cf_err_in_file(err, script->origin);
    *text = scratch->size ? scratch->at : "";
    *size = scratch->size;
    return true;
}

/* ---- all of them */

static int by_kind_and_name(const cf_script *script, cf_script_kind kind, const char *name)
{
    return script->kind != kind ? (int)script->kind - (int)kind : strcmp(script->name, name);
}

/* Puts a script into its place, or behind those that shadow it. */
static bool add(cf_scripts *scripts, cf_script *script)
{
    if (!script) return false;
    size_t low = 0, high = scripts->count;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (by_kind_and_name(&scripts->items[mid], script->kind, script->name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < scripts->count &&
        by_kind_and_name(&scripts->items[low], script->kind, script->name) == 0) {
        /* the chain's links were made by us: not const at heart */
        cf_script *last = &scripts->items[low];
        while (last->shadows) last = (cf_script *)last->shadows;
        last->shadows = script;
        return true;
    }
    const cf_script *fresh = CF_PUSH(&scripts->arena, scripts->items, scripts->count, scripts->cap);
    if (!fresh) return false;
    cf_script *at = &scripts->items[low];
    memmove(at + 1, at, (scripts->count - 1 - low) * sizeof *at);
    *at = *script;
    return true;
}

static bool add_folder(cf_scripts *scripts, cf_script_kind kind, const char *folder)
{
    DIR *dir = folder ? opendir(folder) : NULL;
    if (!dir) return folder != NULL; /* most places of the search path are not there */
    const char **own =
        CF_PUSH(&scripts->arena, scripts->folders, scripts->n_folders, scripts->cap_folders);
    bool ok = own != NULL;
    if (ok) *own = folder;
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        const size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length <= 4 ||
            strcmp(entry->d_name + length - 4, ".lua") != 0)
            continue;
        const char *path = join(&scripts->arena, folder, entry->d_name);
        ok = path && add(scripts, cf_script_at(&scripts->arena, kind, path));
    }
    closedir(dir);
    return ok;
}

static bool add_place(cf_scripts *scripts, const char *place)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (!add_folder(scripts, kind, join(&scripts->arena, place, kinds[kind].folder)))
            return false;
    return true;
}

static bool add_path_list(cf_scripts *scripts, const char *list)
{
    while (list && *list) {
        const size_t length = strcspn(list, ":");
        if (length > 0) {
            const char *place = cf_strndup(&scripts->arena, list, length);
            if (!place || !add_place(scripts, place)) return false;
        }
        list += length + (list[length] == ':');
    }
    return true;
}

static bool add_data_home(cf_scripts *scripts)
{
    const char *home = getenv("XDG_DATA_HOME");
    const char *below = "ckptflow";
    if (!home || home[0] != '/') {
        home = getenv("HOME");
        below = ".local/share/ckptflow";
    }
    return !home || home[0] != '/' || add_place(scripts, join(&scripts->arena, home, below));
}

static bool add_prefix(cf_scripts *scripts)
{
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return true;
    program[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (!slash) return true;
        *slash = '\0';
    }
    return add_place(scripts, join(&scripts->arena, program, "share/ckptflow"));
}

#ifdef CF_SOURCE_TREE
static bool add_source_tree(cf_scripts *scripts)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (!add_folder(scripts, kind, join(&scripts->arena, CF_SOURCE_TREE, kinds[kind].source)))
            return false;
    return true;
}
#endif

static bool add_embedded(cf_scripts *scripts)
{
    for (const cf_embedded *e = cf_embedded_files; e->path; e++)
        for (int kind = 0; kind < KINDS; kind++) {
            const size_t n = strlen(kinds[kind].folder);
            if (strncmp(e->path, kinds[kind].folder, n) != 0 || e->path[n] != '/') continue;
            cf_script *script = cf_script_at(&scripts->arena, kind, e->path);
            char *origin = cf_alloc(&scripts->arena, strlen(e->path) + 9);
            if (!script || !origin) return false;
            snprintf(origin, strlen(e->path) + 9, "builtin:%s", e->path);
            script->origin = origin;
            script->path = NULL;
            script->text = (const char *)e->text;
            script->size = e->size;
            if (!add(scripts, script)) return false;
        }
    return true;
}

/* ---- --plugin */

typedef struct guess {
    const cf_script *script;
    cf_script_kind kind;
} guess;

static int guess_job(lua_State *L)
{
    guess *g = lua_touserdata(L, 1);
    cf_load_script(L, g->script);
    g->kind = cf_load_kind(L);
    return 0;
}

/* What a file is: its folder's name says so, else what it returns. */
static bool kind_of(cf_scripts *scripts, const cf_script *script, cf_script_kind *kind, cf_err *err)
{
    const char *end = strrchr(script->path, '/');
    for (int k = 0; end && k < CF_MODULE; k++) {
        const size_t n = strlen(kinds[k].folder);
        if ((size_t)(end - script->path) < n || memcmp(end - n, kinds[k].folder, n) != 0) continue;
        if (end - n != script->path && end[-(ptrdiff_t)n - 1] != '/') continue;
        *kind = k;
        return true;
    }
    cf_host host;
    CF_TRY(cf_host_start(&host, scripts, NULL, err));
    guess g = {.script = script};
    const bool ok = cf_host_run(&host, guess_job, &g, err);
    cf_host_stop(&host);
    *kind = g.kind;
    return ok;
}

/* The files of --plugin come first, but telling what they are may need modules that come later:
 * they are put in front when all else is known. */
static bool add_named(cf_scripts *scripts, const char *path, cf_err *err)
{
    cf_script *script = cf_script_at(&scripts->arena, CF_FORMAT, path);
    if (!script) return cf_arena_ok(&scripts->arena, err);
    CF_TRY(kind_of(scripts, script, &script->kind, err));
    script->named = true;
    cf_script *winner = (cf_script *)cf_scripts_get(scripts, script->kind, script->name);
    if (!winner) return add(scripts, script) || cf_arena_ok(&scripts->arena, err);
    cf_script *behind = cf_memdup(&scripts->arena, winner, sizeof *winner);
    if (!behind) return cf_arena_ok(&scripts->arena, err);
    *winner = *script;
    winner->shadows = behind;
    return true;
}

bool cf_scripts_list(cf_scripts *scripts, cf_err *err)
{
    *scripts = (cf_scripts){0};
    cf_arena_init(&scripts->arena, 0);
    bool ok = add_path_list(scripts, getenv("CKPTFLOW_PATH")) && add_data_home(scripts) &&
              add_prefix(scripts);
#ifdef CF_SOURCE_TREE
    ok = ok && add_source_tree(scripts);
#endif
    ok = ok && add_embedded(scripts);
    ok = cf_arena_ok(&scripts->arena, err) && ok;
    if (!ok) cf_scripts_free(scripts);
    return ok;
}

bool cf_scripts_find(cf_scripts *scripts, const char *const *files, int n_files, cf_err *err)
{
    bool ok = cf_scripts_list(scripts, err);
    /* the first one named wins: it is put in front last */
    for (int i = n_files - 1; ok && i >= 0; i--) ok = add_named(scripts, files[i], err);
    if (!ok) cf_scripts_free(scripts);
    return ok;
}

void cf_scripts_free(cf_scripts *scripts)
{
    cf_arena_free(&scripts->arena);
    cf_text_free(&scripts->notes);
    scripts->items = NULL;
    scripts->count = 0;
}

const cf_script *cf_scripts_get(const cf_scripts *scripts, cf_script_kind kind, const char *name)
{
    size_t low = 0, high = scripts->count;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        const int order = by_kind_and_name(&scripts->items[mid], kind, name);
        if (order == 0) return &scripts->items[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const cf_script *cf_script_named(const cf_scripts *scripts, cf_arena *arena, cf_script_kind kind,
                                 const char *name, cf_err *err)
{
    const char *what = kinds[kind].name;
    const cf_script *script = NULL;
    const size_t length = strlen(name);
    if (!strchr(name, '/')) {
        const bool suffix = length > 4 && strcmp(name + length - 4, ".lua") == 0;
        const char *stem = cf_strndup(arena, name, suffix ? length - 4 : length);
        if (stem) script = cf_scripts_get(scripts, kind, stem);
    }
    struct stat is;
    const bool there = !script && stat(name, &is) == 0;
    if (there && S_ISDIR(is.st_mode)) {
        cf_fail(err, CF_E_USAGE, "%s is a folder, not a %s", name, what);
        if (kind == CF_RECIPE) cf_err_set_hint(err, "ckptflow run unshard %s", name);
        return NULL;
    }
    if (there) script = cf_script_at(arena, kind, name);
    if (!script && strchr(name, '/')) {
        cf_fail(err, CF_E_USAGE, "%s: no such %s file", name, what);
        return NULL;
    }
    if (!script && cf_arena_ok(arena, err)) cf_script_unknown(scripts, kind, name, err);
    return script;
}

bool cf_script_unknown(const cf_scripts *scripts, cf_script_kind kind, const char *name,
                       cf_err *err)
{
    cf_text names = {0};
    const char *near = NULL;
    int best = 4;
    for (size_t i = 0; i < scripts->count; i++) {
        if (scripts->items[i].kind != kind) continue;
        cf_text_printf(&names, "%s%s", names.size ? ", " : "", scripts->items[i].name);
        const int distance = cf_text_distance(name, scripts->items[i].name);
        if (distance >= best) continue;
        best = distance;
        near = scripts->items[i].name;
    }
    cf_fail(err, CF_E_USAGE, "no %s is called '%s'%s%s%s", kinds[kind].name, name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    cf_err_hint(err, "there are: %s", names.at ? names.at : "none");
    cf_text_free(&names);
    return false;
}
