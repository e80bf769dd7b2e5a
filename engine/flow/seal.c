#include "seal.h"

#include <libdeflate.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "records.h"

enum { PIECE = 64 << 10, MOST_DIGITS = 16 };

static uint32_t crc_of(const cf_block *b, const cf_b_seal *s, const uint32_t *crc)
{
    uint32_t all = 0;
    for (uint64_t i = s->first; i < (uint64_t)s->first + s->count; i++) {
        const cf_b_chunk *c = &b->chunks[i];
        if (c->end > c->begin)
            all = (uint32_t)crc32_combine(all, crc[i], (z_off_t)(c->end - c->begin));
    }
    return all;
}

/* What the seal says; at most MOST_DIGITS digits carry anything. */
static uint64_t text_of(const cf_block *b, const cf_b_seal *s, const uint32_t *crc, char *text)
{
    const uint32_t value = crc_of(b, s, crc);
    if (s->digits) return (uint64_t)snprintf(text, MOST_DIGITS, "%010lu", (unsigned long)value);
    for (int i = 0; i < 4; i++) text[i] = (char)(value >> 8 * i);
    return 4;
}

/* Copies what of the seal lies in begin..end-1 of the chunk. */
static void put(const cf_b_seal *s, const char *text, uint64_t size, char *piece, uint64_t begin,
                uint64_t end)
{
    const uint64_t at = s->at + cf_seal_size(s) - size; /* the zeros in front are there */
    for (uint64_t i = 0; i < size; i++)
        if (at + i >= begin && at + i < end) piece[at + i - begin] = text[i];
}

/* One late chunk, piece by piece; seals from number *next on are its. */
static bool seal_chunk(const cf_block *b, uint64_t chunk, uint64_t *next, uint32_t *crc, int fd,
                       char *piece, cf_err *err)
{
    const cf_b_chunk *c = &b->chunks[chunk];
    const uint64_t size = c->end - c->begin;
    uint32_t sum = 0;
    for (uint64_t begin = 0; begin < size; begin += PIECE) {
        const uint64_t end = begin + PIECE < size ? begin + PIECE : size;
        memcpy(piece, b->bytes + c->bytes.at + begin, end - begin);
        for (uint64_t i = *next; i < b->n_seals && b->seals[i].chunk == chunk; i++) {
            const cf_b_seal *s = &b->seals[i];
            char text[MOST_DIGITS];
            if (s->at >= end) break;
            put(s, text, text_of(b, s, crc, text), piece, begin, end);
            if (s->at + cf_seal_size(s) <= end) *next = i + 1;
        }
        sum = libdeflate_crc32(sum, piece, end - begin);
        if (!cf_write_all(fd, piece, end - begin, c->begin + begin, err)) return false;
    }
    crc[chunk] = sum;
    return true;
}

bool cf_seal(const cf_block *block, uint32_t *crc, const int *outputs, cf_err *err)
{
    char piece[PIECE];
    uint64_t next = 0;
    for (uint64_t f = 0; next < block->n_seals && f < block->n_files; f++) {
        const cf_b_file *file = &block->files[f];
        for (uint64_t i = file->chunk; i < file->chunk + file->chunks; i++)
            if (block->chunks[i].late && !seal_chunk(block, i, &next, crc, outputs[f], piece, err))
                return cf_err_in_file(err, cf_block_text(block, file->path));
    }
    return true;
}
