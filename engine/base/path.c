#include "path.h"

#include <stdbool.h>
#include <string.h>

cf_path_kind cf_path_kind_of(const char *path, size_t length)
{
    if (!*path || *path == '/' || strlen(path) != length) return CF_PATH_OUT;
    bool odd = false;
    for (const char *p = path;;) {
        const size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') return CF_PATH_OUT;
        odd |= n == 0 || (n == 1 && p[0] == '.');
        if (!p[n]) return odd ? CF_PATH_ODD : CF_PATH_PLAIN;
        p += n + 1;
    }
}
