/* Which rank opens which file, when a checkpoint is loaded by as many ranks as wrote it: what each
 * holds it must read, wherever that lies. */
#ifndef CF_READS_H
#define CF_READS_H

#include "holders.h"

typedef struct cf_reads {
    const char **files; /* by number; those that hold anything, in the order of the listing */
    uint32_t n_files;
    uint64_t *opened;   /* a row of bits a rank: its files; cf_reads_opens reads it */
    size_t row;         /* words of a row */
    uint64_t *requests; /* by rank: items and stretches that it reads */
    uint64_t *bytes;    /* by rank: of those */
    uint64_t *kept;     /* by rank: bytes that lie in its files */
    uint32_t *fan_in;   /* by rank: files it opens */
    uint32_t max_fan_in;
    uint64_t duplicated; /* bytes that are read by a second, third ... rank */
} cf_reads;

/* As the files are. */
bool cf_reads_now(cf_reads *reads, const cf_holding *holding, const cf_catalogue *cat,
                  cf_arena *arena, cf_err *err);
/* With each item in the file of its keeper, __<rank>_0.distcp. */
bool cf_reads_kept(cf_reads *reads, const cf_holding *holding, cf_arena *arena, cf_err *err);

static inline bool cf_reads_opens(const cf_reads *r, int32_t rank, uint32_t file)
{
    return r->opened[(size_t)rank * r->row + file / 64] >> file % 64 & 1;
}

#endif
