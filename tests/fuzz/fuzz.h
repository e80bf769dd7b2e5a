/* What the fuzz targets share. Each fuzz_*.c is one libFuzzer target (preset `fuzz`) and, linked
 * with replay.c, a test that runs the seeds once (tests/fuzz/seeds). Beside what the sanitizers
 * see, a target makes claims: what must hold whatever the bytes are.
 */
#ifndef CF_FUZZ_H
#define CF_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "node.h"

int LLVMFuzzerInitialize(int *argc, char ***argv); /* not every target has one */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLAIM(what)                                                                                \
    do {                                                                                           \
        if (what) break;                                                                           \
        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);                  \
        abort();                                                                                   \
    } while (0)

/* The bytes as a source of small decisions; zeros when they are used up. */
typedef struct fuzz_feed {
    const uint8_t *at;
    size_t left;
} fuzz_feed;

static inline uint8_t fuzz_byte(fuzz_feed *feed)
{
    return feed->left ? (feed->left--, *feed->at++) : 0;
}

/* Reads all of it, so that a sanitizer sees bytes that are not there. */
static inline void fuzz_touch(const uint8_t *bytes, size_t size)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) sum ^= bytes[i];
    __asm__ volatile("" : : "r"(sum));
}

/* Everything that walks over a tree: look.c. */
void fuzz_look(const cf_node *root);

#endif
