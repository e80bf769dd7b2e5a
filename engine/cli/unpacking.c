/* Where what is compressed is unpacked, and with how many files open. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "signals.h"
#include "unpack.h"
#include "verbs.h"

/* /var/tmp before /tmp: that is often memory. */
static const char *temporary(void)
{
    const char *named = getenv("TMPDIR");
    struct stat st;
    if (named && *named) return named;
    return stat("/var/tmp", &st) == 0 && S_ISDIR(st.st_mode) ? "/var/tmp" : "/tmp";
}

bool cf_unpack_inputs(const cf_options *o, const char *out, cf_err *err)
{
    char folder[PATH_MAX] = ".";
    const char *slash = out ? strrchr(out, '/') : NULL;
    if (slash) {
        const size_t n = slash == out ? 1 : (size_t)(slash - out);
        memcpy(folder, out, n);
        folder[n] = '\0';
    }
    cf_raise_descriptors();
    return cf_unpack(o->inputs, o->n_roots, out ? folder : temporary(), o->threads, &cf_stop_signal,
                     err);
}
