#include "nest.h"

#include <stdlib.h>
#include <string.h>

void cf_nest_init(cf_nest *nest, cf_arena *arena)
{
    *nest = (cf_nest){.arena = arena};
    cf_map_init(&nest->known, arena);
    cf_branch *root = CF_PUSH(arena, nest->branches, nest->count, nest->cap);
    if (root)
        *root = (cf_branch){.first = CF_NO_BRANCH,
                            .last = CF_NO_BRANCH,
                            .next = CF_NO_BRANCH,
                            .leaf = CF_NO_BRANCH};
}

/* ---- branches ----------------------------------------------------------------------------------
 */

/* What tells a branch from those beside it, as bytes; heap or room. */
static void key_of(cf_text *key, uint32_t level, const cf_step *step)
{
    const bool place = step->kind == CF_STEP_LIST || step->kind == CF_STEP_TUPLE;
    const char kind = place ? 'n' : "tnk"[step->kind]; /* list places and numbers are alike */
    key->size = 0;
    cf_text_add(key, &level, sizeof level);
    cf_text_add(key, &kind, 1);
    if (step->kind == CF_STEP_TEXT)
        cf_text_add(key, step->text, step->length);
    else if (step->kind == CF_STEP_KEY)
        cf_node_show(key, step->key, SIZE_MAX);
    else
        cf_text_add(key, &step->number, sizeof step->number);
}

/* The branch of a step below a level, made if it is new; CF_NO_BRANCH: no memory. */
static uint32_t branch_of(cf_nest *nest, cf_text *key, uint32_t level, const cf_step *step)
{
    uint64_t number;
    bool fresh;
    key_of(key, level, step);
    if (cf_map_get(&nest->known, key->at, key->size, &number)) return (uint32_t)number;
    const char *own = key->failed ? NULL : cf_memdup(nest->arena, key->at, key->size);
    uint64_t *place = own ? cf_map_put(&nest->known, own, key->size, &fresh) : NULL;
    if (!place || nest->count >= CF_NO_BRANCH) return CF_NO_BRANCH;
    *place = nest->count;
    cf_branch *branch = CF_PUSH(nest->arena, nest->branches, nest->count, nest->cap);
    if (!branch) return CF_NO_BRANCH;
    *branch = (cf_branch){.step = *step,
                          .first = CF_NO_BRANCH,
                          .last = CF_NO_BRANCH,
                          .next = CF_NO_BRANCH,
                          .leaf = CF_NO_BRANCH,
                          .up = level};
    const uint32_t at = (uint32_t)(nest->count - 1);
    cf_branch *up = &nest->branches[level];
    if (up->last == CF_NO_BRANCH)
        up->first = at;
    else
        nest->branches[up->last].next = at;
    up->last = at;
    up->count++;
    return at;
}

static bool taken(const char *name, cf_err *err)
{
    return cf_fail(err, CF_E_DUP_KEY, "%s: another value is in its place", name);
}

bool cf_nest_add(cf_nest *nest, const char *name, const cf_path *path, uint32_t leaf, cf_err *err)
{
    const cf_step one = {.kind = CF_STEP_TEXT, .length = (uint32_t)strlen(name), .text = name};
    const cf_path whole = {1, &one};
    if (!path) path = &whole;
    cf_text key = {0};
    uint32_t at = 0;
    bool ok = nest->count > 0;
    for (size_t i = 0; ok && i < path->count; i++) {
        if (nest->branches[at].leaf != CF_NO_BRANCH) {
            cf_text_free(&key);
            return taken(name, err);
        }
        at = branch_of(nest, &key, at, &path->steps[i]);
        ok = at != CF_NO_BRANCH;
    }
    cf_text_free(&key);
    if (!ok)
        return cf_arena_ok(nest->arena, err) ? cf_fail(err, CF_E_LIMIT, "too many values") : false;
    cf_branch *branch = &nest->branches[at];
    if (branch->leaf != CF_NO_BRANCH || branch->count) return taken(name, err);
    branch->leaf = leaf;
    return true;
}

/* ---- lists -------------------------------------------------------------------------------------
 */

/* Do all steps below say list, or all tuple? */
static bool is_sequence(const cf_nest *nest, const cf_branch *level, cf_step_kind *kind)
{
    if (!level->count) return false;
    *kind = nest->branches[level->first].step.kind;
    if (*kind != CF_STEP_LIST && *kind != CF_STEP_TUPLE) return false;
    for (uint32_t i = level->first; i != CF_NO_BRANCH; i = nest->branches[i].next)
        if (nest->branches[i].step.kind != *kind) return false;
    return true;
}

static bool sort_level(cf_nest *nest, cf_branch *level)
{
    const uint32_t n = level->count;
    cf_step_kind kind;
    if (!is_sequence(nest, level, &kind)) return true;
    uint32_t *by_place = CF_NEWS(nest->arena, uint32_t, n);
    if (!by_place) return false;
    bool whole = true;
    for (uint32_t i = level->first; i != CF_NO_BRANCH && whole; i = nest->branches[i].next) {
        const int64_t place = nest->branches[i].step.number;
        whole = place < n; /* each is there once: n of them below n are all */
        if (whole) by_place[place] = i;
    }
    for (uint32_t i = level->first; i != CF_NO_BRANCH && !whole; i = nest->branches[i].next)
        nest->branches[i].step.kind = CF_STEP_NUMBER;
    for (uint32_t k = 0; whole && k < n; k++)
        nest->branches[by_place[k]].next = k + 1 < n ? by_place[k + 1] : CF_NO_BRANCH;
    if (whole) {
        level->first = by_place[0];
        level->last = by_place[n - 1];
    }
    return true;
}

bool cf_nest_finish(cf_nest *nest, cf_err *err)
{
    for (size_t i = 0; i < nest->count; i++)
        if (!sort_level(nest, &nest->branches[i])) return cf_arena_ok(nest->arena, err);
    return cf_arena_ok(nest->arena, err);
}

cf_step_kind cf_nest_kind(const cf_nest *nest, const cf_branch *level)
{
    cf_step_kind kind;
    return is_sequence(nest, level, &kind) ? kind : CF_STEP_TEXT;
}
