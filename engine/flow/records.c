#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "damage.h"
#include "dir.h"
#include "item.h"
#include "moves.h"
#include "num.h"
#include "packed.h"
#include "pool.h"
#include "zipfile.h"

static const char *path_of(const cf_records *r, const cf_b_record *rec)
{
    return cf_record_path(r->block, rec);
}

/* The content of a file that is compressed as a whole: unpacked already, by this process. */
static bool open_unpacked(const cf_b_source *s, int *fd, cf_err *err)
{
    const cf_packed *p = cf_packed_find(s->device, s->inode, s->packed, s->mtime_ns);
    if (!p || p->unpacked != s->size)
        return cf_fail(err, CF_E_IO, "the file changed since it was planned");
    return cf_packed_open(p, fd, err);
}

bool cf_source_reopen(const cf_execution *x, uint64_t number, int *fd, cf_err *err)
{
    const cf_b_source *s = &x->block->sources[number];
    const char *path = cf_block_text(x->block, s->path);
    cf_dir_file is;
    if (s->packed) return open_unpacked(s, fd, err) || cf_err_in_file(err, path);
    if (!cf_beneath_open(x->roots[s->root], path, fd, &is, err)) return cf_err_in_file(err, path);
    if (is.size == s->size && is.device == s->device && is.inode == s->inode &&
        is.mtime_ns == s->mtime_ns)
        return true;
    close(*fd);
    *fd = -1;
    cf_fail(err, CF_E_IO, "the file changed since it was planned");
    return cf_err_in_file(err, path);
}

static bool is_wanted(const cf_records *r, uint64_t record)
{
    return !r->wanted || r->wanted[record];
}

static bool open_source(cf_records *r, uint64_t number, cf_err *err)
{
    if (!cf_source_reopen(r->x, number, &r->fds[number], err)) return false;
    cf_input_open(&r->bytes.inputs[number], r->x->means->io, r->fds[number],
                  r->block->sources[number].size);
    return true;
}

static bool open_sources(cf_records *r, cf_err *err)
{
    const cf_block *b = r->block;
    for (uint64_t i = 0; !r->wanted && i < b->n_sources; i++)
        if (!open_source(r, i, err)) return false;
    for (uint64_t i = 0; r->wanted && i < b->n_records; i++) {
        const uint32_t source = b->records[i].source;
        if (!r->wanted[i] || b->records[i].place == CF_IN_MEMORY || r->fds[source] >= 0) continue;
        if (!open_source(r, source, err)) return false;
    }
    return true;
}

bool cf_records_unchanged(const cf_records *r, cf_err *err)
{
    for (uint64_t i = 0; i < r->block->n_sources; i++) {
        const cf_b_source *s = &r->block->sources[i];
        struct stat st;
        if (s->packed) continue;     /* nobody else has its content */
        if (r->fds[i] < 0) continue; /* nothing was wanted of it */
        if (fstat(r->fds[i], &st) == 0 && (uint64_t)st.st_size == s->size &&
            (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == s->mtime_ns)
            continue;
        cf_fail(err, CF_E_IO, "the file changed while it was read");
        return cf_err_in_file(err, cf_block_text(r->block, s->path));
    }
    return true;
}

bool cf_stopped(const cf_execution *x, cf_err *err)
{
    if (!x->stop || !*x->stop) return false;
    cf_fail(err, CF_E_INTERRUPTED, "stopped by signal %d", (int)*x->stop);
    return true;
}

/* ---- scratch -----------------------------------------------------------------------------------
 */

bool cf_write_all(int fd, const void *bytes, uint64_t size, uint64_t at, cf_err *err)
{
    const uint8_t *p = bytes;
    while (size) {
        const ssize_t n = pwrite(fd, p, size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cf_fail_sys(err, errno, "cannot write");
        p += n;
        at += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return true;
}

bool cf_drop_cache(int fd, cf_err *err)
{
    if (fdatasync(fd) != 0) return cf_fail_sys(err, errno, "cannot finish writing");
    const int sys = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return sys == 0 || cf_fail_sys(err, sys, "cannot drop what is in memory");
}

/* A stretch of the scratch file for `size` bytes. */
static bool reserve(cf_records *r, uint64_t size, cf_span *span, cf_err *err)
{
    pthread_mutex_lock(&r->lock);
    const bool ok = r->scratch >= 0 || (r->sink ? cf_sink_scratch(r->sink, 0, &r->scratch, err)
                                                : cf_temporary(&r->scratch, err));
    *span = (cf_span){.fd = r->scratch, .start = r->scratch_end, .size = size};
    if (ok) r->scratch_end += size;
    pthread_mutex_unlock(&r->lock);
    return ok;
}

typedef struct writing {
    const cf_span *span;
    uint64_t size; /* written so far */
} writing;

static bool take_piece(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    writing *w = ctx;
    if (size > w->span->size - w->size)
        return cf_fail(err, CF_E_STORAGE_SIZE, "decodes to more than was said");
    if (!cf_write_all(w->span->fd, bytes, size, w->span->start + w->size, err)) return false;
    w->size += size;
    return true;
}

static bool decode_member(cf_records *r, const cf_span *archive, const char *name, uint64_t size,
                          cf_span *span, cf_err *err)
{
    writing w = {.span = span};
    return reserve(r, size, span, err) && cf_zip_decode(archive, name, size, take_piece, &w, err);
}

/* ---- items -------------------------------------------------------------------------------------
 */

/* A view brought into row-major order. */
static bool normalise(cf_records *r, const cf_span *storage, const cf_view *v, cf_span *span,
                      cf_err *err)
{
    const uint64_t bytes = (uint64_t)(v->numel * cf_dtype_size(v->stored));
    cf_b_move move;
    int64_t dims[3 * CF_MOST_DIMS];
    cf_move_shape(&move, dims, v, v->shape, NULL);
    const cf_b_record record = {.size = storage->size, .place = CF_IN_MEMORY};
    const cf_block one = {
        .moves = &move, .n_moves = 1, .records = &record, .n_records = 1, .numbers = dims};
    cf_span in = *storage;
    const cf_bytes where = {.block = &one, .records = &in};
    const uint64_t tile = r->x->means->tile;
    cf_gather g;
    uint8_t *buffer = malloc(tile);
    bool ok = buffer ? true : cf_fail(err, CF_E_MEMORY, "out of memory");
    ok = ok && cf_gather_start(&g, &where, r->x->means, err);
    if (ok) {
        ok = reserve(r, bytes, span, err);
        for (uint64_t at = 0; ok && at < bytes; at += tile) {
            const uint64_t end = at + tile < bytes ? at + tile : bytes;
            uint32_t crc;
            bool known;
            ok = cf_gather_fill(&g, 0, 1, at, end, buffer, &crc, &known, err) &&
                 cf_write_all(span->fd, buffer, end - at, span->start + at, err);
        }
        cf_gather_end(&g);
    }
    free(buffer);
    return ok;
}

/* A packed item unpacked into scratch: it is a file of its own then. */
static bool unpack(cf_records *r, const cf_b_record *rec, cf_span *file, cf_err *err)
{
    enum { CONTAINER = 1 << 20 }; /* what a container may add to its tensor */
    cf_span packed, room;
    if (!cf_span_part(file, rec->offset, rec->packed, &packed, err) ||
        !reserve(r, rec->size + CONTAINER, &room, err))
        return false;
    writing w = {.span = &room};
    if (!cf_item_unpack(&packed, room.size, take_piece, &w, err)) return false;
    room.size = w.size;
    *file = room;
    return true;
}

static bool crc_of(const cf_span *span, uint32_t *crc, cf_err *err)
{
    uint8_t buffer[16 << 10];
    *crc = 0;
    for (uint64_t at = 0; at < span->size; at += sizeof buffer) {
        const uint64_t left = span->size - at;
        const size_t n = left < sizeof buffer ? (size_t)left : sizeof buffer;
        if (!cf_span_read(span, at, buffer, n, err)) return false;
        *crc = libdeflate_crc32(*crc, buffer, n);
    }
    return true;
}

/* Is the storage of an item, of which not all is moved as it lies, what its checksum says? A large
 * one is not read for that. */
static bool check_storage(const cf_storage *s, const cf_span *span, bool *checked, cf_err *err)
{
    uint32_t crc;
    *checked = s->place == CF_IN_MEMBER; /* while it was decoded */
    if (s->place != CF_IN_FILE || !s->has_crc || s->size > CF_SMALL_RECORD) return true;
    *checked = true;
    if (!crc_of(span, &crc, err)) return false;
    return crc == s->crc
               ? true
               : cf_fail(err, CF_E_ZIP_CRC, "CRC-32 of %llu bytes is %08x, the archive says %08x",
                         (unsigned long long)s->size, crc, s->crc);
}

static bool locate_item(cf_records *r, uint64_t number, cf_arena *tree, cf_arena *keep, cf_err *err)
{
    const cf_b_record *rec = &r->block->records[number];
    const cf_claim claim = {.dtype = (cf_dtype)rec->dtype,
                            .ndim = rec->ndim,
                            .shape = r->block->numbers + rec->dims,
                            .name = cf_block_text(r->block, rec->name)};
    cf_reading reading = {.tree = tree, .keep = keep};
    const cf_view *v;
    cf_span file = cf_span_of_file(r->fds[rec->source], r->block->sources[rec->source].size);
    cf_span *span = &r->bytes.records[number];
    if (rec->method && !unpack(r, rec, &file, err)) return false;
    const uint64_t at = rec->method ? 0 : rec->offset, size = rec->method ? file.size : rec->packed;
    if (!cf_item_tensor(&file, at, size, &claim, &reading, &v, err)) return false;
    const cf_storage *s = v->storage;
    if (v->numel == 0) return true;
    cf_span storage = {.fd = file.fd, .start = s->offset, .size = s->size}, archive;
    if (s->place == CF_IN_MEMORY)
        storage = cf_span_of_bytes(s->bytes, s->size);
    else if (s->place == CF_NOWHERE)
        return cf_fail(err, CF_E_STORAGE_MISSING, "the item holds no data");
    else if (s->place == CF_IN_MEMBER &&
             (!cf_span_part(&file, at, size, &archive, err) ||
              !decode_member(r, &archive, s->name, s->size, &storage, err)))
        return false;
    const bool plain = cf_view_dense(v) && !s->big_endian && !v->conj && !v->neg && storage.fd >= 0;
    r->crc[number] = s->crc;
    r->has_crc[number] = s->has_crc && s->place == CF_IN_FILE && plain && s->size == rec->size;
    bool checked = false;
    if (!r->has_crc[number] && !check_storage(s, &storage, &checked, err)) return false;
    if (plain ? !cf_span_part(&storage, v->offset, rec->size, span, err)
              : !normalise(r, &storage, v, span, err))
        return false;
    if (!checked || rec->size > CF_SMALL_RECORD) return true;
    r->has_crc[number] = true; /* of what is used of it */
    return crc_of(span, &r->crc[number], err);
}

static bool open_item(void *ctx, uint64_t number, int thread, cf_err *err)
{
    cf_records *r = ctx;
    const cf_b_record *rec = &r->block->records[number];
    (void)thread;
    if (rec->place != CF_IN_ITEM || !is_wanted(r, number)) return true;
    if (cf_stopped(r->x, err)) return false;
    cf_arena tree, keep;
    cf_arena_init(&tree, (64u << 20));
    cf_arena_init(&keep, (64u << 20));
    const bool ok = locate_item(r, number, &tree, &keep, err);
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    if (ok) return true;
    /* what is inside the container, then what the item is of, then where it lies */
    cf_text member = {0};
    cf_text_printf(&member, "%s%s%s", cf_block_text(r->block, rec->name),
                   err->member[0] ? ": " : "", err->member);
    err->member[0] = '\0';
    cf_err_add_member(err, member.at);
    cf_text_free(&member);
    if (err->offset < 0) err->offset = (int64_t)rec->offset;
    cf_err_in_file(err, path_of(r, rec));
    return cf_damage_take(r->x->damage, r->block, number, err);
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static bool locate(cf_records *r, cf_err *err)
{
    const cf_block *b = r->block;
    for (uint64_t i = 0; i < b->n_records; i++) {
        const cf_b_record *rec = &b->records[i];
        cf_span *span = &r->bytes.records[i];
        if (!is_wanted(r, i)) continue;
        r->has_crc[i] = rec->has_crc;
        r->crc[i] = rec->crc;
        if (rec->place == CF_IN_MEMORY) {
            *span = cf_span_of_bytes(b->bytes + rec->bytes.at, rec->size);
        } else if (rec->place == CF_IN_FILE) {
            *span = (cf_span){.fd = r->fds[rec->source], .start = rec->offset, .size = rec->size};
        } else if (rec->place == CF_IN_MEMBER) {
            const cf_span archive =
                cf_span_of_file(r->fds[rec->source], b->sources[rec->source].size);
            const char *name = cf_block_text(b, rec->name);
            if (!decode_member(r, &archive, name, rec->size, span, err)) {
                cf_err_in_member(err, name);
                cf_err_in_file(err, path_of(r, rec));
                if (!cf_damage_take(r->x->damage, b, i, err)) return false;
            }
        }
    }
    return cf_pool_run(r->x->threads, b->n_records, open_item, r, err);
}

static int *new_fds(cf_arena *arena, uint64_t count)
{
    int *fds = CF_NEWS(arena, int, count + 1);
    for (uint64_t i = 0; fds && i < count; i++) fds[i] = -1;
    return fds;
}

bool cf_records_open(cf_records *r, const cf_execution *x, cf_sink *sink, const bool *wanted,
                     cf_err *err)
{
    *r = (cf_records){.x = x, .block = x->block, .sink = sink, .scratch = -1, .wanted = wanted};
    cf_arena_init(&r->arena, 0);
    pthread_mutex_init(&r->lock, NULL);
    r->bytes.block = x->block;
    r->bytes.records = CF_NEWS(&r->arena, cf_span, x->block->n_records + 1);
    r->crc = CF_NEWS(&r->arena, uint32_t, x->block->n_records + 1);
    r->has_crc = CF_NEWS(&r->arena, bool, x->block->n_records + 1);
    r->fds = new_fds(&r->arena, x->block->n_sources);
    r->bytes.inputs = CF_NEWS(&r->arena, cf_input, x->block->n_sources + 1);
    for (uint64_t i = 0; r->bytes.inputs && i < x->block->n_sources; i++)
        r->bytes.inputs[i] = (cf_input){.fd = -1, .direct = -1};
    return cf_arena_ok(&r->arena, err) && open_sources(r, err) && locate(r, err);
}

void cf_records_close(cf_records *r)
{
    for (uint64_t i = 0; r->bytes.inputs && i < r->block->n_sources; i++)
        cf_input_close(&r->bytes.inputs[i]);
    for (uint64_t i = 0; r->fds && i < r->block->n_sources; i++)
        if (r->fds[i] >= 0) close(r->fds[i]);
    if (r->scratch >= 0) close(r->scratch);
    pthread_mutex_destroy(&r->lock);
    cf_arena_free(&r->arena);
}
