/* file:walk: the leaves of a tree and their keys.
 *
 * Dicts that are not empty are entered, lists and tuples where a tensor lies below; everything else
 * is a leaf, and so is a container that holds itself. Whether a tensor lies below is worked out
 * once for each container of a call, so that a graph of shared lists costs no more than its size.
 * Containers that several places share are entered in each of them, but not without end: a few
 * hundred bytes of shared lists can stand for 2^40 tensors.
 * Keys are joined with "."; two leaves of one key are an error here, since nobody could tell them
 * apart later.
 */
#include <string.h>

#include "bind.h"

static const char WALK[] = "walk";

enum { MOST_AGAIN = 1 << 15, TIMES = 4 };

typedef struct walk_frame {
    const cf_node *node;
    size_t next;   /* number of the next child */
    size_t length; /* of the container's own key */
} walk_frame;

typedef struct walk {
    cf_arena arena; /* of the keys seen */
    cf_map seen;
    cf_map entered;     /* containers that several places may share */
    size_t once, again; /* children of containers: when entered first, and later */
    cf_text key;
    uint32_t call;       /* the call it belongs to */
    const cf_node *root; /* until it was looked at */
    int depth;
    walk_frame frames[CF_MOST_DEPTH];
} walk;

static size_t child_count(const cf_node *node)
{
    return node->kind == CF_NODE_DICT ? node->dict->count : node->list->count;
}

static const cf_node *child_at(const cf_node *node, size_t at)
{
    return node->kind == CF_NODE_DICT ? node->dict->pairs[at].value : node->list->items[at];
}

static bool is_container(const cf_node *node)
{
    return node->kind == CF_NODE_DICT || node->kind == CF_NODE_LIST || node->kind == CF_NODE_TUPLE;
}

/* ---- does a tensor lie below? */

enum { UNDER_WAY = 1, NOTHING, TENSOR };

/* Keeps the answer for a container until the end of the call. */
static void remember(lua_State *L, const cf_node *node, uint64_t answer)
{
    cf_host *host = cf_host_of(L);
    bool fresh;
    cf_err err;
    const void *key = &node; /* borrowed by the map only where it is new */
    if (answer == UNDER_WAY) key = cf_memdup(&host->arena, &node, sizeof(const cf_node *));
    uint64_t *place = key ? cf_map_put(&host->reach, key, sizeof(const cf_node *), &fresh) : NULL;
    if (place) {
        *place = answer;
        return;
    }
    cf_arena_ok(&host->arena, &err);
    cf_raise(L, &err);
}

static bool reaches(lua_State *L, const cf_node *node, int depth)
{
    if (node->kind == CF_NODE_TENSOR) return true;
    if (node->kind == CF_NODE_OBJECT) {
        const char *name = cf_node_class(node);
        return strcmp(name, "ShardedTensor") == 0 || strcmp(name, "DTensor") == 0;
    }
    if (!is_container(node)) return false;
    if (depth > CF_MOST_DEPTH)
        cf_raise_code(L, CF_E_DEPTH, "nested more than %d deep", CF_MOST_DEPTH);
    uint64_t known = 0;
    if (cf_map_get(&cf_host_of(L)->reach, &node, sizeof node, &known)) return known == TENSOR;
    remember(L, node, UNDER_WAY);
    bool found = false;
    const size_t count = child_count(node);
    for (size_t i = 0; i < count && !found; i++) found = reaches(L, child_at(node, i), depth + 1);
    remember(L, node, found ? TENSOR : NOTHING);
    return found;
}

/* The frame of a container that is being walked; -1. */
static int frame_of(const walk *w, const cf_node *node)
{
    for (int i = 0; i < w->depth; i++)
        if (w->frames[i].node == node) return i;
    return -1;
}

static bool enters(lua_State *L, const walk *w, const cf_node *node)
{
    if (!is_container(node) || child_count(node) == 0 || frame_of(w, node) >= 0) return false;
    return node->kind == CF_NODE_DICT || reaches(L, node, 0);
}

/* ---- keys */

/* Ends the key with the component of a child. */
static void add_component(lua_State *L, walk *w, const walk_frame *frame, size_t at)
{
    cf_text *key = &w->key;
    key->size = frame->length;
    if (w->depth > 1) cf_text_str(key, ".");
    const cf_node *name =
        frame->node->kind == CF_NODE_DICT ? frame->node->dict->pairs[at].key : NULL;
    if (!name)
        cf_text_printf(key, "%zu", at);
    else if (name->kind == CF_NODE_STRING)
        cf_text_add(key, name->text.at, name->text.length);
    else
        cf_node_show(key, name, CF_MOST_KEY);
    if (key->size > CF_MOST_KEY)
        cf_raise_code(L, CF_E_LIMIT, "a key of more than %d bytes", CF_MOST_KEY);
    cf_err err;
    if (!cf_text_ok(key, &err)) cf_raise(L, &err);
}

static void remember_key(lua_State *L, walk *w)
{
    bool fresh = false;
    cf_err err;
    const char *key = cf_strndup(&w->arena, w->key.at ? w->key.at : "", w->key.size);
    if (!key || !cf_map_put(&w->seen, key, w->key.size, &fresh)) {
        cf_arena_ok(&w->arena, &err);
        cf_raise(L, &err);
    }
    if (fresh) return;
    cf_text *shown = cf_scratch(L);
    cf_text_shown(shown, key, w->key.size);
    cf_raise_code(L, CF_E_DUP_KEY, "two values of the file have the key %s",
                  shown->at ? shown->at : "");
}

/* ---- the iterator */

/* What stands for a container inside itself: an object of the class ckptflow.cycle that names its
 * key, as no tree of files and keys can hold the container again. */
static const cf_node *cycle_node(lua_State *L, const walk *w, const walk_frame *frame)
{
    static const cf_global cycle = {"ckptflow", "cycle", CF_FOREIGN};
    cf_arena *arena = &cf_host_of(L)->arena;
    cf_node *node = cf_node_new(arena, CF_NODE_OBJECT), *args = cf_node_new(arena, CF_NODE_TUPLE);
    const char *key = cf_strndup(arena, w->key.at ? w->key.at : "", frame->length);
    cf_node *name = key ? cf_node_text(arena, CF_NODE_STRING, key, frame->length) : NULL;
    cf_parts *parts = node ? cf_object_own(arena, node->object) : NULL;
    cf_err err;
    if (!args || !name || !parts || !cf_list_add(arena, args->list, name)) {
        cf_arena_ok(arena, &err);
        cf_raise(L, &err);
    }
    node->object->class = &cycle;
    parts->args = args;
    return node;
}

static int yield_leaf(lua_State *L, walk *w, const cf_node *node)
{
    remember_key(L, w);
    lua_pushlstring(L, w->key.at ? w->key.at : "", w->key.size);
    if (node->kind == CF_NODE_TENSOR)
        cf_push_view(L, node->view);
    else
        cf_push_node(L, node, false);
    return 2;
}

/* Children that are walked again may be TIMES as many as there are, and MOST_AGAIN. */
static void charge(lua_State *L, walk *w, const cf_node *node)
{
    const size_t n = child_count(node);
    if (!node->memoed) {
        w->once += n;
        return;
    }
    bool fresh = false;
    cf_err err;
    const cf_node **key = cf_memdup(&w->arena, &node, sizeof node);
    if (!key || !cf_map_put(&w->entered, key, sizeof node, &fresh)) {
        cf_arena_ok(&w->arena, &err);
        cf_raise(L, &err);
    }
    *(fresh ? &w->once : &w->again) += n;
    if (w->again / TIMES > w->once + MOST_AGAIN / TIMES)
        cf_raise_code(L, CF_E_LIMIT, "shared lists and dicts unfold to more than %zu values",
                      w->again);
}

static void enter(lua_State *L, walk *w, const cf_node *node)
{
    if (w->depth == CF_MOST_DEPTH)
        cf_raise_code(L, CF_E_DEPTH, "nested more than %d deep", CF_MOST_DEPTH);
    charge(L, w, node);
    w->frames[w->depth++] = (walk_frame){.node = node, .length = w->key.size};
}

static int walk_free(lua_State *L)
{
    walk *w = lua_touserdata(L, 1);
    cf_arena_free(&w->arena);
    cf_text_free(&w->key);
    return 0;
}

/* Upvalues: the walk; what it began with, whose text it may borrow. */
static int walk_step(lua_State *L)
{
    walk *w = lua_touserdata(L, lua_upvalueindex(1));
    if (w->call != cf_host_of(L)->call)
        return luaL_error(L, "a walk outlived the read of its file");
    if (w->root) {
        const cf_node *root = w->root;
        w->root = NULL;
        if (!enters(L, w, root)) return yield_leaf(L, w, root);
        enter(L, w, root);
    }
    while (w->depth > 0) {
        walk_frame *frame = &w->frames[w->depth - 1];
        if (frame->next == child_count(frame->node)) {
            w->depth--;
            continue;
        }
        const size_t at = frame->next++;
        const cf_node *child = child_at(frame->node, at);
        add_component(L, w, frame, at);
        const int again = frame_of(w, child);
        if (again >= 0) child = cycle_node(L, w, &w->frames[again]);
        if (!enters(L, w, child)) return yield_leaf(L, w, child);
        enter(L, w, child);
    }
    cf_arena_free(&w->arena); /* now, not when the collector comes by */
    return 0;
}

/* Stack: the file, the node or bare value to begin with. */
int cf_file_walk(lua_State *L)
{
    const cf_node *root = cf_to_node(L, 2);
    walk *w = cf_new(L, sizeof *w, 0, WALK);
    cf_arena_init(&w->arena, CF_CALL_MOST_MEMORY);
    cf_map_init(&w->seen, &w->arena);
    cf_map_init(&w->entered, &w->arena);
    w->root = root;
    w->call = cf_host_of(L)->call;
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, walk_step, 2);
    return 1;
}

void cf_bind_walk(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__gc", walk_free}, {NULL, NULL}};
    static const cf_handle handle = {WALK, NULL, NULL, NULL, meta};
    cf_handle_register(L, &handle);
}
