#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int exit;
} CODES[] = {{"OK", 0},
#define X(name, exit, text) {#name, exit},
             CF_CODES(X)
#undef X
};

static void fill(cf_err *err, cf_code code, int sys, int64_t offset, const char *fmt, va_list args)
{
    err->code = code;
    err->sys = sys;
    err->offset = offset;
    err->resumable = false;
    err->file[0] = err->member[0] = err->hint[0] = '\0';
    vsnprintf(err->message, sizeof err->message, fmt, args);
}

void cf_err_set(cf_err *err, cf_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, 0, -1, fmt, args);
    va_end(args);
}

void cf_err_set_at(cf_err *err, cf_code code, int64_t offset, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, 0, offset, fmt, args);
    va_end(args);
}

static cf_code code_of_errno(int sys)
{
    switch (sys) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return CF_E_SPACE;
    case ENOMEM: return CF_E_MEMORY;
    case ENOENT: return CF_E_MISSING_FILE;
    case ELOOP:
    case EXDEV: return CF_E_PATH;
    default: return CF_E_IO;
    }
}

void cf_err_set_sys(cf_err *err, int sys, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code_of_errno(sys), sys, -1, fmt, args);
    va_end(args);
    const size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof err->message - n, ": %s", strerror(sys));
}

void cf_err_add_file(cf_err *err, const char *file)
{
    if (!err->file[0] && file) snprintf(err->file, sizeof err->file, "%s", file);
}

void cf_err_add_member(cf_err *err, const char *member)
{
    if (!err->member[0] && member) snprintf(err->member, sizeof err->member, "%s", member);
}

void cf_err_set_hint(cf_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
}

const char *cf_code_name(cf_code code)
{
    return CODES[code].name;
}

int cf_code_exit(cf_code code)
{
    return CODES[code].exit;
}

cf_code cf_code_of(const char *name)
{
    for (unsigned i = 1; i < sizeof CODES / sizeof *CODES; i++)
        if (strcmp(CODES[i].name, name) == 0) return (cf_code)i;
    return CF_OK;
}

const char *cf_err_line(const cf_err *err, char *out, unsigned long size)
{
    char at[32] = "";
    if (err->offset >= 0) snprintf(at, sizeof at, "byte %lld: ", (long long)err->offset);
    snprintf(out, size, "%s%s%s%s%s%s", err->file, err->file[0] ? ": " : "", err->member,
             err->member[0] ? ": " : "", at, err->message);
    return out;
}
