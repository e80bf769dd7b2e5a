#include "span.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

cf_span cf_span_of_file(int fd, uint64_t size)
{
    return (cf_span){.fd = fd, .size = size};
}

cf_span cf_span_of_bytes(const void *bytes, size_t size)
{
    return (cf_span){.fd = -1, .bytes = bytes, .size = size};
}

bool cf_read_all(int fd, uint64_t start, uint64_t at, void *to, size_t n, cf_err *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(start + at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cf_fail_sys(err, errno, "cannot read");
        if (got == 0)
            return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)(at + done),
                              "the file became shorter while it was read");
        done += (size_t)got;
    }
    return true;
}

bool cf_span_read(const cf_span *span, uint64_t at, void *to, size_t n, cf_err *err)
{
    if (n > span->size || at > span->size - n)
        return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)at,
                          "ends at %llu bytes, %zu more are needed at %llu",
                          (unsigned long long)span->size, n, (unsigned long long)at);
    if (span->fd < 0) {
        if (n) memcpy(to, span->bytes + at, n);
        return true;
    }
    return cf_read_all(span->fd, span->start, at, to, n, err);
}

bool cf_span_part(const cf_span *span, uint64_t at, uint64_t n, cf_span *out, cf_err *err)
{
    if (n > span->size || at > span->size - n)
        return cf_fail_at(
            err, CF_E_TRUNCATED, (int64_t)at, "ends at %llu bytes, %llu more are needed at %llu",
            (unsigned long long)span->size, (unsigned long long)n, (unsigned long long)at);
    *out = *span;
    if (span->fd < 0)
        out->bytes += at;
    else
        out->start += at;
    out->size = n;
    return true;
}
