/* An archive: the directory, where each payload lies, what it decodes to. */
#include "fuzz.h"
#include "zipfile.h"

enum { MOST = 1 << 20, MEMBERS = 32 };

static bool count(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    uint64_t *n = ctx;
    fuzz_touch(bytes, size);
    *n += size;
    return *n <= MOST || cf_fail(err, CF_E_LIMIT, "enough");
}

static void member(const cf_zip *zip, const cf_zip_entry *entry, cf_arena *arena)
{
    cf_err err;
    uint64_t at, decoded = 0;
    const uint8_t *bytes;
    CLAIM(cf_zip_find(zip, entry->name, entry->length) == entry);
    if (cf_zip_payload(zip, entry, &at, &err))
        CLAIM(at <= zip->span.size && entry->packed <= zip->span.size - at);
    if (cf_zip_read(zip, entry, MOST, arena, &bytes, &err)) fuzz_touch(bytes, entry->size);
    if (entry->method == CF_ZIP_STORED || !cf_zip_supports(entry->method, &err)) return;
    if (cf_zip_decode(&zip->span, entry->name, entry->size, count, &decoded, &err))
        CLAIM(decoded == entry->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const cf_span span = cf_span_of_bytes(data, size);
    cf_arena arena;
    cf_arena_init(&arena, 64 << 20);
    cf_zip zip;
    cf_err err;
    if (cf_zip_open(&zip, &span, &arena, &err))
        for (size_t i = 0; i < zip.count && i < MEMBERS; i++) member(&zip, &zip.entries[i], &arena);
    cf_arena_free(&arena);
    return 0;
}
