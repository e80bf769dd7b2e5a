#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void cf_text_free(cf_text *text)
{
    free(text->at);
    *text = (cf_text){0};
}

static bool reserve(cf_text *text, size_t more)
{
    if (text->failed) return false;
    if (text->cap - text->size > more) return true;
    size_t cap = text->cap ? text->cap : 256;
    while (cap - text->size <= more) {
        if (cap > SIZE_MAX / 4) {
            text->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *at = realloc(text->at, cap);
    if (!at) {
        text->failed = true;
        return false;
    }
    text->at = at;
    text->cap = cap;
    return true;
}

void cf_text_add(cf_text *text, const void *bytes, size_t size)
{
    if (!reserve(text, size)) return;
    if (size) memcpy(text->at + text->size, bytes, size);
    text->size += size;
    text->at[text->size] = '\0';
}

void cf_text_str(cf_text *text, const char *s)
{
    cf_text_add(text, s, strlen(s));
}

void cf_text_printf(cf_text *text, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    if (n > 0 && reserve(text, (size_t)n)) {
        vsnprintf(text->at + text->size, (size_t)n + 1, fmt, again);
        text->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

/* Length of the UTF-8 character at s, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_char(const unsigned char *s, size_t left)
{
    const unsigned char c = s[0];
    if (c < 0x80) return 1;
    const size_t n = c >= 0xc2 && c <= 0xdf   ? 2
                     : (c & 0xf0) == 0xe0     ? 3
                     : c >= 0xf0 && c <= 0xf4 ? 4
                                              : 0;
    if (!n || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) || (c == 0xf0 && s[1] < 0x90) ||
        (c == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

size_t cf_utf8_valid(const char *s, size_t size)
{
    size_t i = 0;
    while (i < size) {
        uint64_t eight;
        for (; size - i >= sizeof eight; i += sizeof eight) { /* most are ASCII alone */
            memcpy(&eight, s + i, sizeof eight);
            if (eight & 0x8080808080808080) break;
        }
        if (i == size) break;
        const size_t n = utf8_char((const unsigned char *)s + i, size - i);
        if (!n) return i;
        i += n;
    }
    return size;
}

void cf_text_shown(cf_text *text, const char *s, size_t size)
{
    for (size_t i = 0; i < size;) {
        const unsigned char c = (unsigned char)s[i];
        const size_t n = utf8_char((const unsigned char *)s + i, size - i);
        /* C1 controls (U+0080 to U+009F) steer terminals as well */
        const bool control =
            c < 0x20 || c == 0x7f || (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0);
        if (n && !control) {
            cf_text_add(text, s + i, n);
            i += n;
        } else if (c == '\n') {
            cf_text_str(text, "\\n");
            i++;
        } else {
            for (size_t k = 0; k < (n ? n : 1); k++)
                cf_text_printf(text, "\\x%02x", (unsigned char)s[i + k]);
            i += n ? n : 1;
        }
    }
}

void cf_text_json(cf_text *text, const char *s, size_t size)
{
    cf_text_add(text, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)s[i];
        const size_t n = c < 0x80 ? 1 : utf8_char((const unsigned char *)s + i, size - i);
        const bool c1 = n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0;
        if (n && !c1 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += n - 1;
            continue;
        }
        cf_text_add(text, s + from, i - from);
        from = i + (c1 ? 2 : 1);
        if (c1 || !n) { /* a control, or no UTF-8: shown as text */
            cf_text_printf(text, c1 ? "\\u%04x" : "\\\\x%02x", c1 ? (unsigned char)s[++i] : c);
            continue;
        }
        if (c == '"' || c == '\\')
            cf_text_printf(text, "\\%c", c);
        else if (c == '\n')
            cf_text_str(text, "\\n");
        else
            cf_text_printf(text, "\\u%04x", c);
    }
    cf_text_add(text, s + from, size - from);
    cf_text_add(text, "\"", 1);
}

void cf_text_size(cf_text *text, uint64_t bytes)
{
    static const char *const UNIT[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    double n = (double)bytes;
    for (; n >= 1024 && unit < 6; unit++) n /= 1024;
    if (unit == 0)
        cf_text_printf(text, "%llu B", (unsigned long long)bytes);
    else
        cf_text_printf(text, n < 10 ? "%.2f %s" : n < 100 ? "%.1f %s" : "%.0f %s", n, UNIT[unit]);
}

bool cf_size_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"KiB", 1 << 10},
                 {"MiB", 1 << 20},
                 {"GiB", 1 << 30},
                 {"TiB", (uint64_t)1 << 40}};
    const char *p = text;
    uint64_t whole = 0, part = 0, of = 1; /* part of `of`: what stands behind the point */
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (p == text) return false;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (of < 1000000) {
                part = 10 * part + (uint64_t)(*p - '0');
                of *= 10;
            }
    if (p[-1] == '.') return false;
    while (*p == ' ') p++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(p, units[i].name) != 0) continue;
        const uint64_t more = part * units[i].factor / of; /* below 10^6 * 2^40 */
        if (__builtin_mul_overflow(whole, units[i].factor, bytes) ||
            __builtin_add_overflow(*bytes, more, bytes))
            return false;
        return *bytes > 0 && *bytes <= INT64_MAX;
    }
    return false;
}

bool cf_text_ok(const cf_text *text, cf_err *err)
{
    return text->failed ? cf_fail(err, CF_E_MEMORY, "out of memory") : true;
}

bool cf_text_ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

int cf_text_distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    const size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return 99;
    int row[MOST + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int above = row[j];
            int best = corner + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            corner = above;
        }
    }
    return row[m];
}

const char *cf_article(const char *word)
{
    return *word && strchr("aeiouAEIO", *word) ? "an" : strcmp(word, "ndarray") == 0 ? "an" : "a";
}
