#include "execute.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "gather.h"
#include "journal.h"
#include "num.h"
#include "pool.h"
#include "records.h"
#include "replicas.h"
#include "seal.h"
#include "view.h"
#include "windows.h"

typedef struct run {
    const cf_execution *x;
    const cf_block *block;
    cf_arena arena;
    cf_records records;
    int *outputs;
    cf_windows windows;
    cf_gather *gathers; /* by thread */
    uint8_t **buffers;
    cf_stretches *checked;  /* by thread: of records, of windows that are finished */
    cf_stretches *written;  /* by thread: of chunks */
    cf_stretches *again;    /* by thread: of chunks, as they were read back */
    uint32_t *crc;          /* by number of the chunk, when all are written */
    _Atomic uint64_t found; /* windows that a run before had finished */
    bool reading_back;
} run;

/* ---- before the first byte ---------------------------------------------------------------------
 */

static bool compare_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    run *r = ctx;
    return !cf_stopped(r->x, err) &&
           cf_replica_compare(r->block, &r->block->compares[number], &r->gathers[thread],
                              r->buffers[thread], err);
}

static bool crc_fault(const run *r, uint64_t number, uint32_t crc, cf_err *err);

static bool check_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    run *r = ctx;
    const uint64_t record = r->block->checks[number];
    const cf_b_record *rec = &r->block->records[record];
    uint32_t crc = 0;
    const uint64_t tile = r->x->means->tile;
    for (uint64_t at = 0; at < rec->size; at += tile) {
        const size_t n = (size_t)(rec->size - at < tile ? rec->size - at : tile);
        if (cf_stopped(r->x, err)) return false;
        if (!cf_gather_read(&r->gathers[thread], record, at, r->buffers[thread], n, err))
            return cf_err_in_file(err, cf_record_path(r->block, rec));
        crc = libdeflate_crc32(crc, r->buffers[thread], n);
    }
    if (crc != rec->crc) return crc_fault(r, record, crc, err);
    return cf_stretch_add(&r->checked[thread], record, 0, rec->size, crc, err);
}

/* ---- windows -----------------------------------------------------------------------------------
 */

/* What a thread knows of the window under way. */
typedef struct filling {
    const cf_window *w;
    int thread;
    bool again;         /* its bytes are read from the output, not made */
    uint64_t chunk;     /* where it is */
    uint32_t crc;       /* of the window so far */
    cf_stretches parts; /* of chunks */
} filling;

static bool read_again(run *r, const filling *f, uint64_t begin, uint64_t end, cf_err *err)
{
    const cf_b_file *file = &r->block->files[f->w->file];
    const cf_span span = cf_span_of_file(r->outputs[f->w->file], file->size);
    return cf_span_read(&span, begin, r->buffers[f->thread], end - begin, err) ||
           cf_err_in_file(err, cf_block_text(r->block, file->path));
}

/* One buffer: pieces of one or many chunks, then one write. */
static bool fill_tile(run *r, filling *f, uint64_t begin, uint64_t end, cf_err *err)
{
    const cf_block *b = r->block;
    uint8_t *buffer = r->buffers[f->thread];
    uint32_t crc = 0;
    bool whole = false; /* the tile is one piece */
    if (f->again && !read_again(r, f, begin, end, err)) return false;
    for (uint64_t at = begin; at < end;) {
        while (b->chunks[f->chunk].end <= at) ++f->chunk;
        const cf_b_chunk *c = &b->chunks[f->chunk];
        const uint64_t to = c->end < end ? c->end : end, from = at - c->begin;
        uint8_t *place = buffer + (at - begin);
        bool known = false;
        const bool unsealed = c->late && !r->reading_back; /* counts as what it was at first */
        if (!f->again && c->moves) {
            if (!cf_gather_chunk(&r->gathers[f->thread], c, from, to - c->begin, place, &crc,
                                 &known, err)) {
                if (c->tensor != CF_B_NONE)
                    cf_err_in_member(err, cf_block_text(b, b->tensors[c->tensor].key));
                return false;
            }
        } else if (!f->again || unsealed) {
            memcpy(place, b->bytes + c->bytes.at + from, to - at);
        }
        if (!unsealed) {
            if (!known) crc = libdeflate_crc32(0, place, to - at);
            if (!cf_stretch_add(&f->parts, f->chunk, from, to - at, crc, err)) return false;
            whole = at == begin && to == end;
        }
        at = to;
    }
    if (!whole) crc = libdeflate_crc32(0, buffer, end - begin);
    f->crc =
        begin == f->w->begin ? crc : (uint32_t)crc32_combine(f->crc, crc, (z_off_t)(end - begin));
    if (!f->again && !cf_write_all(r->outputs[f->w->file], buffer, end - begin, begin, err))
        return cf_err_in_file(err, cf_block_text(b, b->files[f->w->file].path));
    return true;
}

/* --fsync: the disk begins at once, or all waits at the end. */
static bool fill_window(run *r, filling *f, cf_err *err)
{
    enum { SYNC_STEP = 1 << 20 };
    const cf_window *w = f->w;
    f->chunk = w->chunk;
    uint64_t reach = w->chunk, synced = w->begin;
    for (uint64_t at = w->begin; at < w->end;) {
        if (cf_stopped(r->x, err)) return false;
        const uint64_t end = cf_tile_end(r->block, w, r->x->means, at, &reach);
        if (!fill_tile(r, f, at, end, err)) return false;
        if (r->x->progress && !(f->again && !r->reading_back))
            atomic_fetch_add(&r->x->progress->done, end - at);
        at = end;
        if (r->x->fsync && !f->again && (at - synced >= SYNC_STEP || at == w->end)) {
            sync_file_range(r->outputs[w->file], (off_t)synced, (off_t)(at - synced),
                            SYNC_FILE_RANGE_WRITE);
            synced = at;
        }
    }
    return true;
}

/* All of one list into another. */
static bool join(cf_stretches *to, const cf_stretch *from, size_t count, cf_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!cf_stretch_add(to, from[i].number, from[i].at, from[i].size, from[i].crc, err))
            return false;
    return true;
}

/* A window that a run before finished: is what it wrote still there? Then nothing is read of the
 * checkpoint, and what was known of its records is taken over. */
static bool take_over(run *r, const cf_window *w, int thread, bool *taken, cf_err *err)
{
    const cf_journaled *was =
        r->x->journal ? cf_journal_find(r->x->journal, w->file, w->begin, w->end) : NULL;
    *taken = false;
    if (!was) return true;
    filling f = {.w = w, .thread = thread, .again = true};
    bool ok = true;
    if (fill_window(r, &f, err) && f.crc == was->crc) {
        ok = join(&r->written[thread], f.parts.items, f.parts.count, err) &&
             join(&r->checked[thread], was->checked, was->n_checked, err);
        *taken = ok;
        atomic_fetch_add(&r->found, 1);
        if (r->x->progress) {
            atomic_fetch_add(&r->x->progress->done, w->end - w->begin);
            atomic_fetch_add(&r->x->progress->found, w->end - w->begin);
        }
    } else if (cf_stopped(r->x, err)) {
        ok = false;
    } /* else it is made once more, whatever was wrong with it */
    free(f.parts.items);
    return ok;
}

static bool make(run *r, const cf_window *w, int thread, cf_err *err)
{
    cf_stretches *checked = &r->gathers[thread].checked;
    checked->count = 0;
    filling f = {.w = w, .thread = thread};
    const bool ok = fill_window(r, &f, err) &&
                    (!r->x->journal || cf_journal_add(r->x->journal, w->file, w->begin, w->end,
                                                      f.crc, checked, err)) &&
                    join(&r->written[thread], f.parts.items, f.parts.count, err) &&
                    join(&r->checked[thread], checked->items, checked->count, err);
    free(f.parts.items);
    return ok;
}

static bool do_window(void *ctx, uint64_t job, int thread, cf_err *err)
{
    run *r = ctx;
    const cf_window *w = &r->windows.list[cf_window_of(&r->windows, r->x->threads, job)];
    bool taken;
    return take_over(r, w, thread, &taken, err) && (taken || make(r, w, thread, err));
}

/* ---- after the last one ------------------------------------------------------------------------
 */

/* A tensor that the record is part of, for the message. */
static const char *tensor_of(const cf_block *b, uint64_t record)
{
    for (uint64_t i = 0; i < b->n_chunks; i++) {
        const cf_b_chunk *c = &b->chunks[i];
        uint64_t first, end;
        for (uint64_t t = 0; c->tensor != CF_B_NONE && cf_chunk_moves(b, c, t, &first, &end); t++)
            for (uint64_t k = first; k < end; k++)
                if (b->moves[k].record == record)
                    return cf_block_text(b, b->tensors[c->tensor].key);
    }
    return NULL;
}

static bool crc_fault(const run *r, uint64_t number, uint32_t crc, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_b_record *rec = &b->records[number];
    const char *tensor = tensor_of(b, number);
    cf_fail_at(err, CF_E_ZIP_CRC, (int64_t)rec->offset,
               "CRC-32 of %llu bytes is %08x, the archive says %08x: %s%s is damaged",
               (unsigned long long)rec->size, crc, r->records.crc[number],
               tensor ? "tensor " : "a record", tensor ? tensor : "");
    cf_err_in_member(err, cf_block_text(b, rec->name));
    return cf_err_in_file(err, cf_record_path(b, rec));
}

/* All threads' stretches in the first one's list, sorted. */
static bool join_all(const run *r, cf_stretches *lists, cf_err *err)
{
    for (int i = 1; i < r->x->threads; i++) {
        if (!join(&lists[0], lists[i].items, lists[i].count, err)) return false;
        free(lists[i].items);
        lists[i] = (cf_stretches){0};
    }
    cf_stretches_sort(&lists[0]);
    return true;
}

static bool check_records(run *r, bool *verified, cf_err *err)
{
    const cf_block *b = r->block;
    if (!join_all(r, r->checked, err)) return false;
    const cf_stretches *all = &r->checked[0];
    for (uint64_t i = 0; i < b->n_records; i++) {
        const cf_b_record *rec = &b->records[i];
        uint32_t crc;
        if (rec->place == CF_IN_MEMBER || rec->place == CF_IN_MEMORY) {
            verified[i] =
                rec->has_crc; /* while it was decoded; with the pickle that it is part of */
            continue;
        }
        if (!r->records.has_crc[i] || !cf_stretches_whole(all, i, rec->size, &crc)) continue;
        if (crc != r->records.crc[i]) return crc_fault(r, i, crc, err);
        verified[i] = true;
    }
    return true;
}

/* The CRC of every chunk, and the bytes that wait for them. */
static bool seal(run *r, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_stretches *all = &r->written[0];
    r->crc = CF_NEWS(&r->arena, uint32_t, b->n_chunks + 1);
    if (!r->crc) return cf_arena_ok(&r->arena, err);
    if (!join_all(r, r->written, err)) return false;
    for (uint64_t i = 0; i < b->n_chunks; i++) {
        const cf_b_chunk *c = &b->chunks[i];
        if (!c->late && !cf_stretches_whole(all, i, c->end - c->begin, &r->crc[i]))
            return cf_fail(err, CF_E_INTERNAL, "chunk %llu was not written", (unsigned long long)i);
    }
    return cf_seal(b, r->crc, r->outputs, err);
}

static cf_checked checked_how(const cf_block *b, const cf_b_tensor *t, const bool *verified)
{
    const cf_b_chunk *c = &b->chunks[t->chunk];
    bool good = c->moves > 0;
    uint64_t from, to;
    for (uint64_t i = 0; cf_chunk_moves(b, c, i, &from, &to); i++)
        for (uint64_t k = from; k < to; k++) good &= verified[b->moves[k].record];
    return good ? CF_CRC_VERIFIED : t->compared ? CF_REPLICA_COMPARED : CF_UNVERIFIED;
}

static bool sum_up(run *r, cf_outcome *o, cf_err *err)
{
    const cf_block *b = r->block;
    bool *verified = CF_NEWS(&r->arena, bool, b->n_records + 1);
    o->tensor_crc = CF_NEWS(&o->arena, uint32_t, b->n_tensors + 1);
    o->tensor_check = CF_NEWS(&o->arena, uint8_t, b->n_tensors + 1);
    o->file_crc = CF_NEWS(&o->arena, uint32_t, b->n_files + 1);
    if (!cf_arena_ok(&o->arena, err) || !cf_arena_ok(&r->arena, err)) return false;
    if (!check_records(r, verified, err)) return false;
    for (uint64_t f = 0; f < b->n_files; f++) {
        for (uint64_t i = b->files[f].chunk; i < b->files[f].chunk + b->files[f].chunks; i++) {
            const uint64_t size = b->chunks[i].end - b->chunks[i].begin;
            if (size)
                o->file_crc[f] = (uint32_t)crc32_combine(o->file_crc[f], r->crc[i], (z_off_t)size);
        }
        o->written += b->files[f].size;
    }
    for (uint64_t i = 0; i < b->n_tensors; i++) {
        const cf_checked how = checked_how(b, &b->tensors[i], verified);
        o->tensor_crc[i] = r->crc[b->tensors[i].chunk];
        o->tensor_check[i] = (uint8_t)how;
        o->n_checked[how]++;
    }
    for (int i = 0; i < r->x->threads; i++) {
        o->read += r->gathers[i].read;
        o->requests += r->gathers[i].requests;
    }
    for (uint64_t i = 0; i < b->n_sources; i++) o->plain += r->records.bytes.inputs[i].plain;
    o->windows = r->windows.count;
    o->found = r->found;
    return true;
}

/* ---- read back ---------------------------------------------------------------------------------
 */

static bool read_window(void *ctx, uint64_t job, int thread, cf_err *err)
{
    run *r = ctx;
    filling f = {.w = &r->windows.list[cf_window_of(&r->windows, r->x->threads, job)],
                 .thread = thread,
                 .again = true};
    const bool ok =
        fill_window(r, &f, err) && join(&r->again[thread], f.parts.items, f.parts.count, err);
    free(f.parts.items);
    return ok;
}

/* From the disk, not from the page cache: that holds what was to be written. A file system that
 * lives in memory has nothing else. */
static bool read_back(run *r, cf_outcome *o, cf_err *err)
{
    const cf_block *b = r->block;
    for (uint64_t i = 0; i < b->n_files; i++) {
        const char *path = cf_block_text(b, b->files[i].path);
        if (!cf_drop_cache(r->outputs[i], err)) return cf_err_in_file(err, path);
    }
    r->reading_back = true;
    if (!cf_pool_run(r->x->threads, r->windows.count, read_window, r, err) ||
        !join_all(r, r->again, err))
        return false;
    for (uint64_t f = 0; f < b->n_files; f++)
        for (uint64_t i = b->files[f].chunk; i < b->files[f].chunk + b->files[f].chunks; i++) {
            const cf_b_chunk *c = &b->chunks[i];
            uint32_t is;
            if (cf_stretches_whole(&r->again[0], i, c->end - c->begin, &is) && is == r->crc[i])
                continue;
            cf_fail_at(err, CF_E_IO, (int64_t)c->begin,
                       "%llu bytes do not come back from the disk as they were written",
                       (unsigned long long)(c->end - c->begin));
            if (c->tensor != CF_B_NONE)
                cf_err_in_member(err, cf_block_text(b, b->tensors[c->tensor].key));
            return cf_err_in_file(err, cf_block_text(b, b->files[f].path));
        }
    o->read_back = o->written;
    return true;
}

static bool carry_out(run *r, cf_sink *sink, cf_outcome *o, cf_err *err)
{
    const cf_block *b = r->block;
    const int threads = r->x->threads;
    const uint64_t tall = r->x->means->tall;
    if (!cf_records_open(&r->records, r->x, sink, NULL, err)) return false;
    for (int i = 0; i < threads; i++) {
        r->buffers[i] = malloc(tall > r->x->means->tile ? tall : r->x->means->tile);
        if (!r->buffers[i]) return cf_fail(err, CF_E_MEMORY, "out of memory");
        if (!cf_gather_start(&r->gathers[i], &r->records.bytes, r->x->means, err)) return false;
    }
    if (!cf_pool_run(threads, b->n_compares, compare_one, r, err) ||
        !cf_pool_run(threads, b->n_checks, check_one, r, err) ||
        !cf_windows_cut(&r->windows, b, &r->arena, err))
        return false;
    for (uint64_t i = 0; i < b->n_files; i++)
        if (!cf_sink_create(sink, cf_block_text(b, b->files[i].path), b->files[i].size,
                            &r->outputs[i], err))
            return false;
    if (!cf_pool_run(threads, r->windows.count, do_window, r, err) ||
        !cf_records_unchanged(&r->records, err) || !seal(r, err) || !sum_up(r, o, err) ||
        (r->x->verify && !read_back(r, o, err)))
        return false;
    for (uint64_t i = 0; i < b->n_files; i++) {
        const int fd = r->outputs[i];
        r->outputs[i] = -1;
        const bool synced = !r->x->fsync || fdatasync(fd) == 0;
        const int sync_error = errno;
        if (!synced) close(fd);
        if (!synced || close(fd) != 0) {
            cf_fail_sys(err, synced ? errno : sync_error, "cannot finish writing");
            return cf_err_in_file(err, cf_block_text(b, b->files[i].path));
        }
    }
    return true;
}

bool cf_execute(const cf_execution *x, cf_sink *sink, cf_outcome *outcome, cf_err *err)
{
    run r = {.x = x, .block = x->block, .records = {.block = x->block, .scratch = -1}};
    cf_arena_init(&r.arena, 0);
    memset(outcome, 0, sizeof *outcome);
    cf_arena_init(&outcome->arena, 0);
    r.outputs = CF_NEWS(&r.arena, int, x->block->n_files + 1);
    for (uint64_t i = 0; r.outputs && i < x->block->n_files; i++) r.outputs[i] = -1;
    r.gathers = CF_NEWS(&r.arena, cf_gather, (size_t)x->threads);
    r.buffers = CF_NEWS(&r.arena, uint8_t *, (size_t)x->threads);
    r.checked = CF_NEWS(&r.arena, cf_stretches, (size_t)x->threads);
    r.written = CF_NEWS(&r.arena, cf_stretches, (size_t)x->threads);
    r.again = CF_NEWS(&r.arena, cf_stretches, (size_t)x->threads);
    const bool ok = cf_arena_ok(&r.arena, err) && carry_out(&r, sink, outcome, err);
    for (int i = 0; r.again && i < x->threads; i++) {
        cf_gather_end(&r.gathers[i]);
        free(r.checked[i].items);
        free(r.written[i].items);
        free(r.again[i].items);
        free(r.buffers[i]);
    }
    for (uint64_t i = 0; r.outputs && i < x->block->n_files; i++)
        if (r.outputs[i] >= 0) close(r.outputs[i]);
    cf_records_close(&r.records);
    cf_arena_free(&r.arena);
    return ok;
}

void cf_outcome_free(cf_outcome *outcome)
{
    cf_arena_free(&outcome->arena);
}
