#include "faults.h"

#include <stdlib.h>
#include <string.h>

void cf_faults_init(cf_faults *f)
{
    *f = (cf_faults){0};
    cf_arena_init(&f->arena, 0);
    pthread_mutex_init(&f->lock, NULL);
}

void cf_faults_free(cf_faults *f)
{
    cf_arena_free(&f->arena);
    pthread_mutex_destroy(&f->lock);
}

/* A checksum may be held against its member twice, when it is parsed and when all is read. */
static bool same(const cf_fault *f, const cf_err *err)
{
    return f->code == err->code && !strcmp(f->file, err->file) && !strcmp(f->member, err->member) &&
           (err->code == CF_E_ZIP_CRC ||
            (f->offset == err->offset && !strcmp(f->message, err->message)));
}

static const char *keep(cf_arena *arena, const char *text)
{
    const char *copy = cf_strndup(arena, text, strlen(text));
    return copy ? copy : "";
}

cf_fault cf_fault_of(cf_arena *arena, const cf_err *err)
{
    return (cf_fault){.code = err->code,
                      .offset = err->offset,
                      .file = keep(arena, err->file),
                      .member = keep(arena, err->member),
                      .message = keep(arena, err->message),
                      .hint = keep(arena, err->hint)};
}

bool cf_faults_take(cf_faults *f, const cf_err *err)
{
    const int status = cf_code_exit(err->code);
    if (!f || (status != 4 && status != 5)) return false;
    pthread_mutex_lock(&f->lock);
    bool known = false;
    for (size_t i = 0; i < f->count && !known; i++) known = same(&f->list[i], err);
    if (!known) f->total++;
    if (!known && f->count < CF_MOST_FAULTS) {
        cf_fault *fault = CF_PUSH(&f->arena, f->list, f->count, f->cap);
        if (fault) *fault = cf_fault_of(&f->arena, err);
    }
    pthread_mutex_unlock(&f->lock);
    return true;
}

static int by_place(const void *a, const void *b)
{
    const cf_fault *x = a, *y = b;
    int order = (x->code == CF_E_COVERAGE) - (y->code == CF_E_COVERAGE);
    if (!order) order = strcmp(x->file, y->file);
    if (!order) order = (x->offset > y->offset) - (x->offset < y->offset);
    if (!order) order = strcmp(x->member, y->member);
    return order ? order : strcmp(x->message, y->message);
}

void cf_faults_sort(cf_faults *f)
{
    if (f->count) qsort(f->list, f->count, sizeof *f->list, by_place);
}

void cf_fault_error(const cf_fault *fault, cf_err *err)
{
    cf_fail(err, fault->code, "%s", fault->message);
    err->offset = fault->offset;
    cf_err_add_file(err, fault->file);
    cf_err_add_member(err, fault->member);
    if (*fault->hint) cf_err_set_hint(err, "%s", fault->hint);
}
