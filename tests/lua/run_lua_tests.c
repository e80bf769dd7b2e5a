/* Runs the tests that are written in Lua, inside the real host.
 *
 * run_lua_tests [--gc] [FILE.lua ...]: without files, every *.lua of the working directory. A file
 * returns a table of named functions; each gets `t`:
 *
 *   t.open(path [, format])     a fixture, read: its selection
 *   t.dir(path)                 a fixture's folder, not read: the `dir` of plugins
 *   t.run(recipe, path, given)  runs a recipe, given as text, on a fixture; nothing is written
 *   t.equal(a, b)               fails unless a == b
 *   t.fails(fn, code, text)     fails unless fn raises that code and the text is in its message
 *
 * Paths are below $CF_FIXTURES. --gc: a full collection at every new handle and every few
 * instructions, which finds what a binding forgot to keep alive.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <unistd.h>

#include "bind.h"

enum { MOST_OPEN = 64 };

typedef struct opened {
    char path[4096];
    const char *root;
    cf_source source;
    cf_catalogue cat;
    cf_plan plan;
} opened;

static cf_scripts scripts;
static opened *open_now[MOST_OPEN]; /* of the test under way */
static int n_open;

static opened *open_fixture(lua_State *L, const char *path)
{
    cf_err err;
    opened *o = n_open < MOST_OPEN ? calloc(1, sizeof *o) : NULL;
    if (!o) {
        luaL_error(L, "too much is open");
        return NULL;
    }
    snprintf(o->path, sizeof o->path, "%s/%s", getenv("CF_FIXTURES"), path);
    o->root = o->path;
    if (!cf_source_open(&o->source, &o->root, 1, false, &err)) {
        free(o);
        cf_raise(L, &err);
    }
    cf_catalogue_init(&o->cat, &o->source);
    cf_plan_init(&o->plan, &o->cat);
    open_now[n_open++] = o;
    return o;
}

static void close_all(void)
{
    while (n_open > 0) {
        opened *o = open_now[--n_open];
        cf_plan_free(&o->plan);
        cf_catalogue_free(&o->cat);
        cf_source_close(&o->source);
        free(o);
    }
}

static opened *read_fixture(lua_State *L, const char *path, const char *format)
{
    opened *o = open_fixture(L, path);
    cf_host *host = cf_host_of(L);
    cf_err err;
    const int64_t paused = cf_host_pause();
    const bool ok = cf_host_read(&scripts, &o->source, format, 2, &o->cat, &err);
    cf_host_resume(host, paused);
    if (!ok) cf_raise(L, &err);
    return o;
}

static int t_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *format = luaL_optstring(L, 2, NULL);
    cf_push_catalogue(L, &read_fixture(L, path, format)->cat);
    return 1;
}

static int t_dir(lua_State *L)
{
    cf_host_of(L)->source = &open_fixture(L, luaL_checkstring(L, 1))->source;
    cf_push_dir(L);
    return 1;
}

static int t_run(lua_State *L)
{
    const char *text = luaL_checkstring(L, 1);
    opened *o = read_fixture(L, luaL_checkstring(L, 2), NULL);
    cf_given given[8];
    size_t n_given = 0;
    if (lua_istable(L, 3))
        for (lua_pushnil(L); n_given < 8 && lua_next(L, 3); lua_pop(L, 1))
            given[n_given++] = (cf_given){lua_tostring(L, -2), lua_tostring(L, -1)};
    char path[] = "/tmp/recipe-XXXXXX.lua";
    const int fd = mkstemps(path, 4);
    const bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    if (!written) return luaL_error(L, "cannot write %s", path);
    cf_recipe recipe;
    cf_err err;
    const int64_t paused = cf_host_pause();
    bool ok = cf_recipe_load(&recipe, &scripts, path, &err);
    if (ok) {
        ok = cf_recipe_plan(&recipe, &scripts, &o->cat, &o->plan, given, n_given, &err) &&
             cf_plan_finish(&o->plan, &err);
        cf_recipe_free(&recipe);
    }
    cf_host_resume(cf_host_of(L), paused);
    unlink(path);
    return ok ? 0 : cf_raise(L, &err);
}

static int t_equal(lua_State *L)
{
    luaL_checkany(L, 2);
    if (lua_compare(L, 1, 2, LUA_OPEQ)) return 0;
    return luaL_error(L, "%s is not %s", luaL_tolstring(L, 1, NULL), luaL_tolstring(L, 2, NULL));
}

static int t_fails(lua_State *L)
{
    const char *code = luaL_checkstring(L, 2), *text = luaL_optstring(L, 3, "");
    lua_pushcfunction(L, cf_explain);
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 0, 0, lua_gettop(L) - 1) == LUA_OK) return luaL_error(L, "nothing was raised");
    const cf_err *err = cf_raised(L, -1);
    if (!err) return luaL_error(L, "no error object was raised");
    char line[sizeof *err];
    cf_err_line(err, line, sizeof line);
    if (strcmp(cf_code_name(err->code), code) != 0 || !strstr(line, text))
        return luaL_error(L, "raised %s: %s", cf_code_name(err->code), line);
    return 0;
}

/* ---- running */

typedef struct test_run {
    const char *path; /* of the file */
    char name[256];   /* of the test to run; "": learn the names */
    char names[200][256];
    int count;
} test_run;

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int run_job(lua_State *L)
{
    static const luaL_Reg functions[] = {{"open", t_open},   {"dir", t_dir},     {"run", t_run},
                                         {"equal", t_equal}, {"fails", t_fails}, {NULL, NULL}};
    test_run *run = lua_touserdata(L, 1);
    const cf_script script = {CF_FORMAT, run->path, run->path, run->path, NULL, 0, NULL, true};
    cf_load_script(L, &script);
    luaL_checktype(L, -1, LUA_TTABLE);
    if (!run->name[0]) {
        for (lua_pushnil(L); run->count < 200 && lua_next(L, -2); lua_pop(L, 1))
            snprintf(run->names[run->count++], 256, "%s", luaL_checkstring(L, -2));
        return 0;
    }
    lua_getfield(L, -1, run->name);
    luaL_newlib(L, functions);
    lua_call(L, 1, 0);
    return 0;
}

/* One state a test. */
static bool run_one(test_run *run, cf_err *err)
{
    cf_host host;
    CF_TRY(cf_host_start(&host, &scripts, NULL, err));
    host.rows = 5000000; /* more time: tests under --gc and sanitizers are slow */
    const bool ok = cf_host_run(&host, run_job, run, err);
    cf_host_stop(&host);
    close_all();
    return ok;
}

static void run_file(const char *path, int *passed, int *failed)
{
    static test_run run;
    cf_err err;
    run = (test_run){.path = path};
    if (!run_one(&run, &err)) {
        printf("not ok  %s: %s\n", path, err.message);
        ++*failed;
        return;
    }
    qsort(run.names, (size_t)run.count, sizeof run.names[0], by_text);
    for (int i = 0; i < run.count; i++) {
        memcpy(run.name, run.names[i], sizeof run.name);
        const bool ok = run_one(&run, &err);
        printf("%s  %s: %s\n", ok ? "ok    " : "not ok", path, run.name);
        char line[sizeof err];
        if (!ok)
            printf("        %s: %s\n", cf_code_name(err.code),
                   cf_err_line(&err, line, sizeof line));
        ++*(ok ? passed : failed);
    }
}

static int is_lua(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 4 && strcmp(entry->d_name + n - 4, ".lua") == 0;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, first = 1;
    if (argc > 1 && strcmp(argv[1], "--gc") == 0) {
        cf_host_stress = true;
        first = 2;
    }
    cf_err err;
    if (!getenv("CF_FIXTURES") || !cf_scripts_find(&scripts, NULL, 0, &err)) {
        fputs("CF_FIXTURES is not set, or no scripts are found\n", stderr);
        return 2;
    }
    for (int i = first; i < argc; i++) run_file(argv[i], &passed, &failed);
    struct dirent **files = NULL;
    const int count = argc > first ? 0 : scandir(".", &files, is_lua, alphasort);
    for (int i = 0; i < count; i++) {
        run_file(files[i]->d_name, &passed, &failed);
        free(files[i]);
    }
    free(files);
    cf_scripts_free(&scripts);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
