#include "replicas.h"

#include <stdio.h>
#include <string.h>

#include "windows.h"

void cf_replica_conflict(cf_err *err, int32_t a, const char *in_a, int32_t b, const char *in_b)
{
    if (a < 0 || b < 0) {
        cf_err_set(err, CF_E_META_CONFLICT, "%s and %s both hold it, with different bytes", in_a,
                   in_b);
        cf_err_set_hint(err,
                        "if these are shards: a format plugin says how they join, see --format");
    } else {
        cf_err_set(err, CF_E_META_CONFLICT, "rank %d (%s) and rank %d (%s) hold different bytes", a,
                   in_a, b, in_b);
        cf_err_set_hint(err, "--replicas trust takes rank %d's", a);
    }
}

static bool compare_piece(const cf_block *block, const cf_b_compare *c, uint64_t at, uint64_t size,
                          cf_gather *g, uint8_t *buffer, cf_err *err)
{
    const uint64_t half = g->means->tile / 2;
    uint8_t *left = buffer, *right = buffer + half;
    uint32_t crc;
    bool known;
    for (uint64_t from = at; from < at + size; from += half) {
        const uint64_t to = from + half < at + size ? from + half : at + size;
        if (!cf_gather_fill(g, c->left, 1, from, to, left, &crc, &known, err) ||
            !cf_gather_fill(g, c->right, 1, from, to, right, &crc, &known, err))
            return false;
        if (memcmp(left, right, to - from) == 0) continue;
        uint64_t k = 0;
        while (left[k] == right[k]) k++;
        const cf_b_move *a = &block->moves[c->left], *b = &block->moves[c->right];
        cf_replica_conflict(err, c->left_rank, cf_record_path(block, &block->records[a->record]),
                            c->right_rank, cf_record_path(block, &block->records[b->record]));
        const size_t n = strlen(err->message);
        snprintf(err->message + n, sizeof err->message - n, ", first in element %llu",
                 (unsigned long long)((from + k) / (uint64_t)cf_dtype_size((cf_dtype)a->dtype)));
        return false;
    }
    return true;
}

bool cf_replica_compare(const cf_block *block, const cf_b_compare *c, cf_gather *g, uint8_t *buffer,
                        cf_err *err)
{
    uint64_t at, size;
    bool ok = true;
    for (uint64_t i = 0; ok && cf_compare_part(c, i, &at, &size); i++)
        ok = compare_piece(block, c, at, size, g, buffer, err);
    return ok || cf_err_in_member(err, cf_block_text(block, c->key));
}
