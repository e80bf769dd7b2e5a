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

/* The bytes of an opcode with its argument. LENGTH and 0, 1, 2, 3: a length of 1, 2, 4, 8 bytes
 * and what it counts. 0: no opcode that the machine knows. */
enum { LENGTH = -8, LINES = -4, GET = -3, LONG_GET = -2, END = -1 };
static const int8_t ARGUMENT[256] = {
    ['('] = 1,           [STOP] = END,        ['0'] = 1,           ['1'] = 1,
    ['N'] = 1,           ['R'] = 1,           ['b'] = 1,           ['d'] = 1,
    ['l'] = 1,           ['t'] = 1,           ['}'] = 1,           [']'] = 1,
    [')'] = 1,           ['a'] = 1,           ['e'] = 1,           ['s'] = 1,
    ['u'] = 1,           ['Q'] = 1,           [BINGET] = GET,      [LONG_BINGET] = LONG_GET,
    ['q'] = 2,           ['r'] = 5,           ['K'] = 2,           ['M'] = 3,
    ['J'] = 5,           ['G'] = 9,           ['T'] = LENGTH + 2,  ['U'] = LENGTH,
    ['X'] = LENGTH + 2,  ['B'] = LENGTH + 2,  ['C'] = LENGTH,      [0x80] = 2,
    [0x81] = 1,          [0x85 ... 0x89] = 1, [0x8a] = LENGTH,     [0x8b] = LENGTH + 2,
    [0x8c] = LENGTH,     [0x8d] = LENGTH + 3, [0x8e] = LENGTH + 3, [FRAME] = 9,
    [0x8f ... 0x94] = 1, [0x96] = LENGTH + 3, [GLOBAL] = LINES,
};

/* Where an opcode at `at` with a length, or with lines, ends; 0: it does not. */
static size_t after(const uint8_t *bytes, size_t size, size_t at)
{
    const int argument = ARGUMENT[bytes[at++]];
    if (argument == LINES) {
        for (int line = 0; line < 2; line++) {
            const uint8_t *newline = memchr(bytes + at, '\n', size - at);
            if (!newline) return 0;
            at = (size_t)(newline - bytes) + 1;
        }
        return at;
    }
    const size_t width = (size_t)1 << (argument - LENGTH);
    if (width > size - at) return 0;
    const uint8_t *p = bytes + at;
    const uint64_t length = width == 1 ? *p : width == 4 ? cf_le32(p) : cf_le64(p);
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

/* Marks a slot that is read after `steps` opcodes; false with err->code CF_OK: there is no such. */
static bool mark(cf_memo *memo, uint64_t slot, size_t steps, cf_err *err)
{
    if (slot > steps && slot > UINT8_MAX) return false;
    CF_TRY(grow(&memo->read, &memo->words, slot, err));
    memo->read[slot / 64] |= 1ull << slot % 64;
    return true;
}

static bool scan(cf_memo *memo, const uint8_t *bytes, size_t size, cf_err *err)
{
    err->code = CF_OK;
    size_t steps = 0;
    for (size_t at = 0; at < size; steps++) {
        const int argument = ARGUMENT[bytes[at]];
        if (argument > 0) {
            at += (size_t)argument; /* beyond the end, where it is not whole */
        } else if (argument == GET || argument == LONG_GET) {
            const size_t width = argument == GET ? 1 : 4;
            if (width >= size - at) break;
            const uint64_t slot = width == 1 ? bytes[at + 1] : cf_le32(bytes + at + 1);
            if (!mark(memo, slot, steps, err)) break;
            at += 1 + width;
        } else {
            if (argument == END || !argument) break;
            at = after(bytes, size, at);
            if (!at) break;
        }
    }
    return err->code == CF_OK;
}

/* The first slot from `from` on that is read some time. */
static uint64_t next_read(const cf_memo *memo, uint64_t from)
{
    for (size_t word = from / 64; word < memo->words; word++) {
        uint64_t bits = memo->read[word];
        if (word == from / 64) bits &= UINT64_MAX << from % 64;
        if (bits) return word * 64 + (uint64_t)__builtin_ctzll(bits);
    }
    return UINT64_MAX;
}

bool cf_memo_init(cf_memo *memo, const uint8_t *bytes, size_t size, cf_err *err)
{
    CF_TRY(scan(memo, bytes, size, err));
    memo->rank = malloc((memo->words + 1) * sizeof *memo->rank);
    if (!memo->rank) return cf_fail(err, CF_E_MEMORY, "out of memory");
    uint32_t n = 0;
    for (size_t i = 0; i < memo->words; i++) {
        memo->rank[i] = n;
        n += (uint32_t)__builtin_popcountll(memo->read[i]);
    }
    memo->next_read = next_read(memo, 0);
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

static bool was_written(const cf_memo *memo, uint64_t slot)
{
    return slot < memo->dense ||
           (slot / 64 < memo->written_words && (memo->written[slot / 64] >> slot % 64 & 1));
}

bool cf_memo_put(cf_memo *memo, uint64_t slot, cf_node *node, cf_err *err)
{
    memo->count += !was_written(memo, slot);
    if (slot == memo->dense) {
        while (was_written(memo, ++memo->dense)) {
        }
        if (memo->next_read < memo->dense) memo->next_read = next_read(memo, memo->dense);
    } else if (slot > memo->dense) {
        CF_TRY(grow(&memo->written, &memo->written_words, slot, err));
        memo->written[slot / 64] |= 1ull << slot % 64;
    }
    cf_node **at = place(memo, slot);
    if (!at) return true;
    node->memoed = true;
    *at = node;
    memo->recent[slot % CF_RECENT] = (struct cf_recent){slot, node};
    return true;
}

cf_node *cf_memo_find(cf_memo *memo, uint64_t slot)
{
    cf_node **at = place(memo, slot);
    if (!at || !*at) return NULL;
    memo->recent[slot % CF_RECENT] = (struct cf_recent){slot, *at};
    return *at;
}
