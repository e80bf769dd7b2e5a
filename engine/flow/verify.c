/* The executor's half of verify. Jobs are windows of records and whole items; the CRC-32 of a
 * record's windows are joined when all are read. Files are opened when a job needs them, one a
 * thread, so that any number of them can be verified. */
#include "verify.h"

#include <libdeflate.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "gather.h"
#include "item.h"
#include "num.h"
#include "pool.h"
#include "records.h"
#include "replicas.h"
#include "zipfile.h"

enum { WINDOW = 8 << 20, SLICE = 64 << 20, CONTAINER = 1 << 20 };

typedef enum state { UNKNOWN, GOOD, BAD } state;

typedef struct job {
    uint64_t unit, record, at, size; /* a stretch of a record; of items, nothing but the unit */
} job;

typedef struct worker {
    uint8_t *buffer; /* a tile */
    int fd;          /* of the source it is at, or -1 */
    uint64_t source;
    int scratch; /* for items packed with zstd; -1 until needed */
    cf_stretches checked;
    uint64_t read;
    cf_gather gather;
} worker;

typedef struct verifying {
    const cf_execution *x;
    const cf_block *block;
    cf_verdict *verdict;
    cf_arena arena;
    cf_look look;
    const cf_sample *sample;
    job *jobs;
    size_t n_jobs, cap_jobs;
    _Atomic uint8_t *state; /* of records */
    bool *chosen;           /* records that are read */
    worker *workers;
    cf_records records; /* of comparisons */
    uint64_t *compares; /* numbers of those that are carried out */
    size_t n_compares;
} verifying;

/* ---- what is looked at -------------------------------------------------------------------------
 */

/* FNV-1a, with murmur's finish: the same everywhere. */
static double hashed(const char *text, uint64_t number)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    for (int i = 0; i < 8; i++) h = (h ^ (number >> 8 * i & 0xff)) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return ldexp((double)((h ^ h >> 33) >> 11), -53);
}

static bool is_chosen(const verifying *v, const char *text, uint64_t number)
{
    if (v->look == CF_LOOK_QUICK) return false;
    if (v->look == CF_LOOK_FULL) return true;
    const double at = hashed(text, number);
    return at >= v->sample->from && at < v->sample->to;
}

static bool add_job(verifying *v, const job *j, cf_err *err)
{
    job *place = CF_PUSH(&v->arena, v->jobs, v->n_jobs, v->cap_jobs);
    if (!place) return cf_arena_ok(&v->arena, err);
    *place = *j;
    return true;
}

static const char *path_of(const verifying *v, uint64_t source)
{
    return cf_block_text(v->block, v->block->sources[source].path);
}

static bool list_jobs(verifying *v, cf_err *err)
{
    const cf_block *b = v->block;
    for (uint64_t i = 0; i < b->n_units; i++) {
        const cf_b_unit *u = &b->units[i];
        const char *path = path_of(v, u->source);
        if (u->kind != CF_UNIT_RECORDS) {
            if (!is_chosen(v, path, u->offset)) continue;
            if (u->records) v->chosen[u->record] = true;
            if (!add_job(v, &(job){.unit = i, .size = u->size}, err)) return false;
            continue;
        }
        for (uint64_t k = u->record; k < u->record + u->records; k++) {
            const cf_b_record *r = &b->records[k];
            if (!is_chosen(v, path, r->offset)) continue;
            v->chosen[k] = true;
            const uint64_t step = r->place == CF_IN_FILE ? WINDOW : UINT64_MAX;
            for (uint64_t at = 0; at < r->size || !at;) {
                const uint64_t n = step < r->size - at ? step : r->size - at;
                if (!add_job(v, &(job){i, k, at, n}, err)) return false;
                at += n;
                if (!n) break;
            }
        }
    }
    return true;
}

/* ---- files -------------------------------------------------------------------------------------
 */

/* Closes what the worker has open; E_IO if it was written to meanwhile. */
static bool leave(const verifying *v, worker *w, cf_err *err)
{
    if (w->fd < 0) return true;
    const cf_b_source *s = &v->block->sources[w->source];
    struct stat st;
    const bool same = fstat(w->fd, &st) == 0 && (uint64_t)st.st_size == s->size &&
                      (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == s->mtime_ns;
    close(w->fd);
    w->fd = -1;
    if (same) return true;
    cf_fail(err, CF_E_IO, "the file changed while it was read");
    return cf_err_in_file(err, path_of(v, w->source));
}

static bool enter(const verifying *v, worker *w, uint64_t source, cf_err *err)
{
    if (w->fd >= 0 && w->source == source) return true;
    if (!leave(v, w, err)) return false;
    w->source = source;
    return cf_source_reopen(v->x, source, &w->fd, err);
}

static bool read_crc(verifying *v, worker *w, const cf_span *span, uint64_t at, uint64_t size,
                     uint32_t *crc, cf_err *err)
{
    *crc = 0;
    for (uint64_t done = 0; done < size;) {
        const uint64_t tile = v->x->means->tile, n = size - done < tile ? size - done : tile;
        if (cf_stopped(v->x, err) || !cf_span_read(span, at + done, w->buffer, n, err))
            return false;
        *crc = libdeflate_crc32(*crc, w->buffer, n);
        done += n;
        w->read += n;
        if (v->x->progress) atomic_fetch_add(&v->x->progress->done, n);
    }
    return true;
}

static void cover(verifying *v, uint64_t source, uint64_t bytes)
{
    __atomic_fetch_add(&v->verdict->covered[source], bytes, __ATOMIC_RELAXED);
}

typedef struct dropping {
    verifying *v;
    worker *w;
} dropping;

static bool drop(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    const dropping *d = ctx;
    (void)bytes;
    d->w->read += size;
    return !cf_stopped(d->v->x, err);
}

/* ---- records -----------------------------------------------------------------------------------
 */

static bool check_record(verifying *v, worker *w, const job *j, cf_err *err)
{
    const cf_b_record *r = &v->block->records[j->record];
    const char *name = cf_block_text(v->block, r->name);
    const cf_span file = cf_span_of_file(w->fd, v->block->sources[r->source].size);
    if (r->place == CF_IN_FILE) {
        uint32_t crc;
        if (!read_crc(v, w, &file, r->offset + j->at, j->size, &crc, err))
            return cf_err_in_member(err, name);
        return cf_stretch_add(&w->checked, j->record, j->at, j->size, crc, err);
    }
    if (!cf_zip_decode(&file, name, r->size, drop, &(dropping){v, w}, err))
        return cf_err_in_member(err, name);
    /* what was unpacked is covered, not the bytes it was unpacked from: some bits mean nothing */
    if (r->has_crc) atomic_store(&v->state[j->record], GOOD);
    return true;
}

/* ---- items -------------------------------------------------------------------------------------
 */

typedef struct writing {
    int fd;
    uint64_t at, most;
} writing;

static bool keep(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    writing *to = ctx;
    if (size > to->most - to->at)
        return cf_fail(err, CF_E_STORAGE_SIZE, "unpacks to more than was said");
    if (!cf_write_all(to->fd, bytes, size, to->at, err)) return false;
    to->at += size;
    return true;
}

/* An item packed with zstd becomes a file of its own. */
static bool unpack(worker *w, const cf_b_unit *u, uint64_t most, cf_span *file, cf_err *err)
{
    cf_span slice;
    if (w->scratch < 0 && !cf_temporary(&w->scratch, err)) return false;
    writing to = {.fd = w->scratch, .most = most};
    if (!cf_span_part(file, u->offset, u->size, &slice, err) ||
        !cf_item_unpack(&slice, most, keep, &to, err))
        return false;
    *file = cf_span_of_file(w->scratch, to.at);
    return true;
}

/* Every member of an archive. */
static bool check_archive(verifying *v, worker *w, const cf_span *span, cf_arena *arena,
                          uint64_t *covered, cf_err *err)
{
    cf_zip zip;
    if (!cf_zip_open(&zip, span, arena, err)) return false;
    for (size_t i = 0; i < zip.count; i++) {
        const cf_zip_entry *e = &zip.entries[i];
        const bool has_crc = e->crc || !e->size;
        uint64_t at;
        uint32_t crc;
        if (!cf_zip_payload(&zip, e, &at, err)) return false;
        if (e->method != CF_ZIP_STORED) {
            if (!cf_zip_decode(span, e->name, e->size, drop, &(dropping){v, w}, err))
                return cf_err_in_member(err, e->name);
        } else if (!read_crc(v, w, span, at, e->size, &crc, err)) {
            return cf_err_in_member(err, e->name);
        } else if (has_crc && crc != e->crc) {
            cf_fail_at(err, CF_E_ZIP_CRC, (int64_t)(span->start + at),
                       "CRC-32 of %llu bytes is %08x, the archive says %08x",
                       (unsigned long long)e->size, crc, e->crc);
            return cf_err_in_member(err, e->name);
        }
        if (has_crc && e->method == CF_ZIP_STORED) *covered += e->size;
    }
    return true;
}

static bool open_item(verifying *v, worker *w, const cf_b_unit *u, cf_arena *tree, cf_arena *keep,
                      cf_err *err)
{
    const cf_block *b = v->block;
    const cf_b_record *r = u->records ? &b->records[u->record] : NULL;
    cf_span file = cf_span_of_file(w->fd, b->sources[u->source].size), slice;
    uint64_t at = u->offset, size = u->size, covered = 0;
    uint8_t head[4] = {0};
    if (u->packed) {
        if (!unpack(w, u, r ? r->size + CONTAINER : SLICE, &file, err)) return false;
        at = 0;
        size = file.size;
    }
    if (!cf_span_part(&file, at, size, &slice, err)) return false;
    const bool archive =
        size >= 4 && cf_span_read(&slice, 0, head, 4, err) && memcmp(head, "PK", 2) == 0;
    if (archive && !check_archive(v, w, &slice, tree, &covered, err)) return false;
    cf_reading reading = {.tree = tree, .keep = keep};
    if (!r) {
        cf_node *root;
        if (!cf_item_value(&file, at, size, &reading, &root, err)) return false;
    } else {
        const cf_claim claim = {.dtype = (cf_dtype)r->dtype,
                                .ndim = r->ndim,
                                .shape = b->numbers + r->dims,
                                .name = cf_block_text(b, r->name)};
        const cf_view *view;
        if (!cf_item_tensor(&file, at, size, &claim, &reading, &view, err)) return false;
        const cf_storage *s = view->storage;
        if (view->numel && s->place == CF_NOWHERE)
            return cf_fail(err, CF_E_STORAGE_MISSING, "the item holds no data");
        if (!archive && view->numel && s->place == CF_IN_FILE) { /* that it can be read */
            uint32_t crc;
            if (!read_crc(v, w, &file, s->offset - file.start + view->offset, r->size, &crc, err))
                return false;
        }
        if (archive && s->has_crc) atomic_store(&v->state[u->record], GOOD);
    }
    if (!u->packed) cover(v, u->source, covered);
    return true;
}

static bool check_item(verifying *v, worker *w, const cf_b_unit *u, cf_err *err)
{
    cf_arena tree, keep;
    cf_arena_init(&tree, SLICE);
    cf_arena_init(&keep, SLICE);
    const bool ok = open_item(v, w, u, &tree, &keep, err);
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    if (ok) return true;
    if (u->records) atomic_store(&v->state[u->record], BAD);
    cf_text member = {0};
    const char *name = u->records ? cf_block_text(v->block, v->block->records[u->record].name) : "";
    cf_text_printf(&member, "%s%s%s", name, *name && err->member[0] ? ": " : "", err->member);
    err->member[0] = '\0';
    if (member.at) cf_err_add_member(err, member.at);
    cf_text_free(&member);
    if (err->offset < 0) err->offset = (int64_t)u->offset;
    return false;
}

static bool do_job(void *ctx, uint64_t number, int thread, cf_err *err)
{
    verifying *v = ctx;
    worker *w = &v->workers[thread];
    const job *j = &v->jobs[number];
    const cf_b_unit *u = &v->block->units[j->unit];
    if (cf_stopped(v->x, err)) return false;
    bool ok = enter(v, w, u->source, err);
    if (ok) ok = u->kind == CF_UNIT_RECORDS ? check_record(v, w, j, err) : check_item(v, w, u, err);
    if (ok) return true;
    cf_err_add_file(err, path_of(v, u->source));
    if (u->kind == CF_UNIT_RECORDS) atomic_store(&v->state[j->record], BAD);
    return cf_faults_take(&v->verdict->faults, err);
}

/* ---- what the bytes came to --------------------------------------------------------------------
 */

/* A tensor that lies in the record, for messages; NULL. */
static const char *tensor_in(const cf_block *b, uint64_t record)
{
    for (uint64_t i = 0; i < b->n_subjects; i++)
        for (uint64_t k = b->subjects[i].record; k < b->subjects[i].record + b->subjects[i].records;
             k++)
            if (b->numbers[k] == (int64_t)record) return cf_block_text(b, b->subjects[i].key);
    return NULL;
}

static bool bad_crc(verifying *v, uint64_t number, uint32_t crc, const char *who, cf_err *err)
{
    const cf_b_record *r = &v->block->records[number];
    const char *tensor = tensor_in(v->block, number);
    cf_fail_at(err, CF_E_ZIP_CRC, (int64_t)r->offset,
               "CRC-32 of %llu bytes is %08x, %s says %08x%s%s", (unsigned long long)r->size, crc,
               who, r->crc, tensor ? ": tensor " : "", tensor ? tensor : "");
    if (tensor) {
        const size_t n = strlen(err->message);
        snprintf(err->message + n, sizeof err->message - n, " is damaged");
    }
    cf_err_in_member(err, cf_block_text(v->block, r->name));
    cf_err_in_file(err, path_of(v, r->source));
    atomic_store(&v->state[number], BAD);
    return cf_faults_take(&v->verdict->faults, err);
}

/* The records of one unit, and all of them together where it has a checksum of its own. */
static bool sum_unit(verifying *v, const cf_b_unit *u, const cf_stretches *all, cf_err *err)
{
    const cf_block *b = v->block;
    static const char OURS[] = "the manifest", THEIRS[] = "the archive";
    uint32_t whole = 0;
    bool known = u->has_crc, good = true;
    uint64_t covered = 0;
    for (uint64_t i = u->record; i < u->record + u->records; i++) {
        const cf_b_record *r = &b->records[i];
        uint32_t crc;
        if (r->place != CF_IN_FILE || !v->chosen[i] || !cf_stretches_whole(all, i, r->size, &crc)) {
            known = false;
            good &= atomic_load(&v->state[i]) != BAD;
            continue;
        }
        whole = r->size ? (uint32_t)crc32_combine(whole, crc, (z_off_t)r->size) : whole;
        if (!r->has_crc) continue;
        if (crc == r->crc) {
            atomic_store(&v->state[i], GOOD);
            covered += r->size;
        } else {
            good = false;
            if (!bad_crc(v, i, crc, u->has_crc ? OURS : THEIRS, err)) return false;
        }
    }
    if (known && good && whole != u->crc) {
        cf_fail(err, CF_E_ZIP_CRC, "CRC-32 of all %llu bytes is %08x, the manifest says %08x",
                (unsigned long long)u->size, whole, u->crc);
        cf_err_in_file(err, path_of(v, u->source));
        return cf_faults_take(&v->verdict->faults, err);
    }
    cover(v, u->source, known ? u->size : covered);
    return true;
}

static bool sum_units(verifying *v, cf_err *err)
{
    cf_stretches *all = &v->workers[0].checked;
    for (int i = 1; i < v->x->threads; i++) {
        const cf_stretches *more = &v->workers[i].checked;
        for (size_t k = 0; k < more->count; k++) {
            const cf_stretch *s = &more->items[k];
            if (!cf_stretch_add(all, s->number, s->at, s->size, s->crc, err)) return false;
        }
    }
    cf_stretches_sort(all);
    for (uint64_t i = 0; i < v->block->n_units; i++)
        if (v->block->units[i].kind == CF_UNIT_RECORDS &&
            !sum_unit(v, &v->block->units[i], all, err))
            return false;
    return true;
}

/* ---- replicas ----------------------------------------------------------------------------------
 */

typedef struct place {
    uint64_t source, offset;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Chooses comparisons; those of bytes that are known to be damaged are left out: that is told. */
static bool choose_compares(verifying *v, bool *wanted, cf_err *err)
{
    const cf_block *b = v->block;
    place *bad = NULL;
    size_t n = 0, cap = 0;
    for (uint64_t i = 0; i < b->n_records; i++) {
        if (atomic_load(&v->state[i]) != BAD) continue;
        place *p = CF_PUSH(&v->arena, bad, n, cap);
        if (p) *p = (place){b->records[i].source, b->records[i].offset};
    }
    v->compares = CF_NEWS(&v->arena, uint64_t, b->n_compares + 1);
    if (!cf_arena_ok(&v->arena, err)) return false;
    if (n) qsort(bad, n, sizeof *bad, by_place);
    for (uint64_t i = 0; i < b->n_compares; i++) {
        const cf_b_compare *c = &b->compares[i];
        const uint32_t two[] = {b->moves[c->left].record, b->moves[c->right].record};
        bool ok = is_chosen(v, cf_block_text(b, c->key), i);
        for (int k = 0; k < 2 && n; k++)
            ok &= !bsearch(&(place){b->records[two[k]].source, b->records[two[k]].offset}, bad, n,
                           sizeof *bad, by_place);
        if (!ok) continue;
        v->compares[v->n_compares++] = i;
        wanted[two[0]] = wanted[two[1]] = true;
    }
    return true;
}

static void mark(verifying *v, const char *key)
{
    for (uint64_t i = 0; i < v->block->n_subjects; i++)
        if (strcmp(cf_block_text(v->block, v->block->subjects[i].key), key) == 0)
            v->verdict->subject[i] = CF_DAMAGED;
}

static bool compare_one(void *ctx, uint64_t number, int thread, cf_err *err)
{
    verifying *v = ctx;
    worker *w = &v->workers[thread];
    const cf_b_compare *c = &v->block->compares[v->compares[number]];
    if (cf_stopped(v->x, err)) return false;
    if (cf_replica_compare(v->block, c, &w->gather, w->buffer, err)) return true;
    if (!cf_faults_take(&v->verdict->faults, err)) return false;
    mark(v, cf_block_text(v->block, c->key)); /* all write the same */
    return true;
}

static bool compare_all(verifying *v, cf_err *err)
{
    bool *wanted = CF_NEWS(&v->arena, bool, v->block->n_records + 1);
    if (!wanted) return cf_arena_ok(&v->arena, err);
    if (!choose_compares(v, wanted, err)) return false;
    if (!v->n_compares) return true;
    bool ok = cf_records_open(&v->records, v->x, NULL, wanted, err);
    for (int i = 0; ok && i < v->x->threads; i++)
        ok = cf_gather_start(&v->workers[i].gather, &v->records.bytes, v->x->means, err);
    ok = ok && cf_pool_run(v->x->threads, v->n_compares, compare_one, v, err) &&
         cf_records_unchanged(&v->records, err);
    for (int i = 0; i < v->x->threads; i++) {
        v->workers[i].read += v->workers[i].gather.read;
        cf_gather_end(&v->workers[i].gather);
    }
    cf_records_close(&v->records);
    return ok || cf_faults_take(&v->verdict->faults, err);
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static void judge(verifying *v)
{
    const cf_block *b = v->block;
    cf_verdict *to = v->verdict;
    for (uint64_t i = 0; i < b->n_subjects; i++) {
        const cf_b_subject *s = &b->subjects[i];
        bool good = true, bad = s->broken || to->subject[i] == CF_DAMAGED;
        for (uint64_t k = s->record; k < s->record + s->records; k++) {
            const state st =
                b->numbers[k] == CF_B_NONE ? UNKNOWN : (state)atomic_load(&v->state[b->numbers[k]]);
            good &= st == GOOD;
            bad |= st == BAD;
        }
        const bool compared = s->compared && v->look == CF_LOOK_FULL;
        to->subject[i] = (uint8_t)(bad        ? CF_DAMAGED
                                   : good     ? (int)CF_CRC_VERIFIED
                                   : compared ? (int)CF_REPLICA_COMPARED
                                              : (int)CF_UNVERIFIED);
        to->n_subjects[to->subject[i]]++;
    }
    for (uint64_t i = 0; i < b->n_sources; i++) {
        if (to->covered[i] > b->sources[i].size) to->covered[i] = b->sources[i].size;
        to->bytes += b->sources[i].size;
        to->all_covered += to->covered[i];
    }
    for (int i = 0; i < v->x->threads; i++) to->read += v->workers[i].read;
}

static void take_planned(const cf_block *b, cf_faults *faults)
{
    for (uint64_t i = 0; i < b->n_faults; i++) {
        const cf_b_fault *f = &b->faults[i];
        const cf_fault fault = {.code = (cf_code)f->code,
                                .offset = f->offset,
                                .file = cf_block_text(b, f->file),
                                .member = cf_block_text(b, f->member),
                                .message = cf_block_text(b, f->message),
                                .hint = cf_block_text(b, f->hint)};
        cf_err err = {0};
        cf_fault_error(&fault, &err);
        cf_faults_take(faults, &err);
    }
}

static bool carry_out(verifying *v, cf_err *err)
{
    const cf_block *b = v->block;
    const int threads = v->x->threads;
    v->state = CF_NEWS(&v->arena, _Atomic uint8_t, b->n_records + 1);
    v->chosen = CF_NEWS(&v->arena, bool, b->n_records + 1);
    v->verdict->subject = CF_NEWS(&v->verdict->arena, uint8_t, b->n_subjects + 1);
    v->verdict->covered = CF_NEWS(&v->verdict->arena, uint64_t, b->n_sources + 1);
    if (!cf_arena_ok(&v->arena, err) || !cf_arena_ok(&v->verdict->arena, err)) return false;
    for (int i = 0; i < threads; i++)
        if (!(v->workers[i].buffer = malloc(v->x->means->tile)))
            return cf_fail(err, CF_E_MEMORY, "out of memory");
    if (!list_jobs(v, err) || !cf_pool_run(threads, v->n_jobs, do_job, v, err)) return false;
    for (int i = 0; i < threads; i++)
        if (!leave(v, &v->workers[i], err)) return false;
    return sum_units(v, err) && compare_all(v, err);
}

bool cf_verify(const cf_execution *x, cf_look look, const cf_sample *sample, cf_verdict *verdict,
               cf_err *err)
{
    verifying v = {.x = x, .block = x->block, .verdict = verdict, .look = look, .sample = sample};
    *verdict = (cf_verdict){0};
    cf_arena_init(&verdict->arena, 0);
    cf_faults_init(&verdict->faults);
    cf_arena_init(&v.arena, 0);
    v.workers = CF_NEWS(&v.arena, worker, (size_t)x->threads);
    for (int i = 0; v.workers && i < x->threads; i++) v.workers[i].fd = v.workers[i].scratch = -1;
    take_planned(x->block, &verdict->faults);
    const bool ok = cf_arena_ok(&v.arena, err) && carry_out(&v, err);
    if (ok) judge(&v);
    for (int i = 0; v.workers && i < x->threads; i++) {
        worker *w = &v.workers[i];
        if (w->fd >= 0) close(w->fd);
        if (w->scratch >= 0) close(w->scratch);
        free(w->buffer);
        free(w->checked.items);
    }
    cf_arena_free(&v.arena);
    cf_faults_sort(&verdict->faults);
    return ok;
}

void cf_verdict_free(cf_verdict *verdict)
{
    cf_faults_free(&verdict->faults);
    cf_arena_free(&verdict->arena);
}
