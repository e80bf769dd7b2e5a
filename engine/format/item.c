#include "item.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "safetensors.h"
#include "text.h"

static bool open_root(const cf_span *file, uint64_t at, uint64_t size, cf_reading *r,
                      cf_node **root, bool *blob, cf_err *err)
{
    uint8_t head[16] = {0};
    cf_node *meta;
    cf_span slice;
    if (!cf_span_part(file, at, size, &slice, err)) return false;
    const size_t n = file->size - at < sizeof head ? (size_t)(file->size - at) : sizeof head;
    if (!cf_span_read(file, at, head, n, err)) return false;
    *blob = n > 8 && head[8] == '{' && memcmp(head, "PK", 2) != 0;
    if (*blob) {
        r->open_end = true;
        return cf_span_part(file, at, file->size - at, &slice, err) &&
               cf_safetensors_read(&slice, r, root, &meta, err);
    }
    if (size >= n && cf_torch_legacy_magic(head, n))
        return cf_torch_legacy_read(&slice, r, root, err);
    r->item = true;
    return cf_torch_zip_read(&slice, r, root, err);
}

bool cf_item_tensor(const cf_span *file, uint64_t at, uint64_t size, const cf_claim *claim,
                    cf_reading *r, const cf_view **view, cf_err *err)
{
    cf_node *root;
    bool blob;
    if (!open_root(file, at, size, r, &root, &blob, err)) return false;
    if (blob) {
        cf_node *named = cf_dict_string(root->dict, claim->name);
        if (!named && root->dict->count == 1) named = root->dict->pairs[0].value;
        if (!named)
            return cf_fail(err, CF_E_META_CONFLICT, "the item holds no tensor of that name");
        root = named;
    }
    if (root->kind != CF_NODE_TENSOR)
        return cf_fail(err, CF_E_TYPE, "the item holds %s %s, not a tensor",
                       CF_A(cf_node_class(root)));
    const cf_view *v = root->view;
    char here[256], said[256];
    const bool same = v->ndim == claim->ndim &&
                      (!v->ndim || !memcmp(v->shape, claim->shape, v->ndim * sizeof *v->shape));
    if (v->dtype != claim->dtype || !same) {
        cf_view_text(v->dtype, v->ndim, v->shape, here, sizeof here);
        cf_view_text(claim->dtype, claim->ndim, claim->shape, said, sizeof said);
        return cf_fail(err, v->dtype != claim->dtype ? CF_E_DTYPE : CF_E_META_CONFLICT,
                       "the item holds %s, the metadata says %s", here, said);
    }
    *view = v;
    return true;
}

bool cf_item_value(const cf_span *file, uint64_t at, uint64_t size, cf_reading *r, cf_node **root,
                   cf_err *err)
{
    bool blob;
    return open_root(file, at, size, r, root, &blob, err);
}

bool cf_item_unpack(const cf_span *slice, uint64_t most, cf_take *take, void *ctx, cf_err *err)
{
    enum { IN = 1 << 16, OUT = 1 << 17 };
    ZSTD_DStream *stream = ZSTD_createDStream();
    uint8_t *in = malloc(IN + OUT), *out = in + IN;
    bool ok = stream && in ? true : cf_fail(err, CF_E_MEMORY, "out of memory");
    uint64_t at = 0, made = 0;
    size_t open = 0; /* bytes that a frame under way still wants: 0 between frames */
    while (ok && at < slice->size) {
        const size_t n = slice->size - at < IN ? (size_t)(slice->size - at) : IN;
        if (!(ok = cf_span_read(slice, at, in, n, err))) break;
        ZSTD_inBuffer source = {in, n, 0};
        /* a full output may leave more behind, also when all input was taken */
        for (bool full = false; ok && (source.pos < source.size || full);) {
            ZSTD_outBuffer target = {out, OUT, 0};
            open = ZSTD_decompressStream(stream, &target, &source);
            if (ZSTD_isError(open)) {
                ok = cf_fail_at(err, CF_E_LAYOUT, (int64_t)(at + source.pos), "zstd: %s",
                                ZSTD_getErrorName(open));
                break;
            }
            made += target.pos;
            full = target.pos == target.size && open;
            if (made > most)
                ok = cf_fail(err, CF_E_LIMIT, "unpacks to more than %llu bytes",
                             (unsigned long long)most);
            else
                ok = take(ctx, out, target.pos, err);
        }
        at += n;
    }
    if (ok && open) ok = cf_fail(err, CF_E_TRUNCATED, "zstd: the last frame is cut off");
    free(in);
    ZSTD_freeDStream(stream);
    return ok;
}
