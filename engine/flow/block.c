#include "block.h"

#include <string.h>

#include "cast.h"
#include "map.h"
#include "num.h"
#include "path.h"
#include "sink.h"
#include "view.h"

static const size_t SIZE[CF_B_SECTIONS] = {
    [CF_B_SOURCES] = sizeof(cf_b_source),
    [CF_B_RECORDS] = sizeof(cf_b_record),
    [CF_B_FILES] = sizeof(cf_b_file),
    [CF_B_CHUNKS] = sizeof(cf_b_chunk),
    [CF_B_TENSORS] = sizeof(cf_b_tensor),
    [CF_B_VALUES] = sizeof(cf_b_value),
    [CF_B_TERMS] = sizeof(cf_b_term),
    [CF_B_SEALS] = sizeof(cf_b_seal),
    [CF_B_MOVES] = sizeof(cf_b_move),
    [CF_B_COMPARES] = sizeof(cf_b_compare),
    [CF_B_CHECKS] = sizeof(uint64_t),
    [CF_B_UNITS] = sizeof(cf_b_unit),
    [CF_B_SUBJECTS] = sizeof(cf_b_subject),
    [CF_B_FAULTS] = sizeof(cf_b_fault),
    [CF_B_PAIRS] = sizeof(cf_b_pair),
    [CF_B_NUMBERS] = sizeof(int64_t),
    [CF_B_BYTES] = 1,
};

static const char MAGIC[8] = "CKPTPLAN";

void cf_blocker_free(cf_blocker *b)
{
    for (int i = 0; i < CF_B_SECTIONS; i++) cf_text_free(&b->sections[i]);
}

uint64_t cf_blocker_add(cf_blocker *b, cf_section section, const void *item, size_t size)
{
    const uint64_t number = b->sections[section].size / SIZE[section];
    cf_text_add(&b->sections[section], item, size);
    return number;
}

cf_ref cf_blocker_text(cf_blocker *b, const char *text, size_t size)
{
    const cf_ref ref = {b->sections[CF_B_BYTES].size, size};
    cf_text_add(&b->sections[CF_B_BYTES], text, size);
    cf_text_add(&b->sections[CF_B_BYTES], "", 1);
    return ref;
}

bool cf_blocker_finish(cf_blocker *b, cf_text *out, cf_err *err)
{
    static const char zeros[16];
    cf_b_head head = {.version = CF_BLOCK_VERSION};
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(head.text, b->text, sizeof head.text);
    uint64_t at = (sizeof head + 15) / 16 * 16;
    for (int i = 0; i < CF_B_SECTIONS; i++) {
        if (!cf_text_ok(&b->sections[i], err)) return false;
        head.count[i] = b->sections[i].size / SIZE[i];
        head.at[i] = at;
        at = (at + b->sections[i].size + 15) / 16 * 16;
    }
    head.size = at;
    cf_text_add(out, &head, sizeof head);
    for (int i = 0; i < CF_B_SECTIONS; i++) {
        cf_text_add(out, zeros, head.at[i] - out->size);
        cf_text_add(out, b->sections[i].at, b->sections[i].size);
        cf_text_free(&b->sections[i]);
    }
    cf_text_add(out, zeros, at - out->size);
    return cf_text_ok(out, err);
}

/* ---- believing nothing -------------------------------------------------------------------------
 */

static bool bad(cf_err *err, const char *what)
{
    return cf_fail(err, CF_E_INTERNAL, "the plan is not sound: %s", what);
}

static bool ref_ok(const cf_block *b, cf_ref ref)
{
    return ref.at <= b->n_bytes && ref.size < b->n_bytes - ref.at + 1;
}

static bool text_ok(const cf_block *b, cf_ref ref)
{
    return ref.at < b->n_bytes && ref.size < b->n_bytes - ref.at &&
           b->bytes[ref.at + ref.size] == '\0' && !memchr(b->bytes + ref.at, 0, ref.size);
}

static bool range_ok(uint64_t first, uint64_t count, uint64_t all)
{
    return first <= all && count <= all - first;
}

static bool path_ok(const cf_block *b, cf_ref ref)
{
    return cf_path_kind_of(cf_block_text(b, ref), ref.size) == CF_PATH_PLAIN;
}

static bool check_sources(const cf_block *b, int n_roots, cf_err *err)
{
    for (uint64_t i = 0; i < b->n_sources; i++) {
        const cf_b_source *s = &b->sources[i];
        if (!text_ok(b, s->path) || s->root >= (uint32_t)n_roots || s->size > INT64_MAX)
            return bad(err, "a source");
        if (!path_ok(b, s->path))
            return cf_fail(err, CF_E_PATH, "a source path that leads out of the checkpoint");
    }
    for (uint64_t i = 0; i < b->n_records; i++) {
        const cf_b_record *r = &b->records[i];
        if (!text_ok(b, r->name) || r->size > INT64_MAX) return bad(err, "a record");
        if (r->place == CF_IN_MEMORY) {
            if (!ref_ok(b, r->bytes) || r->bytes.size != r->size)
                return bad(err, "a record's bytes");
            continue;
        }
        if (r->place != CF_IN_FILE && r->place != CF_IN_MEMBER && r->place != CF_IN_ITEM)
            return bad(err, "a record's place");
        int64_t numel;
        if (r->place == CF_IN_ITEM &&
            (r->dtype == CF_NO_DTYPE || r->dtype >= CF_DTYPES || r->ndim > CF_MOST_DIMS ||
             !range_ok(r->dims, r->ndim, b->n_numbers) ||
             !cf_numel(b->numbers + r->dims, r->ndim, &numel) ||
             (uint64_t)numel != r->size / (uint64_t)cf_dtype_size((cf_dtype)r->dtype)))
            return bad(err, "an item's claim");
        const uint64_t held = r->place == CF_IN_FILE ? r->size : r->packed;
        if (r->source >= b->n_sources || !range_ok(r->offset, held, b->sources[r->source].size))
            return bad(err, "a record that leaves its file");
    }
    for (uint64_t i = 0; i < b->n_checks; i++)
        if (b->checks[i] >= b->n_records) return bad(err, "a check");
    return true;
}

/* Bytes that the move writes into a chunk of `room` bytes, or -1. */
static int64_t move_bytes(const cf_block *b, const cf_b_move *m, uint64_t room)
{
    if (m->record >= b->n_records || m->ndim > CF_MOST_DIMS || m->dtype == CF_NO_DTYPE ||
        m->dtype >= CF_DTYPES || m->cast >= CF_DTYPES ||
        !cf_cast_possible((cf_dtype)m->dtype, (cf_dtype)m->cast) || !m->run || m->run > INT64_MAX ||
        m->from > INT64_MAX || m->to > INT64_MAX || !range_ok(m->dims, 3u * m->ndim, b->n_numbers))
        return -1;
    const int64_t *dims = b->numbers + m->dims;
    int64_t bytes = (int64_t)m->run, inner = bytes, from = (int64_t)m->from, to = (int64_t)m->to,
            reach;
    const int64_t size = cf_dtype_size((cf_dtype)m->dtype), cast = cf_dtype_size((cf_dtype)m->cast);
    if (bytes % size || to % size || room > INT64_MAX / 16) return -1;
    room = room / (uint64_t)cast * (uint64_t)size;
    for (int d = m->ndim - 1; d >= 0; d--) {
        const int64_t count = dims[3 * d], source = dims[3 * d + 1], target = dims[3 * d + 2];
        if (count < 1 || source < 0 || target < inner) return -1;
        if (!cf_mul(count, bytes, &bytes) || !cf_mul(count, target, &inner)) return -1;
        if (!cf_mul(count - 1, source, &reach) || !cf_add(from, reach, &from)) return -1;
        if (!cf_mul(count - 1, target, &reach) || !cf_add(to, reach, &to)) return -1;
    }
    if (!cf_add(from, (int64_t)m->run, &from) || !cf_add(to, (int64_t)m->run, &to)) return -1;
    return (uint64_t)from <= b->records[m->record].size && (uint64_t)to <= room
               ? bytes / size * cast
               : -1;
}

/* Do the moves, in order of their places, fill `size` bytes of elements of a dtype? */
static bool check_moves(const cf_block *b, uint64_t first, uint64_t count, cf_dtype dtype,
                        uint64_t size, cf_err *err)
{
    if (!range_ok(first, count, b->n_moves)) return bad(err, "a chunk's moves");
    uint64_t filled = 0;
    for (uint64_t k = first; k < first + count; k++) {
        const int64_t n = b->moves[k].cast == dtype ? move_bytes(b, &b->moves[k], size) : -1;
        if (n < 0 || (k > first && cf_move_place(&b->moves[k]) < cf_move_place(&b->moves[k - 1])))
            return bad(err, "a move");
        filled += (uint64_t)n;
    }
    return filled == size ? true : bad(err, "a chunk that its moves do not fill");
}

static bool check_chunk(const cf_block *b, const cf_b_chunk *c, cf_err *err)
{
    const uint64_t size = c->end - c->begin;
    if (c->tensor != CF_B_NONE && c->tensor >= b->n_tensors) return bad(err, "a chunk's tensor");
    if (!c->moves)
        return ref_ok(b, c->bytes) && c->bytes.size == size ? true : bad(err, "a chunk's bytes");
    if (c->late) return bad(err, "a chunk of moves that has seals");
    if (c->dtype == CF_NO_DTYPE || c->dtype >= CF_DTYPES) return bad(err, "a chunk's dtype");
    const cf_dtype dtype = (cf_dtype)c->dtype;
    if (!c->sum) return check_moves(b, c->move, c->moves, dtype, size, err);
    const uint64_t each = (uint64_t)cf_dtype_size(dtype);
    if (!range_ok(c->move, c->moves, b->n_terms) || size % each || size > INT64_MAX / 16 ||
        !cf_cast_possible(CF_F64, dtype))
        return bad(err, "a sum");
    for (uint64_t i = c->move; i < c->move + c->moves; i++) {
        const cf_b_term *t = &b->terms[i];
        if (t->rounded >= CF_DTYPES ||
            (t->rounded != CF_NO_DTYPE && !cf_cast_possible(CF_F64, (cf_dtype)t->rounded)))
            return bad(err, "a term's dtype");
        CF_TRY(check_moves(b, t->move, t->moves, CF_F64, size / each * 8, err));
    }
    return true;
}

/* The seals of a chunk, from number *next on: within it, in order, over chunks of the file that
 * come before it. */
static bool check_seals(const cf_block *b, uint64_t chunk, uint64_t first, uint64_t *next,
                        cf_err *err)
{
    const cf_b_chunk *c = &b->chunks[chunk];
    const uint64_t from = *next, size = c->end - c->begin;
    for (uint64_t at = 0; *next < b->n_seals && b->seals[*next].chunk == chunk; ++*next) {
        const cf_b_seal *s = &b->seals[*next];
        if (s->at < at || !range_ok(s->at, cf_seal_size(s), size) || s->first < first ||
            !range_ok(s->first, s->count, chunk) || (s->digits && s->digits < 10))
            return bad(err, "a seal");
        at = s->at + cf_seal_size(s);
    }
    return (*next > from) == c->late ? true : bad(err, "a chunk that is late, or should be");
}

static bool check_chunks(const cf_block *b, const cf_b_file *f, uint64_t *seal, cf_err *err)
{
    uint64_t at = 0;
    for (uint64_t i = f->chunk; i < f->chunk + f->chunks; i++) {
        const cf_b_chunk *c = &b->chunks[i];
        if (c->begin != at || c->end < c->begin || c->end > f->size)
            return bad(err, "a chunk's place");
        if (!check_chunk(b, c, err) || !check_seals(b, i, f->chunk, seal, err)) return false;
        at = c->end;
    }
    return at == f->size ? true : bad(err, "a file that its chunks do not fill");
}

static bool check_files(const cf_block *b, cf_err *err)
{
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_map paths;
    cf_map_init(&paths, &scratch);
    bool ok = true;
    uint64_t chunk = 0; /* every chunk is some file's, so that every one is checked */
    uint64_t seal = 0;
    for (uint64_t i = 0; ok && i < b->n_files; i++) {
        const cf_b_file *f = &b->files[i];
        if (!text_ok(b, f->path) || f->size > INT64_MAX || f->chunk != chunk ||
            !range_ok(f->chunk, f->chunks, b->n_chunks)) {
            ok = bad(err, "a file");
            break;
        }
        chunk += f->chunks;
        const char *path = cf_block_text(b, f->path);
        bool fresh = false;
        if (!path_ok(b, f->path))
            ok = cf_fail(err, CF_E_PATH, "an output path that leads out of OUT");
        else if (cf_sink_reserved(path))
            ok = bad(err, "a file with a name of our own");
        else if (!cf_map_put(&paths, path, f->path.size, &fresh))
            ok = cf_arena_ok(&scratch, err);
        else if (!fresh)
            ok = bad(err, "a file that is written twice");
        else
            ok = check_chunks(b, f, &seal, err);
    }
    if (ok && chunk != b->n_chunks) ok = bad(err, "a chunk of no file");
    if (ok && seal != b->n_seals) ok = bad(err, "a seal of no chunk");
    cf_arena_free(&scratch);
    return ok;
}

static bool check_rest(const cf_block *b, cf_err *err)
{
    for (uint64_t i = 0; i < b->n_tensors; i++) {
        const cf_b_tensor *t = &b->tensors[i];
        if (!text_ok(b, t->key) || !text_ok(b, t->name) || !text_ok(b, t->role) ||
            !text_ok(b, t->role_name) || !text_ok(b, t->path) || t->chunk >= b->n_chunks ||
            (i && t->chunk < t[-1].chunk) || b->chunks[t->chunk].tensor > i ||
            t->dtype >= CF_DTYPES || t->ndim > CF_MOST_DIMS + 1 ||
            !range_ok(t->dims, t->ndim, b->n_numbers))
            return bad(err, "a tensor");
    }
    for (uint64_t i = 0; i < b->n_values; i++) {
        const cf_b_value *v = &b->values[i];
        if (!text_ok(b, v->key) || !text_ok(b, v->name) || !text_ok(b, v->role) ||
            !text_ok(b, v->role_name) || !text_ok(b, v->path) || !text_ok(b, v->lacks) ||
            v->file >= b->n_files || (i && v->file < v[-1].file))
            return bad(err, "a value");
    }
    for (uint64_t i = 0; i < b->n_compares; i++) {
        const cf_b_compare *c = &b->compares[i];
        if (!text_ok(b, c->key) || c->left >= b->n_moves || c->right >= b->n_moves ||
            move_bytes(b, &b->moves[c->left], c->size) != (int64_t)c->size ||
            move_bytes(b, &b->moves[c->right], c->size) != (int64_t)c->size)
            return bad(err, "a comparison");
    }
    for (int i = 0; i < CF_B_TEXTS; i++)
        if (!text_ok(b, b->head->text[i])) return bad(err, "a text");
    return true;
}

static bool check_unit(const cf_block *b, const cf_b_unit *u, cf_err *err)
{
    if (u->kind > CF_UNIT_VALUE || u->source >= b->n_sources ||
        !range_ok(u->offset, u->size, b->sources[u->source].size) ||
        !range_ok(u->record, u->records, b->n_records))
        return bad(err, "a unit");
    if (u->kind == CF_UNIT_VALUE && u->records) return bad(err, "a unit of a value");
    uint64_t at = u->offset;
    for (uint64_t i = u->record; i < u->record + u->records; i++) {
        const cf_b_record *r = &b->records[i];
        const bool item = r->place == CF_IN_ITEM;
        if (r->place == CF_IN_MEMORY || r->source != u->source ||
            item != (u->kind == CF_UNIT_TENSOR) || (item && u->records != 1))
            return bad(err, "a record of a unit");
        if (item && (r->offset != u->offset || r->packed != u->size))
            return bad(err, "the item of a unit");
        if (u->has_crc && (r->place != CF_IN_FILE || r->offset != at))
            return bad(err, "records that do not tile their unit");
        at = r->offset + r->size;
    }
    return u->has_crc && at != u->offset + u->size ? bad(err, "records that do not fill their unit")
                                                   : true;
}

static bool check_pair(const cf_block *b, const cf_b_pair *p, cf_err *err)
{
    uint64_t elements[2] = {0};
    if (p->kind > CF_PAIR_COPY || !text_ok(b, p->what)) return bad(err, "a pair");
    for (int s = 0; s < 2; s++) {
        if (!text_ok(b, p->key[s]) || p->dtype[s] >= CF_DTYPES || p->ndim[s] > CF_MOST_DIMS ||
            !range_ok(p->dims[s], p->ndim[s], b->n_numbers))
            return bad(err, "a side of a pair");
        if (p->chunk[s] == CF_B_NONE) continue;
        if (p->chunk[s] >= b->n_chunks) return bad(err, "the chunk of a pair");
        const cf_b_chunk *c = &b->chunks[p->chunk[s]];
        if (c->dtype == CF_NO_DTYPE || c->dtype != p->dtype[s] || c->sum)
            return bad(err, "the dtype of a pair");
        const uint64_t size = (uint64_t)cf_dtype_size((cf_dtype)c->dtype);
        elements[s] = (c->end - c->begin) / size;
        if ((c->end - c->begin) % size || (elements[s] && !c->moves))
            return bad(err, "the size of a pair");
    }
    const bool two = p->chunk[0] != CF_B_NONE && p->chunk[1] != CF_B_NONE;
    if (two != (p->kind == CF_PAIR_TENSORS) || (two && elements[0] != elements[1]))
        return bad(err, "the sides of a pair");
    return true;
}

static bool check_verification(const cf_block *b, cf_err *err)
{
    for (uint64_t i = 0; i < b->n_units; i++)
        if (!check_unit(b, &b->units[i], err)) return false;
    for (uint64_t i = 0; i < b->n_subjects; i++) {
        const cf_b_subject *s = &b->subjects[i];
        if (!text_ok(b, s->key) || !range_ok(s->record, s->records, b->n_numbers))
            return bad(err, "a subject");
        for (uint64_t k = s->record; k < s->record + s->records; k++)
            if (b->numbers[k] != CF_B_NONE &&
                (b->numbers[k] < 0 || (uint64_t)b->numbers[k] >= b->n_records))
                return bad(err, "a record of a subject");
    }
    for (uint64_t i = 0; i < b->n_pairs; i++)
        if (!check_pair(b, &b->pairs[i], err)) return false;
    for (uint64_t i = 0; i < b->n_faults; i++) {
        const cf_b_fault *f = &b->faults[i];
        if (!text_ok(b, f->file) || !text_ok(b, f->member) || !text_ok(b, f->message) ||
            !text_ok(b, f->hint) || !f->code || f->code > CF_E_INTERRUPTED)
            return bad(err, "a fault");
    }
    return true;
}

bool cf_block_open(cf_block *block, const void *bytes, size_t size, int n_roots, cf_err *err)
{
    const cf_b_head *head = bytes;
    *block = (cf_block){.head = head};
    if (size < sizeof *head || memcmp(head->magic, MAGIC, sizeof MAGIC) != 0)
        return bad(err, "no plan at all");
    if (head->version != CF_BLOCK_VERSION)
        return cf_fail(err, CF_E_INTERNAL, "a plan of version %u, not %d", head->version,
                       CF_BLOCK_VERSION);
    if (head->size != size) return bad(err, "its size");
    for (int i = 0; i < CF_B_SECTIONS; i++)
        if (head->at[i] % 16 || head->at[i] < sizeof *head || head->at[i] > size ||
            head->count[i] > (size - head->at[i]) / SIZE[i])
            return bad(err, "a section");
    const char *p = bytes;
#define SECTION(field, section)                                                                    \
    block->field = (const void *)(p + head->at[section]);                                          \
    block->n_##field = head->count[section]
    SECTION(sources, CF_B_SOURCES);
    SECTION(records, CF_B_RECORDS);
    SECTION(files, CF_B_FILES);
    SECTION(chunks, CF_B_CHUNKS);
    SECTION(tensors, CF_B_TENSORS);
    SECTION(values, CF_B_VALUES);
    SECTION(terms, CF_B_TERMS);
    SECTION(seals, CF_B_SEALS);
    SECTION(moves, CF_B_MOVES);
    SECTION(compares, CF_B_COMPARES);
    SECTION(checks, CF_B_CHECKS);
    SECTION(units, CF_B_UNITS);
    SECTION(subjects, CF_B_SUBJECTS);
    SECTION(faults, CF_B_FAULTS);
    SECTION(pairs, CF_B_PAIRS);
    SECTION(numbers, CF_B_NUMBERS);
    SECTION(bytes, CF_B_BYTES);
#undef SECTION
    return check_sources(block, n_roots, err) && check_files(block, err) &&
           check_rest(block, err) && check_verification(block, err);
}
