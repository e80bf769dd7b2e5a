/* JSON: what was read, written, read again and decoded is the same value. Only names that begin
 * with "$", which mean something, come back as what they stand for. */
#include <string.h>

#include "fuzz.h"
#include "json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cf_arena arena;
    cf_arena_init(&arena, 0);
    cf_node *root, *again;
    cf_text out = {0};
    cf_err err;
    if (cf_json_read((const char *)data, size, &arena, &root, &err)) {
        fuzz_look(root);
        CLAIM(cf_json_value(&out, root, 0, NULL, &err));
        CLAIM(cf_json_read(out.at, out.size, &arena, &again, &err));
        const cf_json_decoding from = {.arena = &arena};
        if (cf_json_decode(&from, again, &again, &err)) fuzz_look(again);
        if (!memchr(data, '$', size) && !memchr(data, '\\', size))
            CLAIM(cf_node_equal(root, again) &&
                  cf_node_hash(root, NULL, NULL) == cf_node_hash(again, NULL, NULL));
    } else {
        CLAIM(err.offset <= (int64_t)size);
    }
    cf_text_free(&out);
    cf_arena_free(&arena);
    return 0;
}
