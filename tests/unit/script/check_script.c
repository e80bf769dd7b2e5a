/* The host from C: the search path, detection, reading on threads, limits. What scripts see is
 * tested in Lua (tests/lua). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bind.h"
#include "suite.h"

static char folder[] = "/tmp/check-script-XXXXXX";
static const char GOOD[] =
    "return { api = 1, about = 'mine', detect = function(dir) return %s end, "
    "files = function(dir) return dir:glob('**') end, "
    "read = function(file, out) %s end }";

/* A file below the folder, whose path is returned until the next call. */
static const char *put(const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + sizeof folder, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static const char *put_format(const char *name, const char *detect, const char *read)
{
    char text[1024];
    snprintf(text, sizeof text, GOOD, detect, read);
    return put(name, text);
}

static void find(cf_scripts *scripts, const char *file)
{
    cf_err err;
    ck_assert_msg(cf_scripts_find(scripts, &file, file ? 1 : 0, &err), "%s", err.message);
}

/* Reads a folder; CF_OK or the code. */
static cf_code read_folder(const char *path, const char *plugin, const char *format, int threads,
                           cf_err *err, char *rows, size_t size)
{
    cf_scripts scripts;
    find(&scripts, plugin);
    cf_source source;
    ck_assert(cf_source_open(&source, &path, 1, false, err));
    cf_catalogue cat;
    cf_catalogue_init(&cat, &source);
    const bool ok = cf_host_read(&scripts, &source, format, threads, &cat, err);
    for (size_t i = 0, n = 0; rows && ok && i < cat.count && n < size; i++)
        n += (size_t)snprintf(rows + n, size - n, "%s %zu\n", cat.rows[i]->key,
                              cat.rows[i]->n_pieces);
    cf_catalogue_free(&cat);
    cf_source_close(&source);
    cf_scripts_free(&scripts);
    return ok ? CF_OK : err->code;
}

START_TEST(builtin_scripts_are_found)
{
    cf_scripts scripts;
    find(&scripts, NULL);
    ck_assert_ptr_nonnull(cf_scripts_get(&scripts, CF_FORMAT, "olmo-legacy"));
    ck_assert_ptr_nonnull(cf_scripts_get(&scripts, CF_POLICY, "lowest-rank"));
    ck_assert_ptr_nonnull(cf_scripts_get(&scripts, CF_RECIPE, "unshard"));
    ck_assert_ptr_nonnull(cf_scripts_get(&scripts, CF_MODULE, "ckptflow.torch"));
    ck_assert_ptr_null(cf_scripts_get(&scripts, CF_FORMAT, "unshard"));
    cf_scripts_free(&scripts);
}
END_TEST

START_TEST(earlier_places_shadow_later_ones)
{
    put_format("path/formats/safetensors.lua", "nil", "");
    char place[600];
    snprintf(place, sizeof place, ":%s/path:/nowhere", folder);
    setenv("CKPTFLOW_PATH", place, 1);
    cf_scripts scripts;
    find(&scripts, NULL);
    const cf_script *mine = cf_scripts_get(&scripts, CF_FORMAT, "safetensors");
    ck_assert_ptr_nonnull(strstr(mine->origin, "path/formats/safetensors.lua"));
    ck_assert_ptr_nonnull(mine->shadows);
    cf_scripts_free(&scripts);

    find(&scripts, put_format("safetensors.lua", "nil", ""));
    mine = cf_scripts_get(&scripts, CF_FORMAT, "safetensors");
    ck_assert(mine->named);
    ck_assert_ptr_nonnull(strstr(mine->shadows->origin, "path/formats/safetensors.lua"));
    cf_scripts_free(&scripts);
    unsetenv("CKPTFLOW_PATH");
}
END_TEST

START_TEST(kinds_are_told_by_folder_or_by_content)
{
    static const struct {
        const char *name, *text;
        cf_script_kind kind;
    } cases[] = {
        {"policies/x.lua", "syntax error", CF_POLICY},
        {"recipes/x.lua", "return {}", CF_RECIPE},
        {"x.lua", "return { plan = function() end }", CF_RECIPE},
        {"y.lua", "return { choose = function() end }", CF_POLICY},
        {"z.lua", "return {}", CF_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cf_scripts scripts;
        find(&scripts, put(cases[i].name, cases[i].text));
        const char name[] = {"xxxyz"[i], '\0'};
        const cf_script *script = cf_scripts_get(&scripts, cases[i].kind, name);
        ck_assert_msg(script && script->named, "%s", cases[i].name);
        cf_scripts_free(&scripts);
    }
}
END_TEST

START_TEST(detection)
{
    cf_err err;
    put("empty/note.txt", "x");
    char path[512];
    snprintf(path, sizeof path, "%s/empty", folder);
    static const struct {
        const char *detect;
        cf_code code;
        const char *message;
    } cases[] = {
        {"nil", CF_E_MAGIC, "no format recognised among 1 file: note.txt (text)"},
        {"90, 'mine'", CF_E_MISSING_FILE, "note.txt"},
        {"error('no')", CF_E_MAGIC, "no format"},
        {"dir:file('gone').root", CF_E_MAGIC, "no format"},
        {"101", CF_E_MAGIC, "no format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *plugin =
            put_format("mine.lua", cases[i].detect, "file:refuse('x', nil, 'E_MISSING_FILE')");
        ck_assert_int_eq(read_folder(path, plugin, NULL, 1, &err, NULL, 0), cases[i].code);
        char line[sizeof err];
        ck_assert_msg(strstr(cf_err_line(&err, line, sizeof line), cases[i].message), "%s", line);
    }
    put_format("path/formats/twin.lua", "90", "");
    char place[600];
    snprintf(place, sizeof place, "%s/path", folder);
    setenv("CKPTFLOW_PATH", place, 1);
    ck_assert_int_eq(
        read_folder(path, put_format("mine.lua", "90, 'it'", ""), NULL, 1, &err, NULL, 0),
        CF_E_FORMAT_TIE);
    ck_assert_ptr_nonnull(strstr(err.message, "twin"));
    ck_assert_ptr_nonnull(strstr(err.message, "mine (it)"));
    ck_assert_ptr_nonnull(strstr(err.hint, "--format"));
    unsetenv("CKPTFLOW_PATH");
}
END_TEST

/* An unreadable file is told, not "no format". */
START_TEST(unreadable_files_are_named)
{
    cf_err err;
    put("broken/x.dat", "PK\3\4 and no more");
    char path[512];
    snprintf(path, sizeof path, "%s/broken", folder);
    const char *plugin = put_format("mine.lua", "dir:glob('*')[1].root.x and 50", "");
    const cf_code code = read_folder(path, plugin, NULL, 1, &err, NULL, 0);
    ck_assert_int_ne(code, CF_E_MAGIC);
    ck_assert_int_eq(cf_code_exit(code), 4);
    ck_assert_str_eq(err.file, "x.dat");
}
END_TEST

/* The catalogue and the error are the same whatever the number of threads. */
START_TEST(threads_change_nothing)
{
    char name[64], path[512], one[8192] = "", many[8192] = "";
    cf_err err, again;
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "many/f%d.json", i);
        put(name, "{\"a\": [1, 2]}");
    }
    snprintf(path, sizeof path, "%s/many", folder);
    const char *plugin =
        put_format("mine.lua", "90", "for k, v in file:walk() do out:value(file.name .. k, v) end");
    ck_assert_int_eq(read_folder(path, plugin, NULL, 1, &err, one, sizeof one), CF_OK);
    ck_assert_ptr_nonnull(strstr(one, "f9.jsona 0\nf10.jsona 0\n"));
    for (int round = 0; round < 10; round++) {
        ck_assert_int_eq(read_folder(path, plugin, NULL, 4, &err, many, sizeof many), CF_OK);
        ck_assert_str_eq(one, many);
    }
    plugin =
        put_format("mine.lua", "90", "if file.name:match('[2-5]%d') then file:refuse('bad') end");
    ck_assert_int_eq(read_folder(path, plugin, NULL, 1, &err, NULL, 0), CF_E_LAYOUT);
    ck_assert_str_eq(err.file, "f20.json");
    for (int round = 0; round < 10; round++) {
        ck_assert_int_eq(read_folder(path, plugin, NULL, 4, &again, NULL, 0), CF_E_LAYOUT);
        ck_assert_str_eq(err.file, again.file);
    }
}
END_TEST

START_TEST(nodes_do_not_outlive_their_call)
{
    cf_err err;
    put("two/a.json", "{\"a\": [1]}");
    put("two/b.json", "{\"a\": [1]}");
    char path[512];
    snprintf(path, sizeof path, "%s/two", folder);
    const char *plugin = put(
        "mine.lua", "local kept return { api = 1, about = 'x', detect = function() return 90 end, "
                    "files = function(dir) return dir:glob('*') end, read = function(file) "
                    "if kept then return kept.a end kept = file.root end }");
    ck_assert_int_eq(read_folder(path, plugin, NULL, 1, &err, NULL, 0), CF_L_ERROR);
    ck_assert_ptr_nonnull(strstr(err.message, "a node outlived the read of its file"));
    ck_assert_str_eq(err.file, "b.json");
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* One call of the Lua library that never ends: the watch ends the process. */
START_TEST(endless_library_calls_end_the_process)
{
    const char *path = put("redos.lua", "local s = ('a'):rep(40000) s:find(('.-'):rep(30) .. 'b')");
    const pid_t child = fork();
    if (child == 0) {
        cf_scripts scripts;
        cf_recipe recipe;
        cf_err err;
        cf_host_watch(98);
        find(&scripts, NULL);
        _exit(cf_recipe_load(&recipe, &scripts, path, &err) ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 98);
}
END_TEST
#endif

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    unsetenv("CKPTFLOW_PATH");
    setenv("XDG_DATA_HOME", folder, 1);
    Suite *suite = suite_create("script");
    TCase *tests = tcase_create("script");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, builtin_scripts_are_found);
    tcase_add_test(tests, earlier_places_shadow_later_ones);
    tcase_add_test(tests, kinds_are_told_by_folder_or_by_content);
    tcase_add_test(tests, detection);
    tcase_add_test(tests, unreadable_files_are_named);
    tcase_add_test(tests, threads_change_nothing);
    tcase_add_test(tests, nodes_do_not_outlive_their_call);
#ifndef __SANITIZE_THREAD__ /* which holds signals back until a system call */
    tcase_add_test(tests, endless_library_calls_end_the_process);
#endif
    suite_add_tcase(suite, tests);
    const int failed = run_suite(suite);
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (system(command) != 0) return 1;
    return failed;
}
