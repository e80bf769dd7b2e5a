/* An item of a DCP file: a tensor or value in a container of its own, or zstd frames around one.
 * Claimed is what is in it: then the tensor must be found, within the file. */
#include "fuzz.h"
#include "item.h"

enum { MOST = 1 << 20 };

typedef struct unpacked {
    uint8_t *bytes;
    size_t size;
} unpacked;

static bool take(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    (void)err;
    unpacked *u = ctx;
    CLAIM(size <= MOST - u->size);
    __builtin_memcpy(u->bytes + u->size, bytes, size);
    u->size += size;
    return true;
}

static void tensor(const cf_span *file, const cf_view *is, const char *name, cf_reading *r)
{
    const cf_claim claim = {.dtype = is->dtype, .ndim = is->ndim, .shape = is->shape, .name = name};
    const cf_view *view;
    cf_err err;
    if (!cf_item_tensor(file, 0, file->size, &claim, r, &view, &err)) return;
    const cf_storage *s = view->storage;
    CLAIM(view->dtype == is->dtype && view->numel == is->numel);
    if (s->place == CF_IN_FILE) CLAIM(s->offset <= file->size && s->size <= file->size - s->offset);
}

static void look(const cf_span *file)
{
    cf_arena tree, keep;
    cf_arena_init(&tree, 64 << 20);
    cf_arena_init(&keep, 64 << 20);
    cf_reading r = {.tree = &tree, .keep = &keep};
    cf_node *root;
    cf_err err;
    if (cf_item_value(file, 0, file->size, &r, &root, &err)) {
        fuzz_look(root);
        if (root->kind == CF_NODE_TENSOR) tensor(file, root->view, "", &r);
        for (size_t i = 0; root->kind == CF_NODE_DICT && i < root->dict->count && i < 8; i++) {
            const cf_pair *pair = &root->dict->pairs[i];
            if (pair->value->kind != CF_NODE_TENSOR || pair->key->kind != CF_NODE_STRING) continue;
            const char *name = cf_strndup(&tree, pair->key->text.at, pair->key->text.length);
            if (name) tensor(file, pair->value->view, name, &r);
        }
    }
    cf_arena_free(&tree);
    cf_arena_free(&keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t room[MOST];
    const cf_span span = cf_span_of_bytes(data, size);
    unpacked u = {room, 0};
    cf_err err;
    look(&span);
    if (!cf_item_unpack(&span, MOST, take, &u, &err)) return 0;
    const cf_span inner = cf_span_of_bytes(u.bytes, u.size);
    look(&inner);
    return 0;
}
