/* A scanner of JSON text, strict as RFC 8259, shared by the reader of safetensors headers (which
 * makes no tree) and that of JSON files (which does). Escapes are decoded in place, because a
 * decoded text is never longer than the escaped one: strings are pointers into the text. Errors
 * carry the offset of the byte. */
#ifndef CF_JSON_SCAN_H
#define CF_JSON_SCAN_H

#include "node.h"

typedef struct cf_scan {
    char *text; /* `size` bytes of UTF-8, then a NUL */
    size_t at, size;
    int64_t start; /* of the text in its file */
    cf_err *err;
} cf_scan;

/* At the text's first byte; text[size] is a NUL. E_UTF8. */
bool cf_scan_begin(cf_scan *s, char *text, size_t size, int64_t start, cf_err *err);
/* Nothing but white space is left. */
bool cf_scan_end(cf_scan *s);

static inline int64_t cf_scan_offset(const cf_scan *s)
{
    return s->start + (int64_t)s->at;
}

#define cf_scan_fail(s, code, message)                                                             \
    cf_fail_at((s)->err, (code), cf_scan_offset(s), "%s", message)

/* The next character that is no white space; NUL at the end (or for a NUL, which fits nowhere). */
char cf_scan_peek(cf_scan *s);
bool cf_scan_take(cf_scan *s, char c); /* false: something else is next */
bool cf_scan_expect(cf_scan *s, char c);
bool cf_scan_string(cf_scan *s, cf_string *out);
/* true, false or null: its first letter. */
bool cf_scan_word(cf_scan *s, char *out);
/* A number's digits as they are; whole: without fraction and exponent. */
bool cf_scan_number(cf_scan *s, cf_string *out, bool *whole);
/* Any value, nested in depth - 1 others. */
bool cf_scan_skip(cf_scan *s, int depth);

/* An integer as a node; text: `digits` as JSON has them, borrowed if they are more than 64 bits. */
cf_node *cf_json_integer(cf_arena *arena, const char *digits, size_t length);

#endif
