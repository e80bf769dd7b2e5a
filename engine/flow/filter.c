#include "filter.h"

#include <string.h>

#include "pattern.h"

static bool any(const char *const *globs, int n, const char *key, bool *used)
{
    bool fits = false;
    for (int i = 0; i < n; i++)
        if (cf_glob_match(globs[i], key)) fits = used[i] = true;
    return fits;
}

/* What NEW makes of a key that fits OLD; NULL if it does not. */
static const char *renamed(cf_arena *arena, const char *key, const char *old, size_t n_old,
                           const char *new)
{
    const char *star = memchr(old, '*', n_old), *to = strchr(new, '*');
    const size_t n = strlen(key);
    if (!star) return n == n_old && memcmp(key, old, n) == 0 ? new : NULL;
    const size_t head = (size_t)(star - old), tail = n_old - head - 1;
    if (n < head + tail || memcmp(key, old, head) != 0 ||
        memcmp(key + n - tail, star + 1, tail) != 0)
        return NULL;
    if (!to) return new;
    cf_text text = {0};
    cf_text_add(&text, new, (size_t)(to - new));
    cf_text_add(&text, key + head, n - head - tail);
    cf_text_str(&text, to + 1);
    const char *copy = text.at ? cf_strndup(arena, text.at, text.size) : "";
    cf_text_free(&text);
    return copy;
}

/* The name is the key without what its role puts in front: that part of the old key, if the new one
 * still begins with it, else nothing. */
static void set_key(cf_row *row, const char *key)
{
    const size_t n_key = strlen(row->key), n_name = strlen(row->name);
    const bool tail = n_name <= n_key && strcmp(row->key + n_key - n_name, row->name) == 0;
    const size_t front = tail ? n_key - n_name : 0;
    row->name = strncmp(key, row->key, front) == 0 ? key + front : key;
    row->key = key;
    row->path = NULL;
}

static bool rename_rows(cf_catalogue *cat, const char *rule, cf_err *err)
{
    const char *equals = strchr(rule, '=');
    const char *star = strchr(rule, '*'), *second = star ? strchr(star + 1, '*') : NULL;
    const char *new = equals ? equals + 1 : NULL;
    if (!equals || equals == rule || !*new)
        return cf_fail(err, CF_E_USAGE, "--rename takes OLD=NEW, not '%s'", rule);
    if ((second && second < equals) || (strchr(new, '*') && (!star || star > equals)) ||
        (strchr(new, '*') && strchr(strchr(new, '*') + 1, '*')))
        return cf_fail(err, CF_E_USAGE, "--rename %s: one * in OLD, carried to one in NEW", rule);
    bool used = false;
    for (size_t i = 0; i < cat->count; i++) {
        const char *key =
            renamed(&cat->arena, cat->rows[i]->key, rule, (size_t)(equals - rule), new);
        if (!key) continue;
        set_key(cat->rows[i], key);
        used = true;
    }
    return used ? true : cf_fail(err, CF_E_USAGE, "--rename %s: no key fits", rule);
}

/* The keys again, after they changed: each once. */
static bool index_keys(cf_catalogue *cat, cf_err *err)
{
    cf_map_init(&cat->keys, &cat->arena);
    for (size_t i = 0; i < cat->count; i++) {
        bool fresh;
        cf_row *row = cat->rows[i];
        uint64_t *place = cf_map_put(&cat->keys, row->key, strlen(row->key), &fresh);
        if (!place) return cf_arena_ok(&cat->arena, err);
        if (!fresh) return cf_fail(err, CF_E_DUP_KEY, "two keys become %s", row->key);
        *place = (uintptr_t)row;
    }
    return true;
}

static bool check_used(const char *option, const char *const *globs, int n, const bool *used,
                       cf_err *err)
{
    for (int i = 0; i < n; i++)
        if (!used[i]) return cf_fail(err, CF_E_USAGE, "--%s %s: no key fits", option, globs[i]);
    return true;
}

bool cf_filter_fit(const cf_filter *f, cf_err *err)
{
    return check_used("include", f->include, f->n_include, f->included, err) &&
           check_used("exclude", f->exclude, f->n_exclude, f->excluded, err);
}

bool cf_catalogue_filter(cf_catalogue *cat, const cf_filter *f, cf_err *err)
{
    cf_filter own = *f;
    if (!f->included) own.included = CF_NEWS(&cat->arena, bool, (size_t)f->n_include + 1);
    if (!f->excluded) own.excluded = CF_NEWS(&cat->arena, bool, (size_t)f->n_exclude + 1);
    if (!own.included || !own.excluded) return cf_arena_ok(&cat->arena, err);
    size_t n = 0;
    for (size_t i = 0; i < cat->count; i++) {
        const char *key = cat->rows[i]->key;
        const bool in = !f->n_include || any(f->include, f->n_include, key, own.included);
        const bool out = any(f->exclude, f->n_exclude, key, own.excluded);
        if (in && !out) cat->rows[n++] = cat->rows[i];
    }
    cat->count = n;
    if (!f->included && !cf_filter_fit(&own, err)) return false;
    for (int i = 0; i < f->n_rename; i++)
        if (!rename_rows(cat, f->rename[i], err)) return false;
    return (!f->n_include && !f->n_exclude && !f->n_rename) || index_keys(cat, err);
}
