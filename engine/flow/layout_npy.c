/* One tensor as numpy's file: a header, and the elements in row-major order. */
#include "laying.h"
#include "npy.h"

bool cf_lay_npy(cf_layout *l, size_t number, cf_err *err)
{
    const cf_write *w = &l->plan->writes[number];
    cf_items items = {0};
    CF_TRY(cf_lay_items(l, w, &items, err));
    cf_item *it = items.list;
    if (items.count != 1)
        return cf_fail(err, CF_L_PLAN,
                       "%s: an npy file holds one tensor, %s differs between %zu ranks", w->path,
                       w->entries[0].name, items.count);
    cf_text head = {0};
    uint64_t size;
    bool ok =
        cf_lay_size(it, &size, err) && cf_npy_head(&head, it->dtype, it->ndim, it->shape, err);
    if (!ok && err->code == CF_E_DTYPE) {
        cf_fail(err, CF_L_PLAN, "%s: numpy has no %s, which %s is", w->path,
                cf_dtype_of(it->dtype)->name, it->name);
        cf_err_hint(err, "dtype = \"F32\" of plan:write, or --dtype F32, casts it");
    }
    const uint64_t first = cf_lay_chunks(l);
    if (ok) cf_lay_chunk(l, 0, head.size, cf_blocker_text(l->b, head.at, head.size));
    ok = ok && cf_lay_item(l, it, head.size, size, err);
    if (ok) cf_lay_file(l, w->path, head.size + size, first);
    cf_text_free(&head);
    return ok;
}
