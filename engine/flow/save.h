/* Is it one save? What files say of it as a whole (step, world size, whose they are) held against
 * one another, and in words for people: which ranks say what, which are missing and what lives
 * only there, which values differ between ranks. */
#ifndef CF_SAVE_H
#define CF_SAVE_H

#include "catalogue.h"

typedef struct cf_said {
    const char *key;  /* NULL: how many ranks there are */
    const char *text; /* NULL: the file does not say, it is only there */
    int64_t size;     /* of the world; -1: not said */
    int32_t rank;
    uint32_t file;
} cf_said;

/* What all files of a save share: E_META_CONFLICT with the table of who says what. */
bool cf_save_same(const cf_catalogue *cat, cf_err *err);
/* A missing rank is E_MISSING_FILE, with what lives only there; a surplus one, one that is there
 * twice and worlds that differ are E_META_CONFLICT. Sets cat->world. */
bool cf_save_world(cf_catalogue *cat, cf_err *err);
/* How many ranks the files that are here say there were, whoever of them is missing. */
void cf_save_said_world(cf_catalogue *cat);
/* Notes which values differ and between which ranks; --values strict refuses them. */
bool cf_save_values(cf_catalogue *cat, cf_err *err);

/* Ranks (sorted in place, each once) as "0-3,7"; of many runs the first 16. */
void cf_ranks_text(cf_text *text, int32_t *ranks, size_t count);
/* Holders of hashes as groups of equals: "0,1 | 2-7", "each of 4 ranks its own". */
void cf_groups_text(cf_text *text, const uint64_t *hashes, const int32_t *ranks, size_t count);

#endif
