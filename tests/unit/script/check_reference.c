/* lua/meta/ckptflow.lua against the engine: every method and field that a handle registers is
 * documented, and nothing else; so are the functions of the modules. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "suite.h"

static char *reference;

static bool read_reference(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/../../lua/meta/ckptflow.lua", getenv("CF_FIXTURES"));
    FILE *file = fopen(path, "r");
    if (!file) return perror(path), false;
    cf_text text = {0};
    char bytes[4096];
    size_t n;
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) cf_text_add(&text, bytes, n);
    fclose(file);
    reference = text.at;
    return reference != NULL;
}

/* What stands between `begin` and the character `end`, after `from`; false: no more. */
static bool next(const char **from, const char *begin, const char *ends, char name[64])
{
    const char *at = strstr(*from, begin);
    if (!at) return false;
    at += strlen(begin);
    snprintf(name, 64, "%.*s", (int)strcspn(at, ends), at);
    *from = at;
    return true;
}

static bool registered(const cf_handle *handle, const char *name, bool method)
{
    for (const luaL_Reg *m = handle->methods; method && m && m->name; m++)
        if (strcmp(m->name, name) == 0) return true;
    for (const char *const *f = handle->fields; !method && f && *f; f++)
        if (strcmp(*f, name) == 0) return true;
    return false;
}

/* The lines of a class: from its ---@class to the first line that is no annotation. */
static char *class_block(const char *class)
{
    char line[80];
    snprintf(line, sizeof line, "\n---@class ckptflow.%s\n", class);
    const char *begin = strstr(reference, line);
    if (!begin) {
        snprintf(line, sizeof line, "\n---@class ckptflow.%s ", class);
        begin = strstr(reference, line);
    }
    ck_assert_msg(begin != NULL, "no class ckptflow.%s", class);
    const char *end = begin + 1;
    while (strncmp(end, "---", 3) == 0) end += strcspn(end, "\n") + 1;
    return strndup(begin, (size_t)(end - begin));
}

static void check_handle(const cf_handle *handle)
{
    char class[32], wanted[96], name[64];
    snprintf(class, sizeof class, "%s", handle->name);
    class[0] = (char)toupper(class[0]);
    char *block = class_block(class);
    for (const luaL_Reg *m = handle->methods; m && m->name; m++) {
        snprintf(wanted, sizeof wanted, "\nfunction %s:%s(", class, m->name);
        ck_assert_msg(strstr(reference, wanted) != NULL, "%s:%s lacks", handle->name, m->name);
    }
    for (const char *const *f = handle->fields; f && *f; f++) {
        bool found = false;
        for (const char *at = block; !found && next(&at, "---@field ", " ?\n", name);)
            found = strcmp(name, *f) == 0;
        ck_assert_msg(found, "%s.%s lacks", handle->name, *f);
    }
    snprintf(wanted, sizeof wanted, "\nfunction %s:", class);
    for (const char *at = reference; next(&at, wanted, "(", name);)
        ck_assert_msg(registered(handle, name, true), "there is no %s:%s", handle->name, name);
    for (const char *at = block; next(&at, "---@field ", " ?\n", name);)
        ck_assert_msg(name[0] == '[' || registered(handle, name, false), "there is no %s.%s",
                      handle->name, name);
    free(block);
}

/* Handles are known by their metatables, where __index is a closure over the cf_handle. */
static int handles_job(lua_State *L)
{
    int *count = lua_touserdata(L, 1);
    for (lua_pushnil(L); lua_next(L, LUA_REGISTRYINDEX); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || !lua_istable(L, -1)) continue;
        if (lua_getfield(L, -1, "__index") == LUA_TFUNCTION && lua_getupvalue(L, -1, 1)) {
            const cf_handle *handle = lua_touserdata(L, -1);
            if (strcmp(handle->name, "walk") != 0) { /* which scripts never see */
                check_handle(handle);
                ++*count;
            }
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    return 0;
}

static int modules_job(lua_State *L)
{
    cf_scripts *scripts = lua_touserdata(L, 1);
    const char *names[32] = {"ckptflow.json", "ckptflow.pickle"};
    int count = 2;
    for (size_t i = 0; i < scripts->count; i++)
        if (scripts->items[i].kind == CF_MODULE) names[count++] = scripts->items[i].name;
    for (int i = 0; i < count; i++) {
        char wanted[96], name[64];
        const char *module = names[i] + strlen("ckptflow.");
        lua_pushcfunction(L, cf_require);
        lua_pushstring(L, names[i]);
        lua_call(L, 1, 1);
        free(class_block(module));
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
            snprintf(wanted, sizeof wanted, "\nfunction %s.%s(", module, lua_tostring(L, -2));
            ck_assert_msg(strstr(reference, wanted) != NULL, "%s lacks", wanted + 10);
        }
        snprintf(wanted, sizeof wanted, "\nfunction %s.", module);
        for (const char *at = reference; next(&at, wanted, "(", name);) {
            ck_assert_msg(lua_getfield(L, -1, name) == LUA_TFUNCTION, "there is no %s.%s", module,
                          name);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    return 0;
}

static void run_job(lua_CFunction job, void *arg, const cf_scripts *scripts)
{
    cf_host host;
    cf_err err;
    ck_assert(cf_host_start(&host, scripts, NULL, &err));
    ck_assert_msg(cf_host_run(&host, job, arg, &err), "%s", err.message);
    cf_host_stop(&host);
}

START_TEST(handles_are_documented)
{
    cf_scripts none = {0};
    int count = 0;
    run_job(handles_job, &count, &none);
    ck_assert_int_ge(count, 8);
}
END_TEST

START_TEST(modules_are_documented)
{
    cf_scripts scripts;
    cf_err err;
    ck_assert(cf_scripts_find(&scripts, NULL, 0, &err));
    run_job(modules_job, &scripts, &scripts);
    cf_scripts_free(&scripts);
}
END_TEST

int main(void)
{
    unsetenv("CKPTFLOW_PATH");
    setenv("XDG_DATA_HOME", "/nonexistent", 1);
    if (!read_reference()) return 1;
    Suite *suite = suite_create("reference");
    TCase *tests = tcase_create("reference");
    tcase_add_test(tests, handles_are_documented);
    tcase_add_test(tests, modules_are_documented);
    suite_add_tcase(suite, tests);
    const int failed = run_suite(suite);
    free(reference);
    return failed;
}
