/* The safetensors header as text: the caller's order, no spaces but the padding.
 *
 * The padding makes the data begin at a multiple of CF_ST_ALIGN, so that tensors can be mapped and
 * written with O_DIRECT. A header that readers would refuse is refused here: safetensors#668 has a
 * file of 1.29 million tensors that was written and could not be opened any more.
 */
#include <string.h>

#include "safetensors.h"

static void add_entry(cf_text *out, const cf_st_tensor *t)
{
    cf_text_json(out, t->name, t->length);
    cf_text_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", cf_dtype_of(t->dtype)->name);
    for (int d = 0; d < t->ndim; d++)
        cf_text_printf(out, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    cf_text_printf(out, "],\"data_offsets\":[%llu,%llu]},", (unsigned long long)t->begin,
                   (unsigned long long)t->end);
}

size_t cf_safetensors_entry_size(const cf_st_tensor *tensor)
{
    cf_text text = {0};
    add_entry(&text, tensor);
    const size_t size = text.size;
    cf_text_free(&text);
    return size;
}

bool cf_safetensors_header(cf_text *out, const cf_st_tensor *tensors, size_t count,
                           const char *const *meta, size_t n_meta, cf_err *err)
{
    static const char META[] = "__metadata__";
    const size_t start = out->size;
    cf_text_add(out, "\0\0\0\0\0\0\0\0{", 9);
    if (n_meta) {
        cf_text_printf(out, "\"%s\":{", META);
        for (size_t i = 0; i < 2 * n_meta; i++) {
            cf_text_json(out, meta[i], strlen(meta[i]));
            cf_text_str(out, i % 2 == 0 ? ":" : ",");
        }
        if (!out->failed) out->at[out->size - 1] = '}';
        cf_text_str(out, ",");
    }
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].length == sizeof META - 1 &&
            memcmp(tensors[i].name, META, sizeof META - 1) == 0)
            return cf_fail(err, CF_E_DUP_KEY, "safetensors cannot hold a tensor named %s", META);
        add_entry(out, &tensors[i]);
    }
    CF_TRY(cf_text_ok(out, err));
    if (n_meta || count) out->size--; /* the last comma */
    cf_text_str(out, "}");
    const size_t over = (out->size - start) % CF_ST_ALIGN;
    cf_text_printf(out, "%*s", over ? (int)(CF_ST_ALIGN - over) : 0, "");
    CF_TRY(cf_text_ok(out, err));

    const uint64_t n = out->size - start - 8;
    if (n > CF_ST_MOST_HEADER)
        return cf_fail(err, CF_E_LIMIT, "a header of %llu bytes for %zu tensors, at most %d",
                       (unsigned long long)n, count, CF_ST_MOST_HEADER);
    for (int i = 0; i < 8; i++) out->at[start + (size_t)i] = (char)(n >> 8 * i);
    return true;
}
