/* Policies: who keeps what several ranks hold.
 *
 * `choose` is asked about every item in the order of its smallest holder, then of the checkpoint,
 * with tables that are made once: one for the item, one for each set of holders, one for what each
 * rank has to carry so far. What it answers is checked here; `load` grows here alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"

static const char POLICY[] = "policy";

/* ---- loading */

void cf_push_policy(lua_State *L, const char *name)
{
    static const cf_handle handle = {POLICY, NULL, NULL, NULL, NULL};
    cf_host *host = cf_host_of(L);
    cf_err err;
    const cf_script *script = cf_script_named(host->scripts, &host->arena, CF_POLICY, name, &err);
    if (!script) cf_raise(L, &err);
    cf_handle_register(L, &handle);
    cf_new(L, 0, 2, POLICY); /* what the script returned, and its name */
    cf_load_table(L, script);
    lua_setiuservalue(L, -2, 1);
    lua_pushstring(L, script->name);
    lua_setiuservalue(L, -2, 2);
}

bool cf_is_policy(lua_State *L, int index)
{
    return luaL_testudata(L, index, POLICY) != NULL;
}

/* ---- asking */

typedef struct walk {
    const char *policy;
    int choose, item, load, sets; /* places on the stack */
} walk;

static int no_field(lua_State *L)
{
    static const char *const fields[] = {"key", "kind", "bytes", "whole_bytes", NULL};
    const char *name = luaL_checkstring(L, 2);
    return luaL_error(L, "an item has no field '%s'%s", name, cf_push_guess(L, name, fields));
}

static const cf_held *ordering;

static int by_smallest(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const int32_t p = ordering[x].holders->list[0], q = ordering[y].holders->list[0];
    if (p != q) return p < q ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The table of a set of holders, made at its first use. */
static void push_holders(lua_State *L, const walk *w, const cf_ranks *holders)
{
    if (lua_rawgetp(L, w->sets, holders) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_createtable(L, (int)holders->count, 0);
    for (size_t i = 0; i < holders->count; i++) {
        lua_pushinteger(L, holders->list[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_pushvalue(L, -1);
    lua_rawsetp(L, w->sets, holders);
}

/* The list of holders is handed out again and again: a policy that changes it is told so. */
static void check_unchanged(lua_State *L, const walk *w, const cf_ranks *holders)
{
    push_holders(L, w, holders);
    bool same = lua_rawlen(L, -1) == holders->count;
    if (same) {
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, (lua_Integer)holders->count);
        same = lua_tointeger(L, -2) == holders->list[0] &&
               lua_tointeger(L, -1) == holders->list[holders->count - 1];
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
    if (!same) luaL_error(L, "the policy %s changes the list of holders it is given", w->policy);
}

static void set_field(lua_State *L, const walk *w, const char *name, uint64_t value)
{
    lua_pushinteger(L, value > INT64_MAX ? INT64_MAX : (lua_Integer)value);
    lua_setfield(L, w->item, name);
}

static int not_a_holder(lua_State *L, const walk *w, const cf_held *held)
{
    luaL_Buffer ranks;
    const bool number = lua_type(L, -2) == LUA_TNUMBER;
    const char *answer =
        number ? luaL_tolstring(L, -2, NULL) : lua_pushfstring(L, "a %s", luaL_typename(L, -2));
    luaL_buffinit(L, &ranks);
    for (size_t i = 0; i < held->holders->count && i < 8; i++) {
        char digits[24];
        snprintf(digits, sizeof digits, i ? ", %d" : "%d", held->holders->list[i]);
        luaL_addstring(&ranks, digits);
    }
    if (held->holders->count > 8) luaL_addstring(&ranks, ", ...");
    luaL_pushresult(&ranks);
    return cf_raise_code(
        L, CF_L_PLAN, "the policy %s gives %s to %s, which does not hold it (rank%s %s)", w->policy,
        held->key, answer, held->holders->count > 1 ? "s" : "", lua_tostring(L, -1));
}

/* One question; the weight is left on the stack. */
static int32_t ask(lua_State *L, const walk *w, const cf_held *held)
{
    lua_pushstring(L, held->key);
    lua_setfield(L, w->item, "key");
    lua_pushstring(L, held->value ? "value" : "tensor");
    lua_setfield(L, w->item, "kind");
    set_field(L, w, "bytes", held->bytes);
    set_field(L, w, "whole_bytes", held->whole_bytes);
    lua_pushvalue(L, w->choose);
    lua_pushvalue(L, w->item);
    push_holders(L, w, held->holders);
    lua_pushvalue(L, w->load);
    lua_call(L, 3, 2);
    int whole;
    const lua_Integer rank = lua_tointegerx(L, -2, &whole);
    if (!whole || lua_type(L, -2) != LUA_TNUMBER || !cf_ranks_hold(held->holders, rank))
        not_a_holder(L, w, held);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushinteger(L, (lua_Integer)held->bytes);
    }
    const lua_Number weight = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(weight >= 0) || isinf(weight))
        cf_raise_code(L, CF_L_PLAN, "the policy %s weighs %s with %s, which is no number from 0 on",
                      w->policy, held->key, isnan(weight) ? "nan" : luaL_tolstring(L, -1, NULL));
    check_unchanged(L, w, held->holders);
    return (int32_t)rank;
}

void cf_policy_walk(lua_State *L, int index, cf_held *items, size_t count, int32_t ranks,
                    double *load)
{
    static const luaL_Reg meta[] = {{"__index", no_field}, {NULL, NULL}};
    const int top = lua_gettop(L);
    index = lua_absindex(L, index);
    luaL_checkstack(L, 20, NULL);
    cf_host *host = cf_host_of(L);
    if (host->rows < count) host->rows = count;
    uint32_t *order = lua_newuserdatauv(L, (count + 1) * sizeof *order, 0);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    ordering = items;
    if (count > 1) qsort(order, count, sizeof *order, by_smallest);
    walk w = {0};
    lua_getiuservalue(L, index, 2);
    w.policy = lua_tostring(L, -1);
    lua_getiuservalue(L, index, 1);
    lua_getfield(L, -1, "choose");
    w.choose = lua_gettop(L);
    lua_createtable(L, 0, 4);
    w.item = lua_gettop(L);
    luaL_newlib(L, meta);
    lua_setmetatable(L, w.item);
    lua_createtable(L, ranks, 1);
    w.load = lua_gettop(L);
    for (int32_t r = 0; r < ranks; r++) {
        lua_pushinteger(L, 0);
        lua_rawseti(L, w.load, r);
    }
    lua_newtable(L);
    w.sets = lua_gettop(L);
    for (size_t i = 0; i < count; i++) {
        cf_held *held = &items[order[i]];
        held->keeper = ask(L, &w, held);
        lua_rawgeti(L, w.load, held->keeper);
        if (lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L, "the policy %s changes the loads it is given", w.policy);
        lua_arith(L, LUA_OPADD);
        lua_rawseti(L, w.load, held->keeper);
        lua_settop(L, w.sets);
    }
    for (int32_t r = 0; load && r < ranks; r++) {
        lua_rawgeti(L, w.load, r);
        load[r] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    lua_settop(L, top);
}

/* ---- without a recipe */

typedef struct placing {
    const char *name;
    cf_held *items;
    size_t count;
    int32_t ranks;
    double *load;
} placing;

static int place_job(lua_State *L)
{
    const placing *p = lua_touserdata(L, 1);
    cf_push_policy(L, p->name);
    cf_policy_walk(L, -1, p->items, p->count, p->ranks, p->load);
    return 0;
}

bool cf_policy_place(const cf_scripts *scripts, const char *name, cf_held *items, size_t count,
                     int32_t ranks, double *load, cf_err *err)
{
    cf_host host;
    placing p = {name, items, count, ranks, load};
    CF_TRY(cf_host_start(&host, scripts, NULL, err));
    host.rows = count;
    const bool ok = cf_host_run(&host, place_job, &p, err);
    cf_host_stop(&host);
    return ok;
}
