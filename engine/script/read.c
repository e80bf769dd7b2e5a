/* From files to a catalogue: which format it is, and its `read` for every file.
 *
 * Files are read on several threads, each with a Lua state of its own; what a file gave is a part,
 * and parts are merged in the order of the files by whoever has the next one. Threads run ahead of
 * the merge by a bounded number of files, so that memory stays flat, and the error of the first
 * file in order is the one that is told, whatever thread was faster.
 */
#include <stdlib.h>
#include <string.h>

#include "beside.h"
#include "bind.h"
#include "path.h"
#include "pool.h"

enum {
    MOST_THREADS = 64,
    MOST_ROLES = 64,
    MOST_WHY = 200,
    MOST_MARKS = 8,
    MOST_WITHIN = 16,
    MOST_NOTES = 8,
    MOST_PATH = 512
};

static const char PLUGIN[] = "plugin"; /* in the registry: the table that the script returned */

/* ---- loading one */

static int load_job(lua_State *L)
{
    cf_load_table(L, lua_touserdata(L, 1));
    lua_setfield(L, LUA_REGISTRYINDEX, PLUGIN);
    return 0;
}

static void push_hook(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, PLUGIN);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

static bool load(cf_host *host, cf_scripts *scripts, cf_source *source, const cf_script *script,
                 cf_err *err)
{
    CF_TRY(cf_host_start(host, scripts, source, err));
    if (cf_host_run(host, load_job, (void *)script, err)) return true;
    cf_host_stop(host);
    return false;
}

/* ---- detection */

typedef struct detection {
    const cf_script *script;
    lua_Integer score; /* 0: not mine */
    char why[MOST_WHY];
} detection;

static int detect_job(lua_State *L)
{
    detection *found = lua_touserdata(L, 1);
    push_hook(L, "detect");
    cf_push_dir(L);
    lua_call(L, 1, 2);
    if (lua_isnoneornil(L, -2)) return 0;
    int whole;
    const lua_Integer score = lua_tointegerx(L, -2, &whole);
    if (!whole || score < 1 || score > 100)
        return luaL_error(L, "detect gave a score that is no number from 1 to 100");
    if (lua_isstring(L, -1)) {
        strncpy(found->why, lua_tostring(L, -1), sizeof found->why - 1);
    }
    found->score = score;
    return 0;
}

/* What the search through all formats came to. */
typedef struct search {
    detection best, second;
    cf_err unreadable; /* the first file that a format wanted to look into and could not */
    cf_guesses guesses;
} search;

/* Asks one format. A script that cannot be loaded is a warning; an error of `detect` means "not
 * mine". False: the script was named by the user and does not load. */
static bool ask(cf_scripts *scripts, cf_source *source, const cf_script *script, search *s,
                cf_err *err)
{
    cf_host host;
    cf_err failed;
    if (!load(&host, scripts, source, script, &failed)) {
        if (script->named) {
            *err = failed;
            return false;
        }
        char line[sizeof failed];
        cf_text_printf(&scripts->notes, "the format '%s' does not load: %s\n", script->name,
                       cf_err_line(&failed, line, sizeof line));
        return true;
    }
    detection found = {.script = script};
    cf_probes probes = {0};
    host.probes = &probes;
    cf_host_run(&host, detect_job, &found, &failed);
    if (s->unreadable.code == CF_OK) s->unreadable = host.unreadable;
    cf_host_stop(&host);
    if (found.score == 0) cf_guess(&s->guesses, source, script->name, &probes);
    if (found.score > s->best.score) {
        s->second = s->best;
        s->best = found;
    } else if (found.score > s->second.score) {
        s->second = found;
    }
    return true;
}

static bool ask_all(cf_scripts *scripts, cf_source *source, search *s, cf_err *err)
{
    for (size_t i = 0; i < scripts->count; i++)
        if (scripts->items[i].kind == CF_FORMAT)
            CF_TRY(ask(scripts, source, &scripts->items[i], s, err));
    return true;
}

/* The folder of a run was named, not that of a save: "run/step9 is that of olmo-legacy". Few are
 * looked into, the last in order, first those that are not deep;
 * `sure` is the score that counts. */
static bool hint_within(cf_scripts *scripts, const cf_source *source, int sure, cf_err *err)
{
    enum { DEEPEST = 3, TRIED = 3 };
    for (int depth = 1; source->dir.n_roots == 1 && depth <= DEEPEST; depth++) {
        int tried = 0;
        char last[MOST_PATH] = "", path[MOST_PATH + MOST_PATH];
        for (uint32_t i = source->dir.count; i-- && tried < TRIED;) {
            const char *file = source->dir.files[i].path, *end = file;
            for (int d = 0; end && d < depth; d++) end = strchr(end + (d > 0), '/');
            if (!end || end - file >= MOST_PATH || strncmp(last, file, (size_t)(end - file)) == 0)
                continue;
            snprintf(last, sizeof last, "%.*s", (int)(end - file), file);
            if (cf_text_ends(last, "tmp")) continue; /* being saved */
            snprintf(path, sizeof path, "%s/%s", source->dir.roots[0], last);
            cf_source one;
            search s = {0};
            cf_err none;
            const char *roots[] = {path};
            const size_t notes = scripts->notes.size;
            const bool asked = cf_source_open(&one, roots, 1, source->inert, &none) &&
                               ask_all(scripts, &one, &s, &none);
            scripts->notes.size = notes;
            cf_source_close(&one);
            tried++;
            if (!asked || s.best.score < sure) continue;
            cf_err_hint(err, "%s looks like %s: name that folder, or all that are one checkpoint",
                        last, s.best.script->name);
            return true;
        }
    }
    return false;
}

static bool nothing_fits(cf_scripts *scripts, const cf_source *source, const cf_guesses *guesses,
                         cf_err *err)
{
    cf_guess_say(source, err);
    enum { NAMED = 50 }; /* less is a suffix alone */
    if (hint_within(scripts, source, NAMED, err) || cf_guess_hint(guesses, err) ||
        hint_within(scripts, source, 1, err) || *err->hint)
        return false;
    size_t formats = 0;
    for (size_t i = 0; i < scripts->count; i++) formats += scripts->items[i].kind == CF_FORMAT;
    cf_err_hint(err, "`ckptflow plugins` lists the %zu formats that there are", formats);
    return false;
}

static bool detect(cf_scripts *scripts, cf_source *source, detection *found, cf_err *err)
{
    search s = {0};
    CF_TRY(ask_all(scripts, source, &s, err));
    *found = s.best;
    if (s.best.score == 0) {
        if (s.unreadable.code == CF_OK) return nothing_fits(scripts, source, &s.guesses, err);
        *err = s.unreadable;
        return false;
    }
    if (s.best.score > s.second.score) return true;
    cf_fail(err, CF_E_FORMAT_TIE, "it could be %s (%s) or %s (%s)", s.best.script->name, s.best.why,
            s.second.script->name, s.second.why);
    return cf_err_hint(err, "--format %s or --format %s decides", s.best.script->name,
                       s.second.script->name);
}

/* ---- the list of files, and roles */

typedef struct listed {
    uint32_t file;
    int32_t rank;
    cf_captures *captures; /* NULL: none */
} listed;

typedef struct listing {
    cf_arena *arena; /* the catalogue's: roles stay there */
    listed *files;
    size_t count, cap;
    cf_role roles[MOST_ROLES];
    size_t n_roles;
    const char *marks[MOST_MARKS]; /* of a whole save */
    size_t n_marks;
    bool apart; /* a rank's files say all that it holds */
    bool *seen; /* one a file of the source */
} listing;

static void add_file(lua_State *L, listing *list, const cf_file_handle *handle)
{
    if (list->seen[handle->file])
        luaL_error(L, "files gave %s twice", cf_source_path(cf_host_of(L)->source, handle->file));
    list->seen[handle->file] = true;
    listed *item = CF_PUSH(list->arena, list->files, list->count, list->cap);
    if (!item) return; /* the arena failed: told later */
    *item = (listed){.file = handle->file, .rank = handle->rank};
    if (handle->count == 0) return;
    item->captures = CF_NEW(list->arena, cf_captures);
    if (!item->captures) return;
    item->captures->count = handle->count;
    memcpy(item->captures->items, handle->captures, (size_t)handle->count * sizeof(cf_capture));
}

static const char *keep(lua_State *L, listing *list, int index)
{
    size_t length;
    const char *text = luaL_checklstring(L, index, &length);
    return cf_strndup(list->arena, text, length);
}

static int roles_job(lua_State *L)
{
    static const char *const names[] = {"model", "optim", "copy", "rest", NULL};
    listing *list = lua_touserdata(L, 1);
    push_hook(L, "roles");
    if (lua_isnil(L, -1)) return 0;
    const lua_Integer count = luaL_len(L, -1);
    if (count > MOST_ROLES) return luaL_error(L, "more than %d roles", MOST_ROLES);
    for (lua_Integer i = 1; i <= count; i++) {
        if (lua_geti(L, 2, i) != LUA_TTABLE || lua_geti(L, 3, 1) != LUA_TSTRING ||
            lua_geti(L, 3, 2) != LUA_TSTRING)
            return luaL_error(L, "roles[%d] is not { role, pattern }", (int)i);
        int role = 0;
        while (names[role] && strcmp(names[role], lua_tostring(L, 4)) != 0) role++;
        if (!names[role])
            return luaL_error(L, "roles[%d]: there is no role '%s'%s", (int)i, lua_tostring(L, 4),
                              cf_push_guess(L, lua_tostring(L, 4), names));
        list->roles[list->n_roles++] = (cf_role){names[role], keep(L, list, 5)};
        lua_settop(L, 2);
    }
    return 0;
}

/* Files that a whole save has: paths; with "!" in front, that it has not. */
static int whole_job(lua_State *L)
{
    listing *list = lua_touserdata(L, 1);
    push_hook(L, "whole");
    if (lua_isnil(L, -1)) return 0;
    const lua_Integer count = luaL_len(L, -1);
    if (count < 1 || count > MOST_MARKS)
        return luaL_error(L, "whole has 1 to %d files", MOST_MARKS);
    for (lua_Integer i = 1; i <= count; i++) {
        if (lua_geti(L, 2, i) != LUA_TSTRING) return luaL_error(L, "whole[%d] is no path", (int)i);
        const char *path = lua_tostring(L, 3);
        path += *path == '!';
        if (cf_path_kind_of(path, strlen(path)) == CF_PATH_OUT || strpbrk(path, "*{"))
            return luaL_error(L, "whole[%d] is no path within a checkpoint", (int)i);
        list->marks[list->n_marks++] = keep(L, list, 3);
        lua_settop(L, 2);
    }
    return 0;
}

static int files_job(lua_State *L)
{
    listing *list = lua_touserdata(L, 1);
    push_hook(L, "apart");
    list->apart = lua_toboolean(L, -1);
    lua_pop(L, 1);
    push_hook(L, "files");
    cf_push_dir(L);
    lua_call(L, 1, 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    const lua_Integer count = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_geti(L, 2, i);
        add_file(L, list, cf_check_file(L, 3));
        lua_pop(L, 1);
    }
    return 0;
}

/* ---- reading */

typedef struct reading {
    cf_scripts *scripts;
    cf_source *source;
    const cf_script *script;
    const listing *list;
    cf_placeholders placeholders;
    cf_catalogue *cat;
    uint64_t lead;  /* files that may be read ahead of the merge */
    cf_host *hosts; /* one a thread; L NULL until it is used */

    pthread_mutex_t lock;
    pthread_cond_t moved;
    cf_part **parts; /* read and not yet merged */
    uint64_t merged; /* files that are in the catalogue */
    uint64_t failed; /* the first file, in order, that failed; none: the number of files */
    cf_err err;      /* why */
    uint64_t spoilt; /* files that could not be read, where faults are collected */
} reading;

static int read_job(lua_State *L)
{
    const listed *item = lua_touserdata(L, 1);
    push_hook(L, "read");
    cf_push_file(L, item->file, item->captures);
    cf_push_out(L);
    cf_push_dir(L);
    lua_call(L, 3, 0);
    return 0;
}

/* One path in several folders: two different files only if what is inside says so. */
static bool clash(const cf_dir *dir, uint32_t file, cf_err *err)
{
    uint32_t first = file, other;
    while (dir->files[first].twin) first--;
    if (!cf_dir_twin(dir, first, &other)) return false;
    cf_fail(err, CF_E_META_CONFLICT, "in %s and in %s", dir->roots[dir->files[first].root],
            dir->roots[dir->files[other].root]);
    cf_err_set_hint(err, "several CKPT are one checkpoint whose files lie in several places; "
                         "run once for each checkpoint");
    return true;
}

static cf_part *read_file(reading *r, const listed *item, int thread, cf_err *err)
{
    cf_host *host = &r->hosts[thread];
    if (!host->L) {
        if (!load(host, r->scripts, r->source, r->script, err)) return NULL;
        host->placeholders = r->placeholders;
    }
    cf_part *part = cf_part_new(r->source, item->file, item->rank);
    if (!part) {
        cf_fail(err, CF_E_MEMORY, "out of memory");
        return NULL;
    }
    host->part = part;
    host->rows = 0;
    const bool ok = cf_host_run(host, read_job, (void *)item, err);
    host->part = NULL;
    if (ok && (cf_part_placed(part) || !clash(&r->source->dir, item->file, err))) return part;
    cf_part_free(part);
    cf_err_in_file(err, cf_source_path(r->source, item->file));
    return NULL;
}

static void fail(reading *r, uint64_t number, const cf_err *err)
{
    if (number >= r->failed) return;
    r->failed = number;
    r->err = *err;
}

/* Adds what is next in order, as far as it is there. The lock is held. */
static void merge(reading *r)
{
    while (r->merged < r->failed && r->merged < r->list->count && r->parts[r->merged]) {
        cf_part *part = r->parts[r->merged];
        cf_err err;
        r->parts[r->merged] = NULL;
        if (cf_catalogue_merge(r->cat, part, &err))
            r->merged++;
        else
            fail(r, r->merged, &err);
    }
    pthread_cond_broadcast(&r->moved);
}

/* What a file that cannot be read says: that its rank is there. */
static cf_part *empty_part(const reading *r, const listed *item)
{
    cf_part *part = cf_part_new(r->source, item->file, item->rank);
    cf_err err;
    if (!part || cf_part_world(part, -1, -1, &err)) return part;
    cf_part_free(part);
    return NULL;
}

static bool file_job(void *ctx, uint64_t number, int thread, cf_err *err)
{
    reading *r = ctx;
    pthread_mutex_lock(&r->lock);
    while (number >= r->merged + r->lead && r->failed > r->merged)
        pthread_cond_wait(&r->moved, &r->lock);
    const bool wanted = number < r->failed;
    pthread_mutex_unlock(&r->lock);
    if (!wanted) return true;

    cf_part *part = read_file(r, &r->list->files[number], thread, err);
    const bool spoilt = !part && cf_faults_take(r->source->faults, err);
    if (spoilt) part = empty_part(r, &r->list->files[number]);
    pthread_mutex_lock(&r->lock);
    if (spoilt && r->spoilt++ == 0) r->err = *err;
    if (part)
        r->parts[number] = part;
    else
        fail(r, number, err);
    merge(r);
    const bool go_on = r->failed == r->list->count;
    if (!go_on) *err = r->err;
    pthread_mutex_unlock(&r->lock);
    return go_on;
}

static bool read_list(reading *r, const listing *list, int threads, cf_err *err)
{
    const uint64_t count = list->count;
    r->list = list;
    r->merged = r->spoilt = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 1) threads = 1;
    r->lead = 2 * (uint64_t)threads + 2;
    r->failed = count;
    r->hosts = calloc((size_t)threads, sizeof *r->hosts);
    r->parts = calloc(count + 1, sizeof(cf_part *));
    bool ok = r->hosts && r->parts;
    if (!ok) {
        cf_fail(err, CF_E_MEMORY, "out of memory");
    } else {
        pthread_mutex_init(&r->lock, NULL);
        pthread_cond_init(&r->moved, NULL);
        ok = cf_pool_run(threads, count, file_job, r, err);
        r->cat->left_out |= r->spoilt > 0;
        if (ok && r->spoilt && r->spoilt == count) ok = false; /* nothing at all could be read */
        if (!ok) *err = r->err; /* the first in order, not the first in time */
        pthread_cond_destroy(&r->moved);
        pthread_mutex_destroy(&r->lock);
        for (int i = 0; i < threads; i++) cf_host_stop(&r->hosts[i]);
        for (uint64_t i = 0; i < count; i++)
            if (r->parts[i]) cf_part_free(r->parts[i]);
    }
    free(r->hosts);
    free(r->parts);
    return ok;
}

/* With --only-rank the files that are named for the rank are read first, if the format says that
 * they know all that it holds: a job array that reads all files in each job would read them
 * squared. The others are read if there is no such file, or a name turned out to be wrong. */
static bool read_all(reading *r, const listing *list, int threads, cf_err *err)
{
    listing own = {.arena = list->arena}, rest = own;
    for (size_t i = 0; list->apart && r->cat->only_rank >= 0 && i < list->count; i++) {
        listing *of = list->files[i].rank == r->cat->only_rank ? &own : &rest;
        listed *place = CF_PUSH(of->arena, of->files, of->count, of->cap);
        if (!place) return cf_arena_ok(of->arena, err);
        *place = list->files[i];
        if (place->rank < 0) return read_list(r, list, threads, err); /* it may be of several */
    }
    if (!own.count) return read_list(r, list, threads, err);
    return read_list(r, &own, threads, err) &&
           (!r->cat->n_misnamed || !rest.count || read_list(r, &rest, threads, err));
}

/* Beside each listed file those of the same path in other folders. */
static bool add_twins(listing *list, const cf_dir *dir)
{
    listing all = {.arena = list->arena};
    for (size_t i = 0; i < list->count; i++) {
        listed item = list->files[i];
        do {
            listed *place = CF_PUSH(all.arena, all.files, all.count, all.cap);
            if (!place) return false;
            *place = item;
        } while (cf_dir_twin(dir, item.file, &item.file));
    }
    list->files = all.files;
    list->count = all.count;
    list->cap = all.cap;
    return true;
}

/* Asks the format what to read. */
static bool list_files(reading *r, listing *list, cf_err *err)
{
    cf_host host;
    CF_TRY(load(&host, r->scripts, r->source, r->script, err));
    bool ok = cf_host_run(&host, roles_job, list, err) && cf_host_run(&host, whole_job, list, err);
    host.notes = MOST_NOTES;
    ok = ok && cf_host_run(&host, files_job, list, err) && cf_arena_ok(list->arena, err);
    r->placeholders = host.placeholders;
    cf_host_stop(&host);
    if (ok && !add_twins(list, &r->source->dir)) return cf_arena_ok(list->arena, err);
    if (!ok || list->count > 0) return ok;
    return cf_fail(err, CF_E_MISSING_FILE, "the format %s finds no file to read", r->script->name);
}

/* ---- what to take instead ----------------------------------------------------------------------
 */

/* What a save lacks that did not finish, or that is here in part. */
static bool is_half(cf_code code)
{
    return code == CF_E_MISSING_FILE || code == CF_E_TRUNCATED || code == CF_E_BOUNDS ||
           code == CF_E_COVERAGE;
}

/* The newest whole save beside the checkpoint, by the marks of its format. */
static bool find_whole(const cf_source *source, const listing *list, char *name, size_t size)
{
    const char *within[MOST_WITHIN] = {""}; /* sub-folders with files of this one */
    size_t n = 1;
    for (uint32_t i = 0; i < source->dir.count && n < MOST_WITHIN; i++) {
        const char *path = source->dir.files[i].path, *slash = strrchr(path, '/');
        const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
        if (!length || (strncmp(within[n - 1], path, length) == 0 && !within[n - 1][length]))
            continue;
        if (!(within[n] = cf_strndup(list->arena, path, length))) return false;
        n++;
    }
    bool found = false;
    for (int i = 0; !found && i < source->dir.n_roots; i++)
        found = cf_beside_newest(source->dir.roots[i], within, n, list->marks, list->n_marks, name,
                                 size);
    return found;
}

static void name_whole(const cf_source *source, const listing *list, cf_catalogue *cat, bool ok,
                       cf_err *err)
{
    char name[256];
    bool half = !ok && is_half(err->code);
    for (size_t i = 0; ok && source->faults && i < source->faults->count; i++)
        half = half || is_half(source->faults->list[i].code);
    if (!half || !find_whole(source, list, name, sizeof name)) return;
    cf_text shown = {0};
    cf_text_shown(&shown, name, strlen(name));
    const char *text = shown.at ? shown.at : "";
    if (ok) {
        cf_text_printf(&cat->notes, "the newest save beside it that looks whole is %s\n", text);
    } else {
        char hint[sizeof err->hint];
        memcpy(hint, err->hint, sizeof hint);
        cf_err_set_hint(err, "%s%sthe newest save beside it that looks whole is %s", hint,
                        *hint ? "; " : "", text);
    }
    cf_text_free(&shown);
}

bool cf_host_read(cf_scripts *scripts, cf_source *source, const char *format, int threads,
                  cf_catalogue *cat, cf_err *err)
{
    detection found = {.why = "named by --format"};
    if (!format)
        CF_TRY(detect(scripts, source, &found, err));
    else if (!(found.script = cf_scripts_get(scripts, CF_FORMAT, format)))
        return cf_script_unknown(scripts, CF_FORMAT, format, err);
    cat->format = cf_strndup(&cat->arena, found.script->name, strlen(found.script->name));
    cat->why = cf_strndup(&cat->arena, found.why, strlen(found.why));

    listing list = {.arena = &cat->arena};
    list.seen = CF_NEWS(&cat->arena, bool, source->dir.count);
    CF_TRY(cf_arena_ok(&cat->arena, err));
    reading r = {.scripts = scripts, .source = source, .script = found.script, .cat = cat};
    const bool read = list_files(&r, &list, err) && read_all(&r, &list, threads, err);
    cf_source_forget(source);
    const bool ok = read && cf_catalogue_finish(cat, list.roles, list.n_roles, err);
    name_whole(source, &list, cat, ok, err);
    return ok;
}
