/* gzip members: what they unpack to is no more than allowed, and comes again the same. */
#include <libdeflate.h>

#include "fuzz.h"
#include "gzip.h"

enum { MOST = 1 << 20 };

typedef struct got {
    uint64_t size;
    uint32_t crc;
} got;

static bool take(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    (void)err;
    got *g = ctx;
    g->size += size;
    g->crc = libdeflate_crc32(g->crc, bytes, size);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const cf_span span = cf_span_of_bytes(data, size);
    got one = {0}, two = {0};
    cf_err err;
    const bool ok = cf_gzip_unpack(&span, MOST, take, &one, &err);
    CLAIM(one.size <= MOST);
    CLAIM(cf_gzip_unpack(&span, MOST, take, &two, &err) == ok);
    CLAIM(one.size == two.size && one.crc == two.crc);
    /* less is allowed than there is: refused, by name */
    if (ok && one.size) {
        got less = {0};
        CLAIM(!cf_gzip_unpack(&span, one.size - 1, take, &less, &err) && err.code == CF_E_LIMIT);
    }
    return 0;
}
