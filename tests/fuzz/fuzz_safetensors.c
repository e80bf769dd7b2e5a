/* A safetensors file; and a header written from what was read, which must read the same. */
#include <string.h>

#include "fuzz.h"
#include "safetensors.h"

static void write_again(const cf_dict *dict, cf_arena *arena)
{
    cf_st_tensor *list = CF_NEWS(arena, cf_st_tensor, dict->count + 1);
    uint64_t at = 0;
    for (size_t i = 0; i < dict->count; i++) {
        const cf_string *name = &dict->pairs[i].key->text;
        const cf_view *v = dict->pairs[i].value->view;
        const uint64_t begin = at;
        at += (uint64_t)(v->numel * cf_dtype_size(v->dtype));
        list[i] = (cf_st_tensor){name->at, name->length, v->dtype, v->ndim, v->shape, begin, at};
    }
    cf_text out = {0};
    cf_err err;
    cf_node *root, *meta;
    static const char *const pairs[] = {"format", "pt"};
    CLAIM(cf_safetensors_header(&out, list, dict->count, pairs, 1, &err));
    CLAIM(out.size % CF_ST_ALIGN == 0);
    uint8_t *file = calloc(1, out.size + at);
    memcpy(file, out.at, out.size);
    const cf_span span = cf_span_of_bytes(file, out.size + at);
    cf_reading r = {.tree = arena, .keep = arena};
    CLAIM(cf_safetensors_read(&span, &r, &root, &meta, &err));
    CLAIM(meta->dict->count == 1 && root->dict->count == dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        const cf_view *a = dict->pairs[i].value->view, *b = root->dict->pairs[i].value->view;
        CLAIM(cf_node_equal(dict->pairs[i].key, root->dict->pairs[i].key));
        CLAIM(a->dtype == b->dtype && a->ndim == b->ndim && a->numel == b->numel);
        CLAIM(memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
    }
    free(file);
    cf_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const cf_span span = cf_span_of_bytes(data, size);
    cf_arena arena;
    cf_arena_init(&arena, 0);
    cf_reading r = {.tree = &arena, .keep = &arena};
    cf_node *root, *meta;
    cf_err err;
    if (cf_safetensors_read(&span, &r, &root, &meta, &err)) {
        uint64_t sum = 0;
        for (size_t i = 0; i < root->dict->count; i++) {
            const cf_view *v = root->dict->pairs[i].value->view;
            const uint64_t bytes = (uint64_t)(v->numel * cf_dtype_size(v->dtype));
            CLAIM(v->offset + bytes <= v->storage->size && v->storage->size <= size);
            sum += bytes;
        }
        CLAIM(root->dict->count == 0 || sum == root->dict->pairs[0].value->view->storage->size);
        fuzz_look(meta);
        write_again(root->dict, &arena);
    }
    cf_arena_free(&arena);
    return 0;
}
