/* Every walker over a tree: what was read must be shown, hashed, copied, compared and written as
 * JSON, and what was written must be JSON. */
#include "fuzz.h"
#include "json.h"

/* The JSON of a value reads again, or is deeper than readers go. */
static void write_json(const cf_node *root, int indent)
{
    cf_arena arena;
    cf_arena_init(&arena, 256 << 20);
    cf_text out = {0};
    cf_json_tensors tensors = {.arena = &arena, .key = "key"};
    cf_node *again;
    cf_err err;
    if (cf_json_value(&out, root, indent, indent < 0 ? &tensors : NULL, &err)) {
        const bool ok = cf_json_read(out.at, out.size, &arena, &again, &err);
        if (!ok) fprintf(stderr, "%.400s\n%s\n", out.at, err.message);
        CLAIM(ok);
    }
    cf_text_free(&out);
    cf_arena_free(&arena);
}

void fuzz_look(const cf_node *root)
{
    cf_arena arena;
    cf_arena_init(&arena, 256 << 20);
    cf_text text = {0};
    cf_node_show(&text, root, 4096);
    CLAIM(text.size < 5000);
    CLAIM(cf_utf8_valid(text.at, text.size) == text.size);
    cf_text_free(&text);
    CLAIM(cf_node_class(root) != NULL);
    CLAIM(cf_node_equal(root, root));
    const cf_node *copy = cf_node_copy(&arena, root);
    CLAIM(copy || arena.failed);
    if (copy) CLAIM(cf_node_hash(copy, NULL, NULL) == cf_node_hash(root, NULL, NULL));
    if (copy && cf_node_equal(root, copy)) CLAIM(cf_node_equal(copy, root));
    cf_arena_free(&arena);
    write_json(root, -1);
    write_json(root, 2);
}
