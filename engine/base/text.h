/* A growing run of text (heap memory), and what every printer of foreign text needs. */
#ifndef CF_TEXT_H
#define CF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

typedef struct cf_text {
    char *at; /* NUL-terminated once anything was added, else NULL */
    size_t size, cap;
    bool failed; /* sticky: out of memory */
} cf_text;

void cf_text_free(cf_text *text);
void cf_text_add(cf_text *text, const void *bytes, size_t size);
void cf_text_str(cf_text *text, const char *s);
void cf_text_printf(cf_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Text from a file, for a person: control characters and broken UTF-8 as \xNN, newline as \n. */
void cf_text_shown(cf_text *text, const char *s, size_t size);
/* A JSON string with its quotes. Control characters are escaped; a byte that is no UTF-8 becomes
 * the text \xNN. */
void cf_text_json(cf_text *text, const char *s, size_t size);
/* "1.5 GiB", "312 B": for people; exact sizes go into JSON. */
void cf_text_size(cf_text *text, uint64_t bytes);
/* "5GB", "1.5 GiB", "512": kB MB GB TB are powers of 1000, KiB MiB GiB TiB of 1024, whatever their
 * case. False for anything else, 0, and more than 2^63-1. */
bool cf_size_parse(const char *text, uint64_t *bytes);
bool cf_text_ok(const cf_text *text, cf_err *err);

/* Is it UTF-8 without surrogates and overlong forms? The offset of the first bad byte, or size. */
size_t cf_utf8_valid(const char *s, size_t size);

/* "a" or "an", and both with the word as two arguments of a format: "%s %s". */
const char *cf_article(const char *word);
#define CF_A(word) cf_article(word), (word)

bool cf_text_ends(const char *text, const char *suffix);

/* Levenshtein's distance, capped at 99: for "did you mean". */
int cf_text_distance(const char *a, const char *b);

#endif
