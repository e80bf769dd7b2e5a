/* One conversion by several processes that share a file system and nothing else.
 *
 * Each plans the same block, writes the windows that begin in its part of the bytes and journals
 * what it knows of them: CRC-32 of stretches of chunks and records, and of items that it opened.
 * Comparisons and checks that come before the first window are dealt out by number. The last one to
 * be through has all of that from the journals, so the end of the output (checksums held against
 * the archives', seals, manifest) is made without reading what others wrote.
 */
#include <libdeflate.h>
#include <stdlib.h>

#include "num.h"
#include "running.h"

static void want(bool *wanted, const cf_block *b, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) wanted[b->moves[i].record] = true;
}

bool cf_share_wants(cf_running *r, const bool **wanted, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_share share = r->x->share;
    bool *list = CF_NEWS(&r->arena, bool, b->n_records + 1);
    if (!list) return cf_arena_ok(&r->arena, err);
    uint64_t next = 0; /* chunks are in the order of the windows */
    for (uint64_t i = 0; i < r->windows.count; i++) {
        const cf_window *w = &r->windows.list[i];
        const cf_b_file *f = &b->files[w->file];
        for (uint64_t c = w->chunk > next ? w->chunk : next;
             c < f->chunk + f->chunks && b->chunks[c].begin < w->end; c++) {
            uint64_t first, end;
            for (uint64_t t = 0;
                 b->chunks[c].moves && cf_chunk_moves(b, &b->chunks[c], t, &first, &end); t++)
                want(list, b, first, end);
            next = c + 1;
        }
    }
    for (uint64_t i = share.rank; i < b->n_compares; i += share.of) {
        want(list, b, b->compares[i].left, b->compares[i].left + 1);
        want(list, b, b->compares[i].right, b->compares[i].right + 1);
    }
    for (uint64_t i = share.rank; i < b->n_checks; i += share.of) list[b->checks[i]] = true;
    *wanted = list;
    return true;
}

bool cf_share_items(const cf_running *r, const bool *wanted, cf_err *err)
{
    cf_stretches items = {0};
    bool ok = true;
    for (uint64_t i = 0; ok && i < r->block->n_records; i++)
        if (wanted[i] && r->block->records[i].place == CF_IN_ITEM && r->records.has_crc[i])
            ok = cf_stretch_add(&items, i, 0, r->block->records[i].size, r->records.crc[i], err);
    if (ok && items.count) ok = cf_journal_items(r->x->journal, &items, err);
    free(items.items);
    return ok;
}

void cf_share_sum(const cf_running *r, cf_outcome *o)
{
    for (int i = 0; i < r->x->threads; i++) {
        o->read += r->gathers[i].read;
        o->requests += r->gathers[i].requests;
    }
    for (uint64_t i = 0; i < r->windows.count; i++)
        o->written += r->windows.list[i].end - r->windows.list[i].begin;
    if (r->x->verify) o->read_back = o->written;
    o->windows = r->windows.count;
    o->found = r->found;
}

uint64_t cf_share_bytes(const cf_block *b, cf_share share)
{
    cf_arena arena;
    cf_windows all;
    cf_err none;
    uint64_t bytes = 0;
    cf_arena_init(&arena, 0);
    if (cf_windows_cut(&all, b, &arena, &none)) {
        const cf_windows own = cf_windows_share(&all, share);
        for (uint64_t i = 0; i < own.count; i++) bytes += own.list[i].end - own.list[i].begin;
    }
    cf_arena_free(&arena);
    return bytes;
}

/* ---- the last one ------------------------------------------------------------------------------
 */

/* All that the journals tell, as if this process had written every window itself. */
static bool take_all(cf_running *r, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_journal *j = r->x->journal;
    for (uint64_t i = 0; i < b->n_records; i++) {
        r->records.has_crc[i] = b->records[i].place != CF_IN_ITEM && b->records[i].has_crc;
        r->records.crc[i] = b->records[i].crc;
    }
    for (size_t i = 0; i < j->items.count; i++) {
        r->records.has_crc[j->items.items[i].number] = true;
        r->records.crc[j->items.items[i].number] = j->items.items[i].crc;
    }
    for (uint64_t i = 0; i < r->windows.count; i++) {
        const cf_window *w = &r->windows.list[i];
        const cf_journaled *e = cf_journal_find(j, w);
        if (!e) {
            cf_fail_at(err, CF_E_IO, (int64_t)w->begin, "no journal has these %llu bytes",
                       (unsigned long long)(w->end - w->begin));
            return cf_err_in_file(err, cf_block_text(b, b->files[w->file].path));
        }
        if (!cf_stretches_add(&r->written[0], e->parts, e->n_parts, err) ||
            !cf_stretches_add(&r->checked[0], e->checked, e->n_checked, err))
            return false;
    }
    for (uint64_t i = 0; i < b->n_checks; i++) { /* a share that is done found them right */
        const cf_b_record *rec = &b->records[b->checks[i]];
        if (!cf_stretch_add(&r->checked[0], b->checks[i], 0, rec->size,
                            r->records.crc[b->checks[i]], err))
            return false;
    }
    return true;
}

/* Files that shares wrote must be there as they left them. */
static bool are_there(const cf_block *b, const cf_sink *sink, cf_err *err)
{
    for (uint64_t i = 0; i < b->n_files; i++) {
        const char *path = cf_block_text(b, b->files[i].path);
        if (!b->files[i].size || cf_sink_holds(sink, path, b->files[i].size)) continue;
        cf_fail(err, CF_E_IO, "a share wrote it, and it is not there any more");
        return cf_err_in_file(err, path);
    }
    return true;
}

/* What the last one wrote itself, from the disk. */
static bool read_seals(const cf_running *r, cf_err *err)
{
    const cf_block *b = r->block;
    uint8_t *buffer = malloc(CF_TILE);
    bool ok = buffer ? true : cf_fail(err, CF_E_MEMORY, "out of memory");
    for (uint64_t f = 0; ok && f < b->n_files; f++) {
        const cf_span span = cf_span_of_file(r->outputs[f], b->files[f].size);
        bool dropped = false;
        for (uint64_t i = b->files[f].chunk; ok && i < b->files[f].chunk + b->files[f].chunks;
             i++) {
            const cf_b_chunk *c = &b->chunks[i];
            uint32_t crc = 0;
            if (!c->late) continue;
            if (!dropped) ok = cf_drop_cache(r->outputs[f], err);
            dropped = true;
            for (uint64_t at = c->begin; ok && at < c->end; at += CF_TILE) {
                const uint64_t n = c->end - at < CF_TILE ? c->end - at : CF_TILE;
                ok = cf_span_read(&span, at, buffer, n, err);
                if (ok) crc = libdeflate_crc32(crc, buffer, n);
            }
            if (ok && crc != r->crc[i])
                ok = cf_fail_at(err, CF_E_IO, (int64_t)c->begin,
                                "%llu bytes do not come back from the disk as they were written",
                                (unsigned long long)(c->end - c->begin));
        }
        if (!ok) cf_err_in_file(err, cf_block_text(b, b->files[f].path));
    }
    free(buffer);
    return ok;
}

static bool finish(cf_running *r, cf_sink *sink, cf_outcome *o, cf_err *err)
{
    bool *nothing = CF_NEWS(&r->arena, bool, r->block->n_records + 1);
    if (!nothing) return cf_arena_ok(&r->arena, err);
    return cf_records_open(&r->records, r->x, sink, nothing, err) &&
           cf_windows_cut(&r->windows, r->block, &r->arena, err) && take_all(r, err) &&
           are_there(r->block, sink, err) && cf_outputs_open(r, sink, err) &&
           cf_conclude(r, o, err) && (!r->x->verify || read_seals(r, err)) &&
           cf_outputs_close(r, r->x->fsync, err);
}

bool cf_execute_last(const cf_execution *x, cf_sink *sink, cf_outcome *outcome, cf_err *err)
{
    cf_running r;
    const bool ok = cf_running_begin(&r, x, outcome, err) && finish(&r, sink, outcome, err);
    cf_running_end(&r);
    return ok;
}
