/* A file of torch.save, zip or stream, or a bare pickle: every view of it lies within its bytes. */
#include "fuzz.h"
#include "torchfile.h"

enum { DEPTH = 8, MOST = 1000 };

static void look_at_view(const cf_view *view, const uint8_t *data, size_t size)
{
    const cf_storage *s = view->storage;
    if (view->numel == 0 || s->place == CF_NOWHERE) return;
    int64_t last = 0;
    for (int d = 0; d < view->ndim; d++) last += (view->shape[d] - 1) * view->stride[d];
    const uint64_t element = (uint64_t)cf_dtype_size(view->stored);
    CLAIM(view->offset + ((uint64_t)last + 1) * element <= s->size);
    if (s->place == CF_IN_MEMBER) CLAIM(s->packed <= size);
    if (s->place != CF_IN_MEMORY) return;
    fuzz_touch(s->bytes, s->size);
    if (s->bytes >= data && s->bytes < data + size)
        CLAIM(s->size <= (size_t)(data + size - s->bytes));
}

/* Shared nodes are met as often as they are shared: `left` bounds that. */
static void look_into(const cf_node *node, const uint8_t *data, size_t size, int depth, int *left)
{
    if (node->kind == CF_NODE_TENSOR || node->kind == CF_NODE_ARRAY)
        look_at_view(node->view, data, size);
    const bool dict = node->kind == CF_NODE_DICT;
    if (depth == DEPTH || !(dict || node->kind == CF_NODE_LIST || node->kind == CF_NODE_TUPLE))
        return;
    const size_t count = dict ? node->dict->count : node->list->count;
    for (size_t i = 0; i < count && --*left > 0; i++)
        look_into(dict ? node->dict->pairs[i].value : node->list->items[i], data, size, depth + 1,
                  left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const cf_span span = cf_span_of_bytes(data, size);
    cf_arena tree, keep;
    cf_arena_init(&tree, (16 << 20) + 64 * size);
    cf_arena_init(&keep, 0);
    cf_reading r = {.tree = &tree, .keep = &keep};
    cf_node *root;
    cf_err err;
    const bool ok = size && data[0] == 'P' ? cf_torch_zip_read(&span, &r, &root, &err)
                    : cf_torch_legacy_magic(data, size)
                        ? cf_torch_legacy_read(&span, &r, &root, &err)
                        : cf_pickle_file_read(&span, &r, &root, &err);
    if (ok) {
        int left = MOST;
        look_into(root, data, size, 0, &left);
        fuzz_look(root);
    }
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    return 0;
}
