#include "gzip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { IN = 1 << 16, OUT = 1 << 17, GZIP_WINDOW = 15 + 16 };

typedef struct unpacking {
    const cf_span *file;
    uint64_t at, made, most; /* bytes read, made, allowed */
    uint8_t *in, *out;
    z_stream z;
    bool open; /* inside a member */
    cf_take *take;
    void *ctx;
} unpacking;

/* Behind a member: another one, zeros to the end of the file, or what does not belong there. */
static bool next_member(unpacking *u, cf_err *err)
{
    if (*u->z.next_in == 0x1f) {
        u->open = true;
        return inflateReset(&u->z) == Z_OK ? true : cf_fail(err, CF_E_INTERNAL, "gzip: reset");
    }
    while (u->z.avail_in && *u->z.next_in == 0) {
        u->z.next_in++;
        u->z.avail_in--;
    }
    if (!u->z.avail_in) return true;
    return cf_fail_at(err, CF_E_TRAILING, (int64_t)(u->at - u->z.avail_in),
                      "gzip: bytes behind the last member");
}

/* What is in the buffer, to its end. */
static bool inflate_in(unpacking *u, cf_err *err)
{
    for (bool full = false; u->z.avail_in || full;) {
        if (!u->open) {
            CF_TRY(next_member(u, err));
            if (!u->open) return true;
        }
        u->z.next_out = u->out;
        u->z.avail_out = OUT;
        const int status = inflate(&u->z, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return cf_fail_at(err, CF_E_LAYOUT, (int64_t)(u->at - u->z.avail_in), "gzip: %s",
                              u->z.msg ? u->z.msg : "broken");
        const size_t n = OUT - u->z.avail_out;
        u->made += n;
        if (u->made > u->most)
            return cf_fail(err, CF_E_LIMIT, "unpacks to more than %llu bytes",
                           (unsigned long long)u->most);
        if (n) CF_TRY(u->take(u->ctx, u->out, n, err));
        if (status == Z_STREAM_END) u->open = false;
        full = u->open && !u->z.avail_out;
        if (status == Z_BUF_ERROR) break;
    }
    return true;
}

bool cf_gzip_unpack(const cf_span *file, uint64_t most, cf_take *take, void *ctx, cf_err *err)
{
    unpacking u = {.file = file, .most = most, .take = take, .ctx = ctx, .open = true};
    u.in = malloc(IN + OUT);
    if (!u.in) return cf_fail(err, CF_E_MEMORY, "out of memory");
    u.out = u.in + IN;
    bool ok = inflateInit2(&u.z, GZIP_WINDOW) == Z_OK;
    if (!ok) cf_fail(err, CF_E_MEMORY, "out of memory");
    while (ok && u.at < file->size) {
        const size_t n = file->size - u.at < IN ? (size_t)(file->size - u.at) : IN;
        ok = cf_span_read(file, u.at, u.in, n, err);
        u.at += n;
        u.z.next_in = u.in;
        u.z.avail_in = (uInt)n;
        ok = ok && inflate_in(&u, err);
    }
    if (ok && u.open) ok = cf_fail(err, CF_E_TRUNCATED, "gzip: the last member is cut off");
    inflateEnd(&u.z);
    free(u.in);
    return ok;
}
