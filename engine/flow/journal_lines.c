#include "journal_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE " share "

enum { MOST_BYTES = 1 << 30 }; /* of a journal: petabytes of output */

/* ---- what a run is of --------------------------------------------------------------------------
 */

typedef struct sum {
    uint64_t half[2];
} sum;

static void add(sum *s, const void *bytes, size_t size)
{
    s->half[0] = cf_hash(bytes, size, s->half[0]);
    s->half[1] = cf_hash(bytes, size, s->half[1]);
}

static sum sum_of_inputs(const cf_block *b)
{
    sum s = {{0x636b7074666c6f77, 0x696e70757473}};
    for (uint64_t i = 0; i < b->n_sources; i++) {
        const cf_b_source *f = &b->sources[i];
        const uint64_t numbers[] = {f->size, f->inode, (uint64_t)f->mtime_ns, f->root};
        add(&s, cf_block_text(b, f->path), f->path.size);
        add(&s, numbers, sizeof numbers);
    }
    return s;
}

static sum sum_of_plan(const cf_block *b)
{
    sum s = {{0x636b7074666c6f77, 0x706c616e}};
    const struct {
        const void *at;
        size_t size;
    } sections[] = {
        {b->records, b->n_records * sizeof *b->records},
        {b->files, b->n_files * sizeof *b->files},
        {b->chunks, b->n_chunks * sizeof *b->chunks},
        {b->tensors, b->n_tensors * sizeof *b->tensors},
        {b->values, b->n_values * sizeof *b->values},
        {b->terms, b->n_terms * sizeof *b->terms},
        {b->seals, b->n_seals * sizeof *b->seals},
        {b->moves, b->n_moves * sizeof *b->moves},
        {b->compares, b->n_compares * sizeof *b->compares},
        {b->checks, b->n_checks * sizeof *b->checks},
        {b->numbers, b->n_numbers * sizeof *b->numbers},
        {b->bytes, b->n_bytes},
    };
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        add(&s, sections[i].at, sections[i].size);
    return s;
}

/* ---- lines -------------------------------------------------------------------------------------
 */

void cf_line_end(cf_text *line)
{
    if (!line->at) return;
    cf_text_printf(line, " %08x\n", libdeflate_crc32(0, line->at, line->size));
}

void cf_line_head(cf_text *line, const cf_block *b)
{
    const sum inputs = sum_of_inputs(b), plan = sum_of_plan(b);
    cf_text_printf(line,
                   "ckptflow-journal 1 %s inputs %016" PRIx64 "%016" PRIx64 " plan %016" PRIx64
                   "%016" PRIx64,
                   CF_VERSION, inputs.half[0], inputs.half[1], plan.half[0], plan.half[1]);
}

void cf_line_share(cf_text *line, cf_share share)
{
    if (share.of) cf_text_printf(line, SHARE "%" PRIu32 "/%" PRIu32, share.rank, share.of);
    cf_line_end(line);
}

static void add_stretches(cf_text *line, const cf_stretches *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const cf_stretch *s = &list->items[i];
        cf_text_printf(line, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %08x", s->number, s->at, s->size,
                       s->crc);
    }
}

void cf_line_window(cf_text *line, const cf_window *w, uint32_t crc, const cf_stretches *checked,
                    const cf_stretches *parts)
{
    cf_text_printf(line, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %08x", w->file, w->begin, w->end,
                   crc);
    add_stretches(line, checked);
    if (parts) cf_text_str(line, " /");
    if (parts) add_stretches(line, parts);
    cf_line_end(line);
}

void cf_line_items(cf_text *line, const cf_stretches *items)
{
    cf_text_str(line, "=");
    for (size_t i = 0; i < items->count; i++)
        cf_text_printf(line, " %" PRIu64 " %08x", items->items[i].number, items->items[i].crc);
    cf_line_end(line);
}

/* The next line, NUL in place of its CRC; false for one that is torn or not what was written. */
static bool next_line(char **at, char *end, char **line)
{
    char *newline = memchr(*at, '\n', (size_t)(end - *at));
    if (!newline || newline - *at < 10) return false;
    char *last = newline - 9, crc[16];
    snprintf(crc, sizeof crc, " %08x\n", libdeflate_crc32(0, *at, (size_t)(last - *at)));
    if (memcmp(last, crc, 10) != 0 || memchr(*at, 0, (size_t)(last - *at))) return false;
    *last = '\0';
    *line = *at;
    *at = newline + 1;
    return true;
}

static bool number(char **at, int radix, uint64_t *value)
{
    char *p = *at;
    if (*p == ' ') p++;
    if (!(*p >= '0' && *p <= '9') && !(radix == 16 && *p >= 'a' && *p <= 'f')) return false;
    errno = 0;
    *value = strtoull(p, at, radix);
    return errno == 0 && (**at == ' ' || **at == '\0');
}

static bool crc_word(char **at, uint32_t *crc)
{
    uint64_t value;
    if (!number(at, 16, &value) || value > UINT32_MAX) return false;
    *crc = (uint32_t)value;
    return true;
}

static bool inside(uint64_t at, uint64_t size, uint64_t all)
{
    return at <= all && size <= all - at;
}

/* Groups of a number, a place, a size and a CRC, each within the record or chunk of that number; up
 * to the end or a slash. */
static bool take_stretches(cf_journal *j, const cf_block *b, bool records, char **line,
                           const cf_stretch **list, size_t *count)
{
    cf_stretch *own = NULL;
    size_t cap = 0;
    while (**line && strncmp(*line, " /", 2) != 0) {
        cf_stretch *s = CF_PUSH(&j->arena, own, *count, cap);
        if (!s || !number(line, 10, &s->number) || !number(line, 10, &s->at) ||
            !number(line, 10, &s->size) || !crc_word(line, &s->crc) ||
            s->number >= (records ? b->n_records : b->n_chunks))
            return false;
        const cf_b_chunk *c = &b->chunks[s->number];
        const uint64_t all = records ? b->records[s->number].size : c->end - c->begin;
        if (!inside(s->at, s->size, all)) return false;
    }
    *list = own;
    return true;
}

static bool take_items(cf_journal *j, const cf_block *b, char *line)
{
    while (*line) {
        uint64_t record;
        uint32_t crc;
        cf_err none;
        if (!number(&line, 10, &record) || !crc_word(&line, &crc) || record >= b->n_records ||
            !cf_stretch_add(&j->items, record, 0, b->records[record].size, crc, &none))
            return false;
    }
    return true;
}

/* False for a line that cannot be of this plan. Memory: the arena's sticky failure. */
static bool take_line(cf_journal *j, const cf_block *b, bool is_own, char *line)
{
    if (*line == '=') return take_items(j, b, line + 1);
    cf_window *key = CF_NEW(&j->arena, cf_window);
    cf_journaled *entry = key ? CF_PUSH(&j->arena, j->entries, j->count, j->cap) : NULL;
    if (!entry) return false;
    *entry = (cf_journaled){.own = is_own};
    if (!number(&line, 10, &key->file) || !number(&line, 10, &key->begin) ||
        !number(&line, 10, &key->end) || !crc_word(&line, &entry->crc) || key->file >= b->n_files ||
        key->begin >= key->end || key->end > b->files[key->file].size ||
        !take_stretches(j, b, true, &line, &entry->checked, &entry->n_checked))
        return false;
    entry->file = key->file;
    if (*line) line += 2; /* the slash */
    if (!take_stretches(j, b, false, &line, &entry->parts, &entry->n_parts) || *line) return false;
    bool fresh; /* a window that was written again: the later line counts */
    uint64_t *at = cf_map_put(&j->windows, key, CF_WINDOW_KEY, &fresh);
    if (!at) return false;
    *at = j->count - 1;
    if (fresh && (is_own || !j->share.of)) j->finished++;
    return true;
}

/* ---- all of one --------------------------------------------------------------------------------
 */

static char *read_all(int fd, size_t *size)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MOST_BYTES) return NULL;
    char *text = malloc((size_t)st.st_size + 1);
    *size = 0;
    while (text && *size < (size_t)st.st_size) {
        const ssize_t n = pread(fd, text + *size, (size_t)st.st_size - *size, (off_t)*size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        *size += (size_t)n;
    }
    return text;
}

/* Of whose plan and division is the first line? */
static cf_journal_state compare(const cf_journal *j, char *line, cf_share *share)
{
    const char *own = j->head.at, *inputs = strstr(own, " inputs "), *plan = strstr(own, " plan ");
    char *divided = strstr(line, SHARE);
    *share = (cf_share){0, 0};
    if (divided) {
        uint64_t rank, of;
        char *end;
        rank = strtoull(divided + sizeof SHARE - 1, &end, 10);
        of = *end == '/' ? strtoull(end + 1, &end, 10) : 0;
        if (*end || rank >= of || of > CF_MOST_SHARES) return CF_JOURNAL_VERSION;
        *share = (cf_share){(uint32_t)rank, (uint32_t)of};
        *divided = '\0';
    }
    if (strlen(line) != j->head.size || memcmp(line, own, (size_t)(inputs - own)) != 0)
        return CF_JOURNAL_VERSION;
    if (memcmp(line, own, (size_t)(plan - own)) != 0) return CF_JOURNAL_INPUTS;
    return strcmp(line, own) != 0 ? CF_JOURNAL_PLAN : CF_JOURNAL_RESUMED;
}

cf_journal_state cf_journal_read(cf_journal *j, const cf_block *b, int fd, bool is_own,
                                 cf_share *share, uint64_t *good)
{
    size_t size;
    char *text = read_all(fd, &size), *line, *at = text;
    *share = (cf_share){0, 0};
    *good = 0;
    if (!text) return CF_JOURNAL_VERSION;
    /* one that ends in its first line is just begun */
    cf_journal_state state = memchr(text, '\n', size) ? CF_JOURNAL_VERSION : CF_JOURNAL_NEW;
    if (next_line(&at, text + size, &line)) state = compare(j, line, share);
    if (state == CF_JOURNAL_RESUMED) {
        do *good = (uint64_t)(at - text);
        while (next_line(&at, text + size, &line) && take_line(j, b, is_own, line));
    }
    free(text);
    return j->arena.failed ? CF_JOURNAL_VERSION : state;
}
