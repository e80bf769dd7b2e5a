/* The memo of a pickle: which slots are ever read, and what is in those.
 *
 * A writer numbers each object it writes (a .metadata of 66 MB has 13 million), but takes up again
 * few of them: names of fields, classes, paths. One pass over the opcodes, which only looks at the
 * arguments of BINGET and LONG_BINGET, tells which; the others need no place, and what is in no
 * slot has one owner, so that the machine may fold or reuse it (cf_node's `memoed`).
 *
 * The pass ends where an opcode is not known or not whole: the machine fails there too.
 */
#include <stdlib.h>
#include <string.h>

#include "pickle_vm.h"
#include "span.h"

enum { BINGET = 'h', LONG_BINGET = 'j', FRAME = 0x95, GLOBAL = 'c', STOP = '.' };

/* 1 and the bytes of an opcode's argument; -1, -4, -8: a length of so many bytes and what it
 * counts; LINES: two of them. 0: no opcode that the machine knows. */
enum { LINES = -2 };
static const int8_t ARGUMENT[256] = {
    ['('] = 1,           ['.'] = 1,   ['0'] = 1,        ['1'] = 1,           ['N'] = 1,
    ['R'] = 1,           ['b'] = 1,   ['d'] = 1,        ['l'] = 1,           ['t'] = 1,
    ['}'] = 1,           [']'] = 1,   [')'] = 1,        ['a'] = 1,           ['e'] = 1,
    ['s'] = 1,           ['u'] = 1,   ['Q'] = 1,        [BINGET] = 2,        [LONG_BINGET] = 5,
    ['q'] = 2,           ['r'] = 5,   ['K'] = 2,        ['M'] = 3,           ['J'] = 5,
    ['G'] = 9,           ['T'] = -4,  ['U'] = -1,       ['X'] = -4,          ['B'] = -4,
    ['C'] = -1,          [0x80] = 2,  [0x81] = 1,       [0x85 ... 0x89] = 1, [0x8a] = -1,
    [0x8b] = -4,         [0x8c] = -1, [0x8d] = -8,      [0x8e] = -8,         [FRAME] = 9,
    [0x8f ... 0x94] = 1, [0x96] = -8, [GLOBAL] = LINES,
};

static uint64_t number(const uint8_t *at, int width)
{
    return width == 1 ? *at : width == 4 ? cf_le32(at) : cf_le64(at);
}

/* Where the opcode at `at` ends; 0: it does not. */
static size_t after(const uint8_t *bytes, size_t size, size_t at)
{
    const int argument = ARGUMENT[bytes[at++]];
    if (argument > 0) return (size_t)argument - 1 <= size - at ? at + (size_t)argument - 1 : 0;
    if (!argument) return 0;
    if (argument == LINES) {
        for (int line = 0; line < 2; line++) {
            const uint8_t *newline = memchr(bytes + at, '\n', size - at);
            if (!newline) return 0;
            at = (size_t)(newline - bytes) + 1;
        }
        return at;
    }
    const size_t width = (size_t)-argument;
    if (width > size - at) return 0;
    const uint64_t length = number(bytes + at, -argument);
    at += width;
    return length <= size - at ? at + (size_t)length : 0;
}

static bool grow(uint64_t **bits, size_t *words, uint64_t slot, cf_err *err)
{
    if (slot / 64 < *words) return true;
    const size_t more = 2 * (size_t)(slot / 64) + 16;
    uint64_t *wide = realloc(*bits, more * sizeof *wide);
    if (!wide) return cf_fail(err, CF_E_MEMORY, "out of memory");
    memset(wide + *words, 0, (more - *words) * sizeof *wide);
    *bits = wide;
    *words = more;
    return true;
}

static bool scan(cf_memo *memo, const uint8_t *bytes, size_t size, cf_err *err)
{
    size_t steps = 0;
    for (size_t at = 0, next; at < size && bytes[at] != STOP; at = next, steps++) {
        next = after(bytes, size, at);
        if (!next) break;
        const bool wide = bytes[at] == LONG_BINGET;
        if (!wide && bytes[at] != BINGET) continue;
        const uint64_t slot = number(bytes + at + 1, wide ? 4 : 1);
        if (slot > steps && slot > UINT8_MAX) break; /* no such slot can be there yet */
        CF_TRY(grow(&memo->read, &memo->words, slot, err));
        memo->read[slot / 64] |= 1ull << slot % 64;
    }
    return true;
}

bool cf_memo_init(cf_memo *memo, const uint8_t *bytes, size_t size, cf_err *err)
{
    *memo = (cf_memo){0};
    CF_TRY(scan(memo, bytes, size, err));
    memo->rank = malloc((memo->words + 1) * sizeof *memo->rank);
    if (!memo->rank) return cf_fail(err, CF_E_MEMORY, "out of memory");
    uint32_t n = 0;
    for (size_t i = 0; i < memo->words; i++) {
        memo->rank[i] = n;
        n += (uint32_t)__builtin_popcountll(memo->read[i]);
    }
    memo->nodes = calloc(n + 1u, sizeof(cf_node *));
    return memo->nodes || cf_fail(err, CF_E_MEMORY, "out of memory");
}

void cf_memo_free(cf_memo *memo)
{
    free(memo->read);
    free(memo->written);
    free(memo->rank);
    free(memo->nodes);
}

/* The place of a slot that is read some time; NULL. */
static cf_node **place(const cf_memo *memo, uint64_t slot)
{
    if (slot / 64 >= memo->words) return NULL;
    const uint64_t bits = memo->read[slot / 64], bit = 1ull << slot % 64;
    if (!(bits & bit)) return NULL;
    return &memo->nodes[memo->rank[slot / 64] + (uint32_t)__builtin_popcountll(bits & (bit - 1))];
}

bool cf_memo_put(cf_memo *memo, uint64_t slot, cf_node *node, cf_err *err)
{
    CF_TRY(grow(&memo->written, &memo->written_words, slot, err));
    const uint64_t bit = 1ull << slot % 64;
    memo->count += !(memo->written[slot / 64] & bit);
    memo->written[slot / 64] |= bit;
    cf_node **at = place(memo, slot);
    if (!at) return true;
    node->memoed = true;
    *at = node;
    return true;
}

cf_node *cf_memo_get(const cf_memo *memo, uint64_t slot)
{
    cf_node **at = place(memo, slot);
    return at ? *at : NULL;
}
