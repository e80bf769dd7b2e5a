/* Patterns over paths, globs over names, and natural order.
 *
 * A pattern is cut into at most 63 tokens: literals and wildcards. Matching runs from the end of
 * the path to its start and keeps, for each position, the set of tokens that can take the rest from
 * there (one bit each): one pass, whatever the pattern. The way back to the front then gives each
 * wildcard the longest stretch that leaves a match, as a regular expression would.
 */
#include "pattern.h"

#include <limits.h>
#include <string.h>

enum { MOST_TOKENS = 63 };

typedef struct token {
    enum { LITERAL, DIGITS, NAME, ANY } takes; /* NAME: all but "/" */
    unsigned least;                            /* bytes that a wildcard must take */
    const char *text;                          /* of a literal, or a placeholder's name */
    size_t length;
} token;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* The token at `at`, and what follows it. False: no placeholder where a brace opens. */
static bool next_token(const char **at, token *t)
{
    const char *p = *at;
    const bool brace = *p == '{';
    *t = (token){.takes = DIGITS, .least = brace};
    if (brace) {
        t->text = ++p;
        while (is_word(*p)) p++;
        t->length = (size_t)(p - t->text);
    } else if (*p != '*') {
        *t = (token){.takes = LITERAL, .text = p, .length = strcspn(p, "*{")};
        *at = p + t->length;
        return true;
    }
    if (*p == '*') {
        t->takes = p[1] == '*' ? ANY : NAME;
        p += t->takes == ANY ? 2 : 1;
    }
    if (brace && *p++ != '}') return false;
    *at = p;
    return true;
}

static bool same_text(const token *t, const char *name)
{
    return strlen(name) == t->length && memcmp(t->text, name, t->length) == 0;
}

bool cf_pattern_check(const char *pattern, cf_err *err)
{
    static const char *const taken[] = {"name", "folder", "root", "meta",
                                        "size", "kind",   "walk", "refuse"};
    token tokens[MOST_TOKENS];
    int count = 0, captures = 0;
    for (const char *p = pattern; *p; count++) {
        if (count == MOST_TOKENS)
            return cf_fail(err, CF_E_LAYOUT, "pattern \"%s\": more than %d wildcards and texts",
                           pattern, MOST_TOKENS);
        token *t = &tokens[count];
        if (!next_token(&p, t) || (t->takes != LITERAL && t->text && !t->length))
            return cf_fail(err, CF_E_LAYOUT,
                           "pattern \"%s\": \"{\" begins no {name}, {name*} or {name**}", pattern);
        if (t->takes == LITERAL || !t->text) continue;

        const int length = (int)t->length;
        if (t->length >= sizeof((cf_capture *)0)->name || is_digit(*t->text))
            return cf_fail(err, CF_E_LAYOUT, "pattern \"%s\": {%.*s} is no name for a placeholder",
                           pattern, length, t->text);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            if (same_text(t, taken[i]))
                return cf_fail(err, CF_E_LAYOUT,
                               "pattern \"%s\": a file has a field \"%s\" already", pattern,
                               taken[i]);
        for (int i = 0; i < count; i++)
            if (tokens[i].takes != LITERAL && tokens[i].text && tokens[i].length == t->length &&
                memcmp(tokens[i].text, t->text, t->length) == 0)
                return cf_fail(err, CF_E_LAYOUT, "pattern \"%s\": {%.*s} stands there twice",
                               pattern, length, t->text);
        if (++captures > CF_MOST_CAPTURES)
            return cf_fail(err, CF_E_LAYOUT, "pattern \"%s\": more than %d placeholders", pattern,
                           CF_MOST_CAPTURES);
    }
    return true;
}

static bool takes(const token *t, char c)
{
    return t->takes == ANY || (t->takes == NAME ? c != '/' : is_digit(c));
}

static bool stands_at(const token *literal, const char *path, size_t length, size_t at)
{
    return literal->length <= length - at && memcmp(path + at, literal->text, literal->length) == 0;
}

/* Sets can[at]: the tokens that can take the whole rest of the path from `at`, given those of all
 * later places. `open`: the wildcards that, having taken enough, can go on here or end here. */
static void tokens_from(const token *tokens, int count, const char *path, size_t length, size_t at,
                        uint64_t *can, uint64_t *open)
{
    can[at] = at == length ? UINT64_C(1) << count : 0;
    for (int i = count - 1; i >= 0; i--) {
        const token *t = &tokens[i];
        const uint64_t bit = UINT64_C(1) << i, next = bit << 1;
        if (t->takes == LITERAL) {
            if (stands_at(t, path, length, at) && (can[at + t->length] & next)) can[at] |= bit;
            continue;
        }
        const bool more = at < length && takes(t, path[at]) && (*open & bit);
        if (more || (!t->least && (can[at] & next))) can[at] |= bit;
        *open = more || (can[at] & next) ? *open | bit : *open & ~bit;
    }
}

/* Digits as a number; false beyond 63 bits. */
static bool number(const char *digits, size_t length, int64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < length; i++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, digits[i] - '0', value))
            return false;
    return true;
}

bool cf_pattern_match(const char *pattern, const char *path, cf_captures *captures)
{
    token tokens[MOST_TOKENS];
    int count = 0;
    for (const char *p = pattern; *p; count++)
        if (count == MOST_TOKENS || !next_token(&p, &tokens[count])) return false;

    uint64_t can[PATH_MAX], open = 0; /* longer paths cannot be opened */
    const size_t length = strlen(path);
    if (length >= PATH_MAX) return false;
    if (count && tokens[0].takes == LITERAL && !stands_at(&tokens[0], path, length, 0))
        return false; /* most paths, at once */
    for (size_t at = length + 1; at-- > 0;)
        tokens_from(tokens, count, path, length, at, can, &open);
    if (!(can[0] & 1)) return false;

    cf_captures found = {.count = 0};
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const token *t = &tokens[i];
        const uint64_t next = UINT64_C(1) << (i + 1);
        size_t end = at + t->length;
        if (t->takes != LITERAL)
            for (size_t p = end = at; p <= length; p++) {
                if ((can[p] & next) && p >= at + t->least) end = p;
                if (p == length || !takes(t, path[p])) break;
            }
        if (t->takes != LITERAL && t->text) {
            if (found.count == CF_MOST_CAPTURES) return false;
            cf_capture *c = &found.items[found.count++];
            *c = (cf_capture){.number = t->takes == DIGITS, .from = at, .length = end - at};
            memcpy(c->name, t->text, t->length < sizeof c->name ? t->length : sizeof c->name - 1);
            if (c->number && !number(path + at, end - at, &c->value)) return false;
        }
        at = end;
    }
    if (captures) *captures = found;
    return true;
}

bool cf_glob_match(const char *glob, const char *name)
{
    const char *star = NULL, *resume = NULL; /* behind the last "*", and where it goes on */
    while (*name) {
        if (*glob == '*') {
            star = ++glob;
            resume = name;
        } else if (*glob == '?' || *glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return !*glob;
}

int cf_natural_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;
    while (*p && *q) {
        if (!is_digit(*p) || !is_digit(*q)) {
            if (*p != *q) return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
            p++;
            q++;
            continue;
        }
        while (*p == '0') p++;
        while (*q == '0') q++;
        size_t n = 0, m = 0;
        while (is_digit(p[n])) n++;
        while (is_digit(q[m])) m++;
        const int order = n != m ? (n < m ? -1 : 1) : memcmp(p, q, n);
        if (order) return order;
        p += n;
        q += m;
    }
    if (*p || *q) return *p ? 1 : -1;
    return strcmp(a, b); /* rank01 and rank1 */
}
