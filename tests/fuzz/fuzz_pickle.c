/* A bare pickle, whose storages are whatever its persistent ids say. First byte: --inert or not. */
#include "fuzz.h"
#include "num.h"
#include "pickle.h"

static bool storage(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *err)
{
    int64_t size;
    if (id->numel < 0 || !cf_mul(id->numel, cf_dtype_size(id->dtype), &size))
        return cf_fail(err, CF_E_OVERFLOW, "a storage of %lld elements", (long long)id->numel);
    cf_storage *made = CF_NEW((cf_arena *)ctx, cf_storage);
    if (!made) return cf_arena_ok(ctx, err);
    *made = (cf_storage){.place = CF_NOWHERE, .size = (uint64_t)size, .name = ""};
    *out = made;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool inert = size > 0 && data[0] != 0x80;
    if (inert) data++, size--;
    cf_arena tree, keep;
    cf_arena_init(&tree, (16 << 20) + 64 * size); /* as flow/source.c has it */
    cf_arena_init(&keep, 16 << 20);
    cf_pickle p = {.tree = &tree, .keep = &keep, .inert = inert, .storage = storage, .ctx = &keep};
    cf_node *root;
    cf_err err;
    size_t used = 0;
    if (cf_pickle_read(&p, data, size, &used, &root, &err)) {
        CLAIM(used <= size);
        fuzz_look(root);
    } else {
        CLAIM(err.code != CF_OK && err.offset <= (int64_t)size);
    }
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    return 0;
}
