#include "json_scan.h"

#include <string.h>

bool cf_scan_begin(cf_scan *s, char *text, size_t size, int64_t start, cf_err *err)
{
    *s = (cf_scan){.text = text, .size = size, .start = start, .err = err};
    s->at = cf_utf8_valid(text, size);
    if (s->at < size) return cf_scan_fail(s, CF_E_UTF8, "text that is not UTF-8");
    s->at = 0;
    return true;
}

bool cf_scan_end(cf_scan *s)
{
    cf_scan_peek(s);
    return s->at == s->size || cf_scan_fail(s, CF_E_JSON, "more than one JSON value");
}

/* The next character that is no white space; NUL at the end (or for a NUL, which fits nowhere). */
char cf_scan_peek(cf_scan *s)
{
    for (;; s->at++) {
        const char c = s->text[s->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    }
}

bool cf_scan_take(cf_scan *s, char c)
{
    if (cf_scan_peek(s) != c) return false;
    s->at++;
    return true;
}

bool cf_scan_expect(cf_scan *s, char c)
{
    if (cf_scan_take(s, c)) return true;
    if (s->at == s->size)
        return cf_fail_at(s->err, CF_E_JSON, cf_scan_offset(s), "the text ends where '%c' belongs",
                          c);
    return cf_fail_at(s->err, CF_E_JSON, cf_scan_offset(s), "'%c' expected", c);
}

static bool hex4(cf_scan *s, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = s->text[s->at], low = (char)(c | 0x20);
        const int digit = c >= '0' && c <= '9'       ? c - '0'
                          : low >= 'a' && low <= 'f' ? low - 'a' + 10
                                                     : -1;
        if (digit < 0) return cf_scan_fail(s, CF_E_JSON, "\\u without four hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static bool unicode_escape(cf_scan *s, char **to)
{
    uint32_t c, low;
    CF_TRY(hex4(s, &c));
    if (c >= 0xd800 && c < 0xe000) {
        if (c >= 0xdc00 || strncmp(s->text + s->at, "\\u", 2) != 0)
            return cf_scan_fail(s, CF_E_UTF8, "half a surrogate pair");
        s->at += 2;
        CF_TRY(hex4(s, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return cf_scan_fail(s, CF_E_UTF8, "half a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    char *p = *to;
    if (c < 0x80) {
        *p++ = (char)c;
    } else if (c < 0x800) {
        *p++ = (char)(0xc0 | c >> 6);
        *p++ = (char)(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            *p++ = (char)(0xe0 | c >> 12);
        } else {
            *p++ = (char)(0xf0 | c >> 18);
            *p++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *p++ = (char)(0x80 | (c >> 6 & 0x3f));
        *p++ = (char)(0x80 | (c & 0x3f));
    }
    *to = p;
    return true;
}

static bool escape(cf_scan *s, char **to)
{
    static const char FROM[] = "\"\\/bfnrt", INTO[] = "\"\\/\b\f\n\r\t";
    const char c = s->text[s->at];
    const char *known = c ? strchr(FROM, c) : NULL;
    if (c != 'u' && !known) return cf_scan_fail(s, CF_E_JSON, "an unknown escape in a string");
    s->at++;
    if (c == 'u') return unicode_escape(s, to);
    *(*to)++ = INTO[known - FROM];
    return true;
}

bool cf_scan_string(cf_scan *s, cf_string *out)
{
    CF_TRY(cf_scan_expect(s, '"'));
    char *const from = s->text + s->at, *to = from;
    while (s->text[s->at] != '"') {
        const char c = s->text[s->at];
        if (s->at == s->size) return cf_scan_fail(s, CF_E_JSON, "the text ends within a string");
        if ((unsigned char)c < 0x20)
            return cf_scan_fail(s, CF_E_JSON, "a control character in a string");
        s->at++;
        if (c == '\\')
            CF_TRY(escape(s, &to));
        else
            *to++ = c;
    }
    s->at++;
    *out = (cf_string){from, (size_t)(to - from)};
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool digits(cf_scan *s)
{
    const size_t from = s->at;
    while (is_digit(s->text[s->at])) s->at++;
    return s->at > from || cf_scan_fail(s, CF_E_JSON, "a digit expected");
}

bool cf_scan_word(cf_scan *s, char *out)
{
    static const char *const WORDS[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        const size_t n = strlen(WORDS[i]);
        if (strncmp(s->text + s->at, WORDS[i], n) != 0) continue;
        s->at += n;
        *out = WORDS[i][0];
        return true;
    }
    return cf_scan_fail(s, CF_E_JSON, "a value expected");
}

bool cf_scan_number(cf_scan *s, cf_string *out, bool *whole)
{
    const size_t from = s->at;
    if (s->text[s->at] == '-') s->at++;
    if (s->text[s->at] == '0')
        s->at++;
    else
        CF_TRY(digits(s));
    const size_t end = s->at;
    if (s->text[s->at] == '.') {
        s->at++;
        CF_TRY(digits(s));
    }
    if ((s->text[s->at] | 0x20) == 'e') {
        s->at++;
        if (s->text[s->at] == '-' || s->text[s->at] == '+') s->at++;
        CF_TRY(digits(s));
    }
    *out = (cf_string){s->text + from, s->at - from};
    *whole = s->at == end;
    return true;
}

bool cf_scan_skip(cf_scan *s, int depth)
{
    cf_string ignored;
    bool whole;
    char word;
    const char c = cf_scan_peek(s);
    if (c == '"') return cf_scan_string(s, &ignored);
    if (c == '-' || is_digit(c)) return cf_scan_number(s, &ignored, &whole);
    if (c != '{' && c != '[') return cf_scan_word(s, &word);
    if (depth > CF_MOST_DEPTH) return cf_scan_fail(s, CF_E_DEPTH, "JSON nested too deeply");
    const char close = c == '{' ? '}' : ']';
    s->at++;
    if (cf_scan_take(s, close)) return true;
    do {
        if (c == '{') CF_TRY(cf_scan_string(s, &ignored) && cf_scan_expect(s, ':'));
        CF_TRY(cf_scan_skip(s, depth + 1));
    } while (cf_scan_take(s, ','));
    return cf_scan_expect(s, close);
}
