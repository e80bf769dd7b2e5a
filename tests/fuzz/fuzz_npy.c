/* A numpy array, or a zip of them: every view lies within its storage, and that within the file. */
#include "fuzz.h"
#include "npy.h"

static void look_at(const cf_node *node, size_t size)
{
    if (node->kind != CF_NODE_TENSOR) return;
    const cf_view *view = node->view;
    const cf_storage *s = view->storage;
    const uint64_t bytes = (uint64_t)(view->numel * cf_dtype_size(view->dtype));
    CLAIM(view->offset + bytes == s->size);
    if (s->place == CF_IN_MEMBER) {
        CLAIM(s->offset <= size && s->packed <= size - s->offset);
    } else {
        CLAIM(s->offset <= size && s->size <= size - s->offset);
        fuzz_touch(s->bytes, s->size);
    }
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
    const bool zip = !cf_npy_magic(data, size) && cf_npz_is(&span, &tree);
    if (zip ? cf_npz_read(&span, &r, &root, &err) : cf_npy_read(&span, &r, &root, &err)) {
        look_at(root, size);
        for (size_t i = 0; zip && i < root->dict->count; i++)
            look_at(root->dict->pairs[i].value, size);
        fuzz_look(root);
    }
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    return 0;
}
