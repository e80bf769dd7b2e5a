/* From a script's text to the table it returns, held against what its kind has.
 */
#include <string.h>

#include "bind.h"

typedef struct field_rule {
    const char *name;
    int type; /* LUA_T... */
    bool needed;
} field_rule;

static const field_rule format_rules[] = {
    {"api", LUA_TNUMBER, true},      {"about", LUA_TSTRING, true},   {"roles", LUA_TTABLE, false},
    {"detect", LUA_TFUNCTION, true}, {"files", LUA_TFUNCTION, true}, {"read", LUA_TFUNCTION, true},
    {"whole", LUA_TTABLE, false},    {"apart", LUA_TBOOLEAN, false}, {NULL, 0, false}};
static const field_rule policy_rules[] = {{"api", LUA_TNUMBER, true},
                                          {"about", LUA_TSTRING, true},
                                          {"choose", LUA_TFUNCTION, true},
                                          {NULL, 0, false}};
static const field_rule recipe_rules[] = {
    {"api", LUA_TNUMBER, true},      {"about", LUA_TSTRING, true},  {"options", LUA_TTABLE, false},
    {"pieces", LUA_TBOOLEAN, false}, {"plan", LUA_TFUNCTION, true}, {NULL, 0, false}};

void cf_load_script(lua_State *L, const cf_script *script)
{
    const char *text;
    size_t size;
    cf_err err;
    if (!cf_script_text(script, &cf_host_of(L)->text, &text, &size, &err)) cf_raise(L, &err);
    if (size > 0 && *text == LUA_SIGNATURE[0])
        cf_raise_code(L, CF_L_BYTECODE, "%s: a script is text, this is Lua bytecode",
                      script->origin);
    const int status =
        luaL_loadbufferx(L, text, size, lua_pushfstring(L, "@%s", script->origin), "t");
    if (status == LUA_ERRMEM) cf_host_of(L)->tripped = CF_L_LIMIT_MEM;
    if (status != LUA_OK) lua_error(L);
    lua_remove(L, -2);
    lua_call(L, 0, 1);
}

static void check_rule(lua_State *L, const field_rule *rule, const char *origin)
{
    const int type = lua_getfield(L, -1, rule->name);
    if (type == LUA_TNIL && rule->needed)
        luaL_error(L, "%s: the field '%s' is missing (a %s)", origin, rule->name,
                   lua_typename(L, rule->type));
    if (type != LUA_TNIL && type != rule->type)
        luaL_error(L, "%s: the field '%s' is a %s, not a %s", origin, rule->name,
                   lua_typename(L, type), lua_typename(L, rule->type));
    lua_pop(L, 1);
}

static void check_api(lua_State *L, const char *origin)
{
    int whole;
    lua_getfield(L, -1, "api");
    const lua_Integer api = lua_tointegerx(L, -1, &whole);
    if (!whole || api < 1)
        luaL_error(L, "%s: api is %s, not a number of an api", origin, luaL_tolstring(L, -1, NULL));
    if (api > CF_API)
        luaL_error(L, "%s: written for plugin api %d; this ckptflow offers %d", origin, (int)api,
                   CF_API);
    lua_pop(L, 1);
}

static void check_table(lua_State *L, const field_rule *rules, const char *kind, const char *origin)
{
    if (!lua_istable(L, -1))
        luaL_error(L, "%s: a %s returns a table, this a %s", origin, kind, luaL_typename(L, -1));
    if (lua_getfield(L, -1, "api") == LUA_TNUMBER) {
        lua_pop(L, 1);
        check_api(L, origin); /* first: a later api may have other fields */
    } else {
        lua_pop(L, 1);
    }
    const char *names[16];
    int count = 0;
    for (const field_rule *r = rules; r->name; r++) names[count++] = r->name;
    names[count] = NULL;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int i = 0;
        while (names[i] && strcmp(names[i], name) != 0) i++;
        if (!names[i])
            luaL_error(L, "%s: a %s has no field '%s'%s", origin, kind, name,
                       cf_push_guess(L, name, names));
    }
    for (const field_rule *r = rules; r->name; r++) check_rule(L, r, origin);
}

void cf_load_table(lua_State *L, const cf_script *script)
{
    static const field_rule *const rules[] = {format_rules, policy_rules, recipe_rules};
    cf_load_script(L, script);
    if (script->kind != CF_MODULE)
        check_table(L, rules[script->kind], cf_script_kind_name(script->kind), script->origin);
    else if (!lua_istable(L, -1))
        luaL_error(L, "%s: a module returns a table", script->origin);
}

static bool has_field(lua_State *L, const char *name)
{
    const bool has = lua_getfield(L, -1, name) != LUA_TNIL;
    lua_pop(L, 1);
    return has;
}

cf_script_kind cf_load_kind(lua_State *L)
{
    if (!lua_istable(L, -1)) return CF_FORMAT;
    return has_field(L, "plan") ? CF_RECIPE : has_field(L, "choose") ? CF_POLICY : CF_FORMAT;
}

/* ---- require */

static const cf_script *find_module(const cf_scripts *scripts, const char *name)
{
    if (strncmp(name, "formats.", 8) == 0) return cf_scripts_get(scripts, CF_FORMAT, name + 8);
    return cf_scripts_get(scripts, CF_MODULE, name);
}

static int no_module(lua_State *L, const cf_scripts *scripts, const char *name)
{
    const char **names = lua_newuserdatauv(L, (scripts->count + 3) * sizeof *names, 0);
    size_t count = 0;
    names[count++] = "ckptflow.json";
    names[count++] = "ckptflow.pickle";
    for (size_t i = 0; i < scripts->count; i++) {
        if (scripts->items[i].kind == CF_MODULE)
            names[count++] = scripts->items[i].name;
        else if (scripts->items[i].kind == CF_FORMAT)
            names[count++] = lua_pushfstring(L, "formats.%s", scripts->items[i].name);
        luaL_checkstack(L, 2, NULL);
    }
    names[count] = NULL;
    return luaL_error(L, "there is no module '%s'%s", name, cf_push_guess(L, name, names));
}

/* Loaded modules are in a table of the registry; `false` while one is being loaded. */
int cf_require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, "modules");
    const int type = lua_getfield(L, -1, name);
    if (type == LUA_TBOOLEAN)
        return luaL_error(L, "modules require one another in a circle: '%s'", name);
    if (type != LUA_TNIL) return 1;
    lua_pop(L, 1);
    lua_pushboolean(L, false);
    lua_setfield(L, -2, name);
    if (strcmp(name, "ckptflow.json") == 0) {
        cf_json_module(L);
    } else if (strcmp(name, "ckptflow.pickle") == 0) {
        cf_pickle_module(L);
    } else {
        const cf_scripts *scripts = cf_host_of(L)->scripts;
        const cf_script *script = find_module(scripts, name);
        if (!script) {
            lua_pushnil(L);
            lua_setfield(L, -2, name);
            return no_module(L, scripts, name);
        }
        cf_load_table(L, script);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
    return 1;
}
