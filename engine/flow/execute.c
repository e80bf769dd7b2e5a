#include "execute.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "damage.h"
#include "num.h"
#include "pool.h"
#include "replicas.h"
#include "running.h"
#include "view.h"

/* ---- before the first byte ---------------------------------------------------------------------
 */

static bool is_mine(const cf_running *r, uint64_t number)
{
    return !r->x->share.of || number % r->x->share.of == r->x->share.rank;
}

static bool crc_of_record(cf_running *r, uint64_t record, int thread, uint32_t *crc, cf_err *err)
{
    const cf_b_record *rec = &r->block->records[record];
    const uint64_t tile = r->x->means->tile;
    *crc = 0;
    for (uint64_t at = 0; at < rec->size; at += tile) {
        const size_t n = (size_t)(rec->size - at < tile ? rec->size - at : tile);
        if (cf_stopped(r->x, err)) return false;
        if (!cf_gather_read(&r->gathers[thread], record, at, r->buffers[thread], n, err))
            return cf_err_in_file(err, cf_record_path(r->block, rec));
        *crc = libdeflate_crc32(*crc, r->buffers[thread], n);
    }
    return true;
}

/* Copies differ: the checksums may tell which is damaged; else nobody knows which is right. */
static bool take_conflict(cf_running *r, const cf_b_compare *c, int thread, cf_err *err)
{
    const uint64_t moves[] = {c->left, c->right};
    bool told = false;
    for (int i = 0; i < 2; i++) {
        const uint64_t record = r->block->moves[moves[i]].record;
        cf_err fault = {0};
        uint32_t crc;
        if (r->block->records[record].place == CF_IN_MEMORY || !r->records.has_crc[record])
            continue;
        if (!crc_of_record(r, record, thread, &crc, &fault)) {
            *err = fault;
            return false;
        }
        if (crc == r->records.crc[record]) continue;
        cf_crc_fault(r, record, crc, &fault);
        told |= cf_damage_take(r->x->damage, r->block, record, &fault);
    }
    return told || cf_damage_take_key(r->x->damage, cf_block_text(r->block, c->key), err);
}

static bool compare_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    cf_running *r = ctx;
    if (!is_mine(r, number)) return true;
    const cf_b_compare *c = &r->block->compares[number];
    if (cf_stopped(r->x, err)) return false;
    return cf_replica_compare(r->block, c, &r->gathers[thread], r->buffers[thread], err) ||
           (r->x->damage && err->code == CF_E_META_CONFLICT && take_conflict(r, c, thread, err));
}

static bool check_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    cf_running *r = ctx;
    if (!is_mine(r, number)) return true;
    const uint64_t record = r->block->checks[number];
    const cf_b_record *rec = &r->block->records[record];
    uint32_t crc;
    if (!crc_of_record(r, record, thread, &crc, err)) return false;
    if (crc == rec->crc) return cf_stretch_add(&r->checked[thread], record, 0, rec->size, crc, err);
    cf_crc_fault(r, record, crc, err);
    return cf_damage_take(r->x->damage, r->block, record, err);
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

static bool read_again(cf_running *r, const filling *f, uint64_t begin, uint64_t end, cf_err *err)
{
    const cf_b_file *file = &r->block->files[f->w->file];
    const cf_span span = cf_span_of_file(r->outputs[f->w->file], file->size);
    return cf_span_read(&span, begin, r->buffers[f->thread], end - begin, err) ||
           cf_err_in_file(err, cf_block_text(r->block, file->path));
}

/* One buffer: pieces of one or many chunks, then one write. */
static bool fill_tile(cf_running *r, filling *f, uint64_t begin, uint64_t end, cf_err *err)
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
static bool fill_window(cf_running *r, filling *f, cf_err *err)
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

/* A window that a run before finished: is what it wrote still there? Then nothing is read of the
 * checkpoint, and what was known of its records is taken over. */
static bool take_over(cf_running *r, const cf_window *w, int thread, bool *taken, cf_err *err)
{
    const cf_journaled *was = r->x->journal ? cf_journal_find(r->x->journal, w) : NULL;
    *taken = false;
    if (!was) return true;
    filling f = {.w = w, .thread = thread, .again = true};
    bool ok = true;
    if (fill_window(r, &f, err) && f.crc == was->crc) {
        const cf_stretches checked = {(cf_stretch *)was->checked, was->n_checked, was->n_checked};
        ok = cf_stretches_add(&r->written[thread], f.parts.items, f.parts.count, err) &&
             cf_stretches_add(&r->checked[thread], was->checked, was->n_checked, err) &&
             (was->own || cf_journal_add(r->x->journal, w, f.crc, &checked, &f.parts, err));
        if (r->window_crc) r->window_crc[w - r->windows.list] = f.crc;
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

static bool make(cf_running *r, const cf_window *w, int thread, cf_err *err)
{
    cf_stretches *checked = &r->gathers[thread].checked;
    checked->count = 0;
    filling f = {.w = w, .thread = thread};
    const bool ok =
        fill_window(r, &f, err) &&
        (!r->x->journal || cf_journal_add(r->x->journal, w, f.crc, checked, &f.parts, err)) &&
        cf_stretches_add(&r->written[thread], f.parts.items, f.parts.count, err) &&
        cf_stretches_add(&r->checked[thread], checked->items, checked->count, err);
    if (r->window_crc) r->window_crc[w - r->windows.list] = f.crc;
    free(f.parts.items);
    return ok;
}

static bool do_window(void *ctx, uint64_t job, int thread, cf_err *err)
{
    cf_running *r = ctx;
    const cf_window *w = &r->windows.list[cf_window_of(&r->windows, r->x->threads, job)];
    bool taken;
    return take_over(r, w, thread, &taken, err) && (taken || make(r, w, thread, err));
}

/* ---- read back ---------------------------------------------------------------------------------
 */

static bool read_window(void *ctx, uint64_t job, int thread, cf_err *err)
{
    cf_running *r = ctx;
    filling f = {.w = &r->windows.list[cf_window_of(&r->windows, r->x->threads, job)],
                 .thread = thread,
                 .again = true};
    const bool ok = fill_window(r, &f, err) &&
                    cf_stretches_add(&r->again[thread], f.parts.items, f.parts.count, err);
    free(f.parts.items);
    return ok;
}

/* From the disk, not from the page cache: that holds what was to be written. A file system that
 * lives in memory has nothing else. */
static bool drop_caches(const cf_running *r, cf_err *err)
{
    for (uint64_t i = 0; i < r->block->n_files; i++)
        if (!cf_drop_cache(r->outputs[i], err))
            return cf_err_in_file(err, cf_block_text(r->block, r->block->files[i].path));
    return true;
}

static bool read_back(cf_running *r, cf_outcome *o, cf_err *err)
{
    const cf_block *b = r->block;
    CF_TRY(drop_caches(r, err));
    r->reading_back = true;
    if (!cf_pool_run(r->x->threads, r->windows.count, read_window, r, err) ||
        !cf_stretches_join(r, r->again, err))
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

/* A window of a share must be what it was: its chunks may go on in others' windows. */
static bool read_share_window(void *ctx, uint64_t job, int thread, cf_err *err)
{
    cf_running *r = ctx;
    const cf_window *w = &r->windows.list[cf_window_of(&r->windows, r->x->threads, job)];
    filling f = {.w = w, .thread = thread, .again = true};
    bool ok = fill_window(r, &f, err);
    free(f.parts.items);
    if (!ok || f.crc == r->window_crc[w - r->windows.list]) return ok;
    cf_fail_at(err, CF_E_IO, (int64_t)w->begin,
               "%llu bytes do not come back from the disk as they were written",
               (unsigned long long)(w->end - w->begin));
    return cf_err_in_file(err, cf_block_text(r->block, r->block->files[w->file].path));
}

static bool read_share_back(cf_running *r, cf_err *err)
{
    CF_TRY(drop_caches(r, err));
    r->reading_back = true;
    return cf_pool_run(r->x->threads, r->windows.count, read_share_window, r, err);
}

static bool cut(cf_running *r, cf_err *err)
{
    cf_windows all;
    CF_TRY(cf_windows_cut(&all, r->block, &r->arena, err));
    r->windows = cf_windows_share(&all, r->x->share);
    if (r->x->share.of) r->window_crc = CF_NEWS(&r->arena, uint32_t, r->windows.count + 1);
    return cf_arena_ok(&r->arena, err);
}

bool cf_outputs_open(cf_running *r, cf_sink *sink, cf_err *err)
{
    const cf_block *b = r->block;
    for (uint64_t i = 0; i < b->n_files; i++)
        if (!cf_sink_create(sink, cf_block_text(b, b->files[i].path), b->files[i].size,
                            &r->outputs[i], err))
            return false;
    return true;
}

bool cf_outputs_close(cf_running *r, bool sync, cf_err *err)
{
    for (uint64_t i = 0; i < r->block->n_files; i++) {
        const int fd = r->outputs[i];
        r->outputs[i] = -1;
        const bool synced = !sync || fdatasync(fd) == 0;
        const int sync_error = errno;
        if (!synced) close(fd);
        if (!synced || close(fd) != 0) {
            cf_fail_sys(err, synced ? errno : sync_error, "cannot finish writing");
            return cf_err_in_file(err, cf_block_text(r->block, r->block->files[i].path));
        }
    }
    return true;
}

static bool carry_out(cf_running *r, cf_sink *sink, cf_outcome *o, cf_err *err)
{
    const cf_block *b = r->block;
    const int threads = r->x->threads;
    const uint64_t tall = r->x->means->tall;
    const bool share = r->x->share.of > 0, *wanted = NULL;
    if (!cut(r, err) || (share && !cf_share_wants(r, &wanted, err)) ||
        !cf_records_open(&r->records, r->x, sink, wanted, err) ||
        !cf_damage_none(r->x->damage, err) || (share && !cf_share_items(r, wanted, err)))
        return false;
    for (int i = 0; i < threads; i++) {
        r->buffers[i] = malloc(tall > r->x->means->tile ? tall : r->x->means->tile);
        if (!r->buffers[i]) return cf_fail(err, CF_E_MEMORY, "out of memory");
        if (!cf_gather_start(&r->gathers[i], &r->records.bytes, r->x->means, err)) return false;
    }
    if (!cf_pool_run(threads, b->n_compares, compare_one, r, err) ||
        !cf_pool_run(threads, b->n_checks, check_one, r, err) ||
        !cf_damage_none(r->x->damage, err) || !cf_outputs_open(r, sink, err) ||
        !cf_pool_run(threads, r->windows.count, do_window, r, err) ||
        !cf_records_unchanged(&r->records, err))
        return false;
    if (share) {
        cf_share_sum(r, o);
        return (!r->x->verify || read_share_back(r, err)) && cf_outputs_close(r, true, err);
    }
    return cf_conclude(r, o, err) && (!r->x->verify || read_back(r, o, err)) &&
           cf_outputs_close(r, r->x->fsync, err);
}

bool cf_running_begin(cf_running *r, const cf_execution *x, cf_outcome *outcome, cf_err *err)
{
    *r = (cf_running){.x = x, .block = x->block, .records = {.block = x->block, .scratch = -1}};
    cf_arena_init(&r->arena, 0);
    memset(outcome, 0, sizeof *outcome);
    cf_arena_init(&outcome->arena, 0);
    r->outputs = CF_NEWS(&r->arena, int, x->block->n_files + 1);
    for (uint64_t i = 0; r->outputs && i < x->block->n_files; i++) r->outputs[i] = -1;
    r->gathers = CF_NEWS(&r->arena, cf_gather, (size_t)x->threads);
    r->buffers = CF_NEWS(&r->arena, uint8_t *, (size_t)x->threads);
    r->checked = CF_NEWS(&r->arena, cf_stretches, (size_t)x->threads);
    r->written = CF_NEWS(&r->arena, cf_stretches, (size_t)x->threads);
    r->again = CF_NEWS(&r->arena, cf_stretches, (size_t)x->threads);
    return cf_arena_ok(&r->arena, err);
}

void cf_running_end(cf_running *r)
{
    for (int i = 0; r->again && i < r->x->threads; i++) {
        cf_gather_end(&r->gathers[i]);
        free(r->checked[i].items);
        free(r->written[i].items);
        free(r->again[i].items);
        free(r->buffers[i]);
    }
    for (uint64_t i = 0; r->outputs && i < r->block->n_files; i++)
        if (r->outputs[i] >= 0) close(r->outputs[i]);
    cf_records_close(&r->records);
    cf_arena_free(&r->arena);
}

bool cf_execute(const cf_execution *x, cf_sink *sink, cf_outcome *outcome, cf_err *err)
{
    cf_running r;
    const bool ok = cf_running_begin(&r, x, outcome, err) && carry_out(&r, sink, outcome, err);
    cf_running_end(&r);
    return ok;
}

void cf_outcome_free(cf_outcome *outcome)
{
    cf_arena_free(&outcome->arena);
}
