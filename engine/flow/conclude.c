/* After the last window. What was written by several processes comes to the same: their journals
 * have the stretches that threads of one process have in memory. */
#include <stdlib.h>
#include <zlib.h>

#include "damage.h"
#include "running.h"
#include "seal.h"

bool cf_stretches_add(cf_stretches *to, const cf_stretch *from, size_t count, cf_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!cf_stretch_add(to, from[i].number, from[i].at, from[i].size, from[i].crc, err))
            return false;
    return true;
}

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

bool cf_crc_fault(const cf_running *r, uint64_t number, uint32_t crc, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_b_record *rec = &b->records[number];
    const char *tensor = tensor_of(b, number);
    cf_fail_at(err, CF_E_ZIP_CRC, (int64_t)rec->offset,
               "CRC-32 of %llu bytes is %08x, the archive says %08x: %s%s is damaged",
               (unsigned long long)rec->size, crc, r->records.crc[number],
               tensor ? "tensor " : "a record", tensor ? tensor : "");
    cf_err_in_member(err, cf_block_text(b, rec->name));
    cf_err_in_file(err, cf_record_path(b, rec));
    return cf_err_hint(err, "`verify` lists all that is damaged, --salvage writes what is whole");
}

/* All threads' stretches in the first one's list, sorted. */
bool cf_stretches_join(const cf_running *r, cf_stretches *lists, cf_err *err)
{
    for (int i = 1; i < r->x->threads; i++) {
        if (!cf_stretches_add(&lists[0], lists[i].items, lists[i].count, err)) return false;
        free(lists[i].items);
        lists[i] = (cf_stretches){0};
    }
    cf_stretches_sort(&lists[0]);
    return true;
}

static bool check_records(cf_running *r, bool *verified, cf_err *err)
{
    const cf_block *b = r->block;
    if (!cf_stretches_join(r, r->checked, err)) return false;
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
        verified[i] = crc == r->records.crc[i];
        if (verified[i]) continue;
        cf_crc_fault(r, i, crc, err);
        if (!cf_damage_take(r->x->damage, b, i, err)) return false;
    }
    return cf_damage_none(r->x->damage, err);
}

/* The CRC of every chunk, and the bytes that wait for them. */
static bool seal(cf_running *r, cf_err *err)
{
    const cf_block *b = r->block;
    const cf_stretches *all = &r->written[0];
    r->crc = CF_NEWS(&r->arena, uint32_t, b->n_chunks + 1);
    if (!r->crc) return cf_arena_ok(&r->arena, err);
    if (!cf_stretches_join(r, r->written, err)) return false;
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

static bool sum_up(cf_running *r, cf_outcome *o, cf_err *err)
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

bool cf_conclude(cf_running *r, cf_outcome *o, cf_err *err)
{
    return seal(r, err) && sum_up(r, o, err);
}
