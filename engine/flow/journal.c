#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"

enum { MOST_BYTES = 1 << 30 }; /* of a journal: petabytes of output */

typedef struct place {
    uint64_t file, begin, end;
} place;

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

/* The CRC of the line so far, and its end. */
static void end_line(cf_text *line)
{
    if (!line->at) return;
    cf_text_printf(line, " %08x\n", libdeflate_crc32(0, line->at, line->size));
}

static void add_head(cf_text *line, const cf_block *b)
{
    const sum inputs = sum_of_inputs(b), plan = sum_of_plan(b);
    cf_text_printf(line,
                   "ckptflow-journal 1 %s inputs %016" PRIx64 "%016" PRIx64 " plan %016" PRIx64
                   "%016" PRIx64,
                   CF_VERSION, inputs.half[0], inputs.half[1], plan.half[0], plan.half[1]);
    end_line(line);
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

/* False for a line that cannot be of this plan. Memory: the arena's sticky failure. */
static bool take_line(cf_journal *j, const cf_block *b, char *line)
{
    place *key = CF_NEW(&j->arena, place);
    cf_journaled *entry = key ? CF_PUSH(&j->arena, j->entries, j->count, j->cap) : NULL;
    if (!entry) return false;
    *entry = (cf_journaled){0};
    if (!number(&line, 10, &key->file) || !number(&line, 10, &key->begin) ||
        !number(&line, 10, &key->end) || !crc_word(&line, &entry->crc) || key->file >= b->n_files ||
        key->begin >= key->end || key->end > b->files[key->file].size)
        return false;
    cf_stretch *checked = NULL;
    size_t cap = 0;
    while (*line) {
        cf_stretch *s = CF_PUSH(&j->arena, checked, entry->n_checked, cap);
        if (!s || !number(&line, 10, &s->number) || !number(&line, 10, &s->at) ||
            !number(&line, 10, &s->size) || !crc_word(&line, &s->crc) ||
            s->number >= b->n_records || !inside(s->at, s->size, b->records[s->number].size))
            return false;
    }
    entry->checked = checked;
    bool fresh; /* a window that was written again: the later line counts */
    uint64_t *number = cf_map_put(&j->windows, key, sizeof *key, &fresh);
    if (!number) return false;
    *number = j->count - 1;
    if (fresh) j->finished++;
    return true;
}

/* ---- a journal that is there -------------------------------------------------------------------
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

static cf_journal_state compare(const char *head, const cf_block *b)
{
    cf_text own = {0};
    add_head(&own, b);
    cf_journal_state state = CF_JOURNAL_VERSION;
    if (own.at) {
        const char *inputs = strstr(own.at, " inputs "), *plan = strstr(own.at, " plan ");
        const size_t n = strlen(head);
        if (n == own.size - 10 && memcmp(head, own.at, (size_t)(inputs - own.at)) == 0)
            state = memcmp(head, own.at, (size_t)(plan - own.at)) != 0 ? CF_JOURNAL_INPUTS
                    : memcmp(head, own.at, n) != 0                     ? CF_JOURNAL_PLAN
                                                                       : CF_JOURNAL_RESUMED;
    }
    cf_text_free(&own);
    return state;
}

/* What is behind the last good line is cut off. */
static cf_journal_state read_journal(cf_journal *j, const cf_block *b)
{
    size_t size;
    char *text = read_all(j->fd, &size), *line, *at = text, *good = text;
    if (!text) return CF_JOURNAL_VERSION;
    cf_journal_state state = CF_JOURNAL_VERSION;
    if (size == 0)
        state = CF_JOURNAL_NEW;
    else if (next_line(&at, text + size, &line))
        state = compare(line, b);
    if (state == CF_JOURNAL_RESUMED) {
        do good = at;
        while (next_line(&at, text + size, &line) && take_line(j, b, line));
        if (j->arena.failed || ftruncate(j->fd, good - text) != 0) state = CF_JOURNAL_VERSION;
    }
    free(text);
    return state;
}

static int open_journal(const cf_sink *sink, int flags)
{
    return openat(sink->dir, CF_JOURNAL_NAME,
                  O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
}

static bool append(cf_journal *j, const cf_text *line, cf_err *err)
{
    if (!cf_text_ok(line, err)) return false;
    pthread_mutex_lock(&j->lock);
    ssize_t n;
    size_t at = 0;
    do {
        n = write(j->fd, line->at + at, line->size - at);
        if (n > 0) at += (size_t)n;
    } while ((n < 0 && errno == EINTR) || (n > 0 && at < line->size));
    const int sys = errno;
    pthread_mutex_unlock(&j->lock);
    return at == line->size || cf_fail_sys(err, sys, "cannot write the journal");
}

/* The paths of the block's files, for cf_sink_keep. */
static bool is_planned(const void *ctx, const char *path)
{
    uint64_t file;
    return strcmp(path, CF_JOURNAL_NAME) == 0 || cf_map_get(ctx, path, strlen(path), &file);
}

static bool keep(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    cf_map paths;
    cf_map_init(&paths, &j->arena);
    for (uint64_t i = 0; i < b->n_files; i++) {
        bool fresh;
        cf_map_put(&paths, cf_block_text(b, b->files[i].path), b->files[i].path.size, &fresh);
    }
    return cf_arena_ok(&j->arena, err) && cf_sink_keep(sink, is_planned, &paths, &j->held, err);
}

static bool begin(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    if (j->fd >= 0) close(j->fd);
    cf_arena_free(&j->arena); /* what was read of a journal that is not to be used */
    cf_arena_init(&j->arena, 0);
    cf_map_init(&j->windows, &j->arena);
    j->entries = NULL;
    j->count = j->cap = 0;
    j->finished = 0;
    if (!cf_sink_empty(sink, err)) return false;
    j->fd = open_journal(sink, O_CREAT | O_EXCL);
    if (j->fd < 0) return cf_fail_sys(err, errno, "cannot make the journal");
    cf_text head = {0};
    add_head(&head, b);
    const bool ok = append(j, &head, err);
    cf_text_free(&head);
    return ok;
}

bool cf_journal_open(cf_journal *j, cf_sink *sink, const cf_block *b, cf_err *err)
{
    *j = (cf_journal){.fd = open_journal(sink, 0)};
    pthread_mutex_init(&j->lock, NULL);
    cf_arena_init(&j->arena, 0);
    cf_map_init(&j->windows, &j->arena);
    if (j->fd >= 0) j->state = read_journal(j, b);
    const bool ok = j->state == CF_JOURNAL_RESUMED ? keep(j, sink, b, err) : begin(j, sink, b, err);
    if (!ok) cf_journal_close(j);
    return ok;
}

void cf_journal_close(cf_journal *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
    pthread_mutex_destroy(&j->lock);
    cf_arena_free(&j->arena);
}

/* ---- windows -----------------------------------------------------------------------------------
 */

const cf_journaled *cf_journal_find(const cf_journal *j, uint64_t file, uint64_t begin,
                                    uint64_t end)
{
    const place key = {file, begin, end};
    uint64_t number;
    return cf_map_get(&j->windows, &key, sizeof key, &number) ? &j->entries[number] : NULL;
}

bool cf_journal_add(cf_journal *j, uint64_t file, uint64_t begin, uint64_t end, uint32_t crc,
                    const cf_stretches *checked, cf_err *err)
{
    cf_text line = {0};
    cf_text_printf(&line, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %08x", file, begin, end, crc);
    for (size_t i = 0; i < checked->count; i++) {
        const cf_stretch *s = &checked->items[i];
        cf_text_printf(&line, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %08x", s->number, s->at,
                       s->size, s->crc);
    }
    end_line(&line);
    const bool ok = append(j, &line, err);
    cf_text_free(&line);
    if (ok) j->finished++;
    return ok;
}

const char *cf_journal_afresh(const cf_journal *j)
{
    switch (j->state) {
    case CF_JOURNAL_INPUTS: return "the checkpoint is not the one of the run that was stopped";
    case CF_JOURNAL_PLAN: return "its options or scripts are not those of the run that was stopped";
    case CF_JOURNAL_VERSION: return "what the run that was stopped left cannot be used";
    default: return NULL;
    }
}
