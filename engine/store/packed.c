#include "packed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const cf_packed *table;
static size_t table_size;

static bool ends_in(const char *path, size_t length, const char *suffix)
{
    const size_t n = strlen(suffix);
    return length > n && memcmp(path + length - n, suffix, n) == 0;
}

cf_packing cf_packed_suffix(const char *path, size_t *stem)
{
    static const struct {
        const char *suffix;
        cf_packing packing;
    } PACKINGS[] = {{".zst", CF_ZSTD}, {".zstd", CF_ZSTD}, {".gz", CF_GZIP}, {".gzip", CF_GZIP}};
    static const char *const FILES[] = {".pt",          ".pth",    ".bin",      ".ckpt",
                                        ".safetensors", ".distcp", ".metadata", ".pkl"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof PACKINGS / sizeof *PACKINGS; i++) {
        if (!ends_in(path, length, PACKINGS[i].suffix)) continue;
        *stem = length - strlen(PACKINGS[i].suffix);
        for (size_t k = 0; k < sizeof FILES / sizeof *FILES; k++)
            if (ends_in(path, *stem, FILES[k])) return PACKINGS[i].packing;
    }
    return CF_NOT_PACKED;
}

void cf_packed_set(const cf_packed *list, size_t count)
{
    table = list;
    table_size = count;
}

const cf_packed *cf_packed_find(uint64_t device, uint64_t inode, uint64_t size, int64_t mtime_ns)
{
    for (size_t i = 0; i < table_size; i++)
        if (table[i].inode == inode && table[i].device == device && table[i].size == size &&
            table[i].mtime_ns == mtime_ns)
            return &table[i];
    return NULL;
}

bool cf_packed_open(const cf_packed *packed, int *fd, cf_err *err)
{
    if (packed->fd < 0) {
        *err = packed->err;
        return false;
    }
    *fd = fcntl(packed->fd, F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? true : cf_fail_sys(err, errno, "cannot open what was unpacked");
}
