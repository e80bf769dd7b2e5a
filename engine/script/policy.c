/* Policies: who keeps what several ranks hold.
 *
 * `choose` is asked about every item in the order of its smallest holder, then of the checkpoint,
 * with tables that are made once: one for the item, one for each set of holders, one for what each
 * rank has to carry so far. What it answers is checked here; `load` grows here alone.
 */
#include <math.h>
#include <string.h>

#include "bind.h"
#include "num.h"

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

/* Whole numbers as long as 63 bits suffice. */
typedef struct carried {
    bool real;
    int64_t whole;
    double sum;
} carried;

enum { KEY, KIND, BYTES, WHOLE_BYTES, VALUE, TENSOR };
static const char *const FIELDS[] = {"key", "kind", "bytes", "whole_bytes", NULL};

typedef struct walk {
    const char *policy;
    int choose, item, load, sets, words; /* places on the stack */
    carried *carried;                    /* by rank: what load must be, out of the policy's reach */
} walk;

static int no_field(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    return luaL_error(L, "an item has no field '%s'%s", name, cf_push_guess(L, name, FIELDS));
}

/* Numbers of the items by smallest holder, as they came. */
static uint32_t *in_order(lua_State *L, const cf_held *items, size_t count, int32_t ranks)
{
    uint32_t *order = lua_newuserdatauv(L, (count + 1) * sizeof *order, 0);
    cf_host *host = cf_host_of(L);
    size_t *place = CF_NEWS(&host->arena, size_t, (size_t)ranks + 1);
    cf_err err;
    if (!place && !cf_arena_ok(&host->arena, &err)) cf_raise(L, &err);
    for (size_t i = 0; i < count; i++) place[items[i].holders->list[0] + 1]++;
    for (int32_t r = 0; r < ranks; r++) place[r + 1] += place[r];
    for (size_t i = 0; i < count; i++) order[place[items[i].holders->list[0]]++] = (uint32_t)i;
    return order;
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

static void check_same(lua_State *L, const walk *w, bool same, const char *what)
{
    if (!same) luaL_error(L, "the policy %s changes the %s it is given", w->policy, what);
}

static bool is_rank(lua_State *L, int table, lua_Integer at, lua_Integer rank)
{
    const bool same = lua_rawgeti(L, table, at) == LUA_TNUMBER && lua_tointeger(L, -1) == rank;
    lua_pop(L, 1);
    return same;
}

/* The list of holders is handed out again and again: a policy that changes it is told so, of its
 * ends and length after each question, of the rest after all. */
static void check_holders(lua_State *L, const walk *w, const cf_ranks *holders, bool all)
{
    push_holders(L, w, holders);
    const int table = lua_gettop(L);
    bool same = lua_rawlen(L, table) == holders->count;
    for (size_t i = 0; same && i < holders->count; i++)
        if (all || !i || i == holders->count - 1)
            same = is_rank(L, table, (lua_Integer)i + 1, holders->list[i]);
    lua_pop(L, 1);
    check_same(L, w, same, "list of holders");
}

static void set_number(lua_State *L, const walk *w, int field, uint64_t value)
{
    lua_pushvalue(L, w->words + field);
    lua_pushinteger(L, value > INT64_MAX ? INT64_MAX : (lua_Integer)value);
    lua_rawset(L, w->item);
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
    lua_pushvalue(L, w->words + KEY);
    lua_pushstring(L, held->key);
    lua_rawset(L, w->item);
    lua_pushvalue(L, w->words + KIND);
    lua_pushvalue(L, w->words + (held->value ? VALUE : TENSOR));
    lua_rawset(L, w->item);
    set_number(L, w, BYTES, held->bytes);
    set_number(L, w, WHOLE_BYTES, held->whole_bytes);
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
    check_holders(L, w, held->holders, false);
    return (int32_t)rank;
}

static void push_carried(lua_State *L, const carried *c)
{
    if (c->real)
        lua_pushnumber(L, c->sum);
    else
        lua_pushinteger(L, c->whole);
}

static void check_load(lua_State *L, const walk *w, int32_t rank)
{
    lua_rawgeti(L, w->load, rank);
    push_carried(L, &w->carried[rank]);
    check_same(L, w, lua_rawequal(L, -1, -2), "loads");
    lua_pop(L, 2);
}

/* Takes the weight from the stack. */
static void add_load(lua_State *L, const walk *w, int32_t rank)
{
    carried *c = &w->carried[rank];
    check_load(L, w, rank);
    c->real =
        c->real || !lua_isinteger(L, -1) || !cf_add(c->whole, lua_tointeger(L, -1), &c->whole);
    c->sum += lua_tonumber(L, -1);
    lua_pop(L, 1);
    push_carried(L, c);
    lua_rawseti(L, w->load, rank);
}

static void check_all(lua_State *L, const walk *w, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++) check_load(L, w, r);
    lua_pushnil(L);
    while (lua_next(L, w->sets)) {
        lua_pop(L, 1);
        check_holders(L, w, lua_touserdata(L, -1), true);
    }
}

void cf_policy_walk(lua_State *L, int index, cf_held *items, size_t count, int32_t ranks,
                    double *load)
{
    static const luaL_Reg meta[] = {{"__index", no_field}, {NULL, NULL}};
    const int top = lua_gettop(L);
    index = lua_absindex(L, index);
    luaL_checkstack(L, 30, NULL);
    cf_host *host = cf_host_of(L);
    if (host->rows < count) host->rows = count;
    const uint32_t *order = in_order(L, items, count, ranks);
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
    w.carried = CF_NEWS(&host->arena, carried, (size_t)ranks + 1);
    cf_err err;
    if (!w.carried && !cf_arena_ok(&host->arena, &err)) cf_raise(L, &err);
    for (int32_t r = 0; r < ranks; r++) {
        lua_pushinteger(L, 0);
        lua_rawseti(L, w.load, r);
    }
    w.words = lua_gettop(L) + 1; /* made once: half a million items have them */
    for (int i = 0; FIELDS[i]; i++) lua_pushstring(L, FIELDS[i]);
    lua_pushliteral(L, "value");
    lua_pushliteral(L, "tensor");
    lua_newtable(L);
    w.sets = lua_gettop(L);
    for (size_t i = 0; i < count; i++) {
        cf_held *held = &items[order[i]];
        held->keeper = ask(L, &w, held);
        add_load(L, &w, held->keeper);
        lua_settop(L, w.sets);
    }
    check_all(L, &w, ranks);
    for (int32_t r = 0; load && r < ranks; r++) load[r] = w.carried[r].sum;
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
