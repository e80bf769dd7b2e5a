/* The module ckptflow.pickle: pickles that lie inside something else, as a text or as the bytes of
 * a tensor. Read as inertly as every pickle.
 */
#include "bind.h"
#include "pickle.h"

enum { MOST = 64 << 20 }; /* bytes of a pickle inside a tensor */

static bool read_pickled(lua_State *L, const uint8_t *bytes, size_t size, bool checked,
                         cf_node **root, cf_err *err)
{
    cf_host *host = cf_host_of(L);
    /* numpy arrays in it outlive this call where the value goes into the catalogue */
    cf_arena *keep =
        host->part ? &host->source->trees[cf_part_file(host->part)].keep : &host->arena;
    cf_pickle p = {.tree = &host->arena,
                   .keep = keep,
                   .checked = checked,
                   .inert = host->source && host->source->inert};
    const int64_t paused = cf_host_pause();
    const bool ok = cf_pickle_read(&p, bytes, size, NULL, root, err) &&
                    cf_arena_ok(&host->arena, err) && cf_arena_ok(keep, err);
    cf_host_resume(host, paused);
    if (ok && p.forbidden[0])
        cf_source_note(host->source, "a pickle names %s, which is refused without --inert",
                       p.forbidden);
    return ok;
}

static int pickle_decode(lua_State *L)
{
    cf_host *host = cf_host_of(L);
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    cf_err err;
    const size_t before = cf_host_before_decoding(host);
    const uint8_t *own = cf_memdup(&host->arena, text, size); /* the tree points into it */
    cf_node *root;
    const bool ok =
        own ? read_pickled(L, own, size, false, &root, &err) : cf_arena_ok(&host->arena, &err);
    cf_host_after_decoding(L, before);
    if (!ok) return cf_raise(L, &err);
    cf_push_value(L, root, false);
    return 1;
}

static int pickle_read(lua_State *L)
{
    cf_host *host = cf_host_of(L);
    if (!cf_is_view(L, 1)) luaL_typeerror(L, 1, "view");
    if (!host->source) return luaL_error(L, "pickle.read needs a checkpoint");
    const cf_view *view = cf_leaf_view(L, 1);
    const uint8_t *bytes;
    bool checked;
    cf_err err;
    if (!view || view->dtype != CF_U8 || !cf_view_dense(view))
        return cf_raise_code(L, CF_E_TYPE, "a pickle lies in a row of U8, not in this tensor");
    const size_t before = host->arena.held;
    if (!cf_source_bytes(host->source, view, MOST, &host->arena, &bytes, &checked, &err))
        return cf_raise(L, &err);
    cf_node *root;
    if (!read_pickled(L, bytes, (size_t)view->numel, checked, &root, &err))
        return cf_raise(L, &err);
    host->read += host->arena.held - before;
    cf_push_value(L, root, false);
    return 1;
}

int cf_pickle_module(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"decode", pickle_decode}, {"read", pickle_read}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
