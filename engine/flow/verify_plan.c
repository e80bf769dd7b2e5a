/* The planner's half of verify: units, subjects, replicas. The trees of the files are gone; zip
 * directories are read again, because a catalogue knows only the members that tensors lie in. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "item.h"
#include "laying.h"
#include "manifest_read.h"
#include "verify.h"

enum { SLICE = 64 << 20 }; /* bytes that the directory or the pickle of an item may take */

/* A run of a file that one record is about. */
typedef struct run {
    uint64_t begin, end;
    uint32_t record;
} run;

typedef struct runs {
    run *list; /* by begin */
    size_t count, cap;
    bool items; /* of such a file, items are the units */
} runs;

typedef struct item_place {
    const cf_storage *storage;
    uint32_t file;
} item_place;

typedef struct auditing {
    cf_source *source;
    cf_catalogue *cat;
    cf_plan plan;
    cf_layout layout;
    cf_arena arena;
    runs *files;      /* by file of the listing */
    cf_map items;     /* file and offset -> number + 1 of its record */
    item_place *last; /* of each file with items, the last one */
    const cf_manifest *manifest;
    bool quick;
} auditing;

static cf_blocker *blocker(const auditing *a)
{
    return a->layout.b;
}

static bool taken(const auditing *a, const cf_err *err)
{
    return cf_faults_take(a->source->faults, err);
}

bool cf_manifest_check(cf_source *source, cf_err *err)
{
    cf_arena arena;
    const cf_manifest *m;
    cf_arena_init(&arena, 0);
    bool ok = cf_manifest_read(source, &arena, &m, err);
    for (size_t i = 0; ok && m && i < m->count; i++) {
        const cf_manifest_file *f = &m->files[i];
        uint32_t file;
        cf_err fault;
        if (!cf_dir_find(&source->dir, f->path, &file)) {
            cf_fail(&fault, CF_E_MISSING_FILE, "it is missing, " CF_MANIFEST " lists it");
        } else {
            const uint64_t size = source->dir.files[file].size;
            if (size == f->size) continue;
            cf_fail_at(&fault, size < f->size ? CF_E_TRUNCATED : CF_E_TRAILING,
                       (int64_t)(size < f->size ? size : f->size),
                       "%llu bytes, " CF_MANIFEST " says %llu", (unsigned long long)size,
                       (unsigned long long)f->size);
        }
        cf_err_in_file(&fault, f->path);
        ok = cf_faults_take(source->faults, &fault);
    }
    cf_arena_free(&arena);
    return ok;
}

/* ---- records -----------------------------------------------------------------------------------
 */

static uint64_t n_records(const auditing *a)
{
    return blocker(a)->sections[CF_B_RECORDS].size / sizeof(cf_b_record);
}

static bool add_record(auditing *a, uint32_t file, const cf_b_record *r, uint64_t held, cf_err *err)
{
    runs *of = &a->files[file];
    run *place = CF_PUSH(&a->arena, of->list, of->count, of->cap);
    if (!place) return cf_arena_ok(&a->arena, err);
    *place = (run){r->offset, r->offset + held, (uint32_t)n_records(a)};
    cf_blocker_add(blocker(a), CF_B_RECORDS, r, sizeof *r);
    return true;
}

static void add_unit(auditing *a, const cf_b_unit *u)
{
    cf_blocker_add(blocker(a), CF_B_UNITS, u, sizeof *u);
}

static bool add_members(auditing *a, uint32_t file, const cf_zip *zip, cf_err *err)
{
    const uint32_t source = cf_mover_source(&a->layout.mover, file);
    cf_b_unit u = {
        .size = a->source->dir.files[file].size, .record = n_records(a), .source = source};
    for (size_t i = 0; i < zip->count; i++) {
        const cf_zip_entry *e = &zip->entries[i];
        uint64_t at;
        if (!cf_zip_payload(zip, e, &at, err)) {
            cf_err_in_file(err, cf_source_path(a->source, file));
            if (!taken(a, err)) return false;
            continue;
        }
        const bool stored = e->method == CF_ZIP_STORED;
        const cf_b_record r = {.offset = at,
                               .size = e->size,
                               .packed = e->packed,
                               .name = cf_blocker_text(blocker(a), e->name, e->length),
                               .source = source,
                               .crc = e->crc,
                               .method = e->method,
                               .place = stored ? CF_IN_FILE : CF_IN_MEMBER,
                               .has_crc = e->crc || !e->size}; /* else 0 is "not computed" */
        if (!add_record(a, file, &r, stored ? e->size : e->packed, err)) return false;
    }
    u.records = n_records(a) - u.record;
    add_unit(a, &u);
    return true;
}

/* Is it a zip archive? One that is not sound was told when its tree was parsed. */
static bool add_archive(auditing *a, uint32_t file, bool *is, cf_err *err)
{
    int fd;
    uint8_t head[4] = {0};
    cf_zip zip;
    cf_arena arena;
    cf_arena_init(&arena, 0);
    *is = false;
    if (!cf_dir_open(&a->source->dir, file, &fd, err)) return taken(a, err);
    const cf_span span = cf_span_of_file(fd, a->source->dir.files[file].size);
    cf_err other;
    bool ok = true;
    const bool begins =
        span.size >= 4 && cf_span_read(&span, 0, head, 4, &other) && memcmp(head, "PK\3\4", 4) == 0;
    const char *path = cf_source_path(a->source, file);
    const bool named = cf_text_ends(path, ".pt") || cf_text_ends(path, ".pth") ||
                       cf_text_ends(path, ".bin") || cf_text_ends(path, ".ckpt");
    if ((begins || named) && cf_zip_open(&zip, &span, &arena, &other)) {
        *is = true;
        ok = add_members(a, file, &zip, err);
    }
    cf_arena_free(&arena);
    close(fd);
    return ok;
}

/* A file of our own output: its tensors, and what lies between them. */
static bool add_manifest_file(auditing *a, uint32_t file, const cf_manifest_file *m, cf_err *err)
{
    const uint64_t size = a->source->dir.files[file].size;
    if (size != m->size) return true; /* a fault already */
    cf_b_unit u = {.size = size,
                   .record = n_records(a),
                   .source = cf_mover_source(&a->layout.mover, file),
                   .crc = m->crc,
                   .has_crc = 1};
    uint64_t at = 0;
    for (size_t i = 0; i <= m->count; i++) {
        const bool end = i == m->count;
        const uint64_t begin = end ? size : m->tensors[i].offset;
        if (begin > at) {
            const cf_b_record gap = {
                .offset = at, .size = begin - at, .source = u.source, .place = CF_IN_FILE};
            if (!add_record(a, file, &gap, gap.size, err)) return false;
        }
        if (end || !m->tensors[i].size) continue;
        const cf_manifest_tensor *t = &m->tensors[i];
        const cf_b_record r = {.offset = begin,
                               .size = t->size,
                               .name = cf_blocker_text(blocker(a), t->name, strlen(t->name)),
                               .source = u.source,
                               .crc = t->crc,
                               .place = CF_IN_FILE,
                               .has_crc = 1};
        if (!add_record(a, file, &r, r.size, err)) return false;
        at = begin + t->size;
    }
    u.records = n_records(a) - u.record;
    add_unit(a, &u);
    return true;
}

static bool add_plain(auditing *a, uint32_t file, cf_err *err)
{
    const uint64_t size = a->source->dir.files[file].size;
    const uint32_t source = cf_mover_source(&a->layout.mover, file);
    const cf_b_record r = {.size = size, .source = source, .place = CF_IN_FILE};
    const cf_b_unit u = {.size = size, .record = n_records(a), .records = 1, .source = source};
    add_unit(a, &u);
    return add_record(a, file, &r, size, err);
}

static bool add_file(auditing *a, uint32_t file, cf_err *err)
{
    const cf_manifest_file *m = cf_manifest_find(a->manifest, cf_source_path(a->source, file));
    bool archive;
    if (m) return add_manifest_file(a, file, m, err);
    if (!add_archive(a, file, &archive, err)) return false;
    return archive || add_plain(a, file, err);
}

/* ---- items -------------------------------------------------------------------------------------
 */

static bool add_item(auditing *a, const cf_storage *s, cf_err *err)
{
    const struct {
        uint64_t file, offset;
    } place = {s->file, s->offset}, *key = cf_memdup(&a->arena, &place, sizeof place);
    bool fresh;
    uint64_t *number = key ? cf_map_put(&a->items, key, sizeof *key, &fresh) : NULL;
    if (!number) return cf_arena_ok(&a->arena, err);
    const uint64_t size = a->source->dir.files[s->file].size;
    const bool inside = s->offset <= size && s->packed <= size - s->offset;
    if (!fresh || !inside) return true; /* outside is one without elements: that was checked */
    a->files[s->file].items = true;
    item_place *last = &a->last[s->file];
    if (!last->storage || last->storage->offset < s->offset) *last = (item_place){s, s->file};
    const cf_claim *c = s->claim;
    cf_b_unit u = {.offset = s->offset,
                   .size = s->packed,
                   .source = cf_mover_source(&a->layout.mover, s->file),
                   .kind = c->dtype ? CF_UNIT_TENSOR : CF_UNIT_VALUE,
                   .packed = c->zstd};
    if (a->quick) return true;
    if (c->dtype) {
        const cf_b_record r = {.offset = s->offset,
                               .size = s->size,
                               .packed = s->packed,
                               .name = cf_blocker_text(blocker(a), c->name, strlen(c->name)),
                               .dims = blocker(a)->sections[CF_B_NUMBERS].size / sizeof(int64_t),
                               .source = u.source,
                               .method = c->zstd,
                               .place = CF_IN_ITEM,
                               .dtype = (uint8_t)c->dtype,
                               .ndim = c->ndim};
        cf_blocker_add(blocker(a), CF_B_NUMBERS, c->shape, c->ndim * sizeof *c->shape);
        u.record = n_records(a);
        u.records = 1;
        *number = u.record + 1;
        cf_blocker_add(blocker(a), CF_B_RECORDS, &r, sizeof r);
    }
    add_unit(a, &u);
    return true;
}

static bool add_items(auditing *a, cf_err *err)
{
    for (size_t i = 0; a->cat && i < a->cat->count; i++) {
        const cf_row *row = a->cat->rows[i];
        for (size_t k = 0; !row->alias && k < row->n_pieces; k++) {
            const cf_storage *s = row->pieces[k].view->storage;
            if (s->place == CF_IN_ITEM && !add_item(a, s, err)) return false;
        }
        for (size_t k = 0; k < row->n_values; k++) {
            const cf_node *node = row->values[k].node;
            if (node && cf_node_is_item(node) && !add_item(a, node->storage, err)) return false;
        }
    }
    return true;
}

/* A file that grew to its size and was never filled ends in zeros: its last item tells. */
static bool open_last(auditing *a, const item_place *last, cf_err *err)
{
    const cf_storage *s = last->storage;
    int fd;
    if (s->claim->zstd) return true;
    if (!cf_dir_open(&a->source->dir, last->file, &fd, err)) return taken(a, err);
    const cf_span span = cf_span_of_file(fd, a->source->dir.files[last->file].size);
    cf_arena tree, keep;
    cf_arena_init(&tree, SLICE);
    cf_arena_init(&keep, SLICE);
    cf_reading r = {.tree = &tree, .keep = &keep, .file = last->file};
    const cf_view *view;
    cf_node *root;
    const bool ok = s->claim->dtype
                        ? cf_item_tensor(&span, s->offset, s->packed, s->claim, &r, &view, err)
                        : cf_item_value(&span, s->offset, s->packed, &r, &root, err);
    cf_arena_free(&tree);
    cf_arena_free(&keep);
    close(fd);
    if (ok) return true;
    if (*s->claim->name) cf_err_add_member(err, s->claim->name);
    cf_err_add_file(err, cf_source_path(a->source, last->file));
    if (err->offset < 0) err->offset = (int64_t)s->offset;
    return taken(a, err);
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

static int by_begin(const void *a, const void *b)
{
    const run *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void add_number(auditing *a, cf_b_subject *s, int64_t number)
{
    cf_blocker_add(blocker(a), CF_B_NUMBERS, &number, sizeof number);
    s->records++;
}

/* The records that a view's bytes lie in. */
static bool add_runs(auditing *a, cf_b_subject *s, const cf_view *v)
{
    const cf_storage *st = v->storage;
    if (st->place == CF_IN_MEMORY && st->has_crc)
        return true; /* held against it, with its pickle */
    if (st->place == CF_IN_ITEM) {
        const struct {
            uint64_t file, offset;
        } key = {st->file, st->offset};
        uint64_t number = 0;
        cf_map_get(&a->items, &key, sizeof key, &number);
        add_number(a, s, number ? (int64_t)number - 1 : CF_B_NONE);
        return true;
    }
    if (st->place != CF_IN_FILE && st->place != CF_IN_MEMBER) {
        add_number(a, s, CF_B_NONE);
        return true;
    }
    uint64_t from = st->offset, to = st->offset + 1;
    if (st->place == CF_IN_FILE) {
        uint64_t extent = 1;
        for (int d = 0; d < v->ndim; d++) extent += (uint64_t)((v->shape[d] - 1) * v->stride[d]);
        from += v->offset;
        to = from + extent * (uint64_t)cf_dtype_size(v->stored);
    }
    const runs *of = &a->files[st->file];
    size_t low = 0, high = of->count;
    while (low < high) { /* the first that ends behind `from` */
        const size_t mid = low + (high - low) / 2;
        if (of->list[mid].end <= from)
            low = mid + 1;
        else
            high = mid;
    }
    uint64_t reached = from;
    for (; low < of->count && of->list[low].begin < to; low++) {
        if (of->list[low].begin > reached) add_number(a, s, CF_B_NONE);
        add_number(a, s, of->list[low].record);
        reached = of->list[low].end;
    }
    if (reached < to) add_number(a, s, CF_B_NONE);
    return true;
}

static bool add_subject(auditing *a, cf_row *row, cf_err *err)
{
    bool compared = false;
    cf_row *of = row->alias ? row->alias : row;
    if (!of->broken && !row->alias && !cf_lay_replicas(&a->layout, row, &compared, err)) {
        if (!taken(a, err)) return false;
        row->broken = true;
    }
    cf_b_subject s = {.key = cf_blocker_text(blocker(a), row->key, strlen(row->key)),
                      .record = blocker(a)->sections[CF_B_NUMBERS].size / sizeof(int64_t),
                      .broken = of->broken || row->broken};
    if (compared && !a->quick) s.compared = 1;
    for (size_t i = 0; !a->quick && i < of->n_pieces; i++)
        if (of->pieces[i].view->numel && !add_runs(a, &s, of->pieces[i].view)) return false;
    if (a->quick || !of->numel) add_number(a, &s, CF_B_NONE);
    cf_blocker_add(blocker(a), CF_B_SUBJECTS, &s, sizeof s);
    return true;
}

/* Without a catalogue, the manifest names the tensors. */
static bool add_manifest_subjects(auditing *a, cf_err *err)
{
    for (size_t i = 0; a->manifest && i < a->manifest->count; i++) {
        const cf_manifest_file *f = &a->manifest->files[i];
        uint32_t file;
        const bool there = cf_dir_find(&a->source->dir, f->path, &file) &&
                           a->source->dir.files[file].size == f->size;
        const run *r = there ? a->files[file].list : NULL;
        for (size_t k = 0; k < f->count; k++) {
            const cf_manifest_tensor *t = &f->tensors[k];
            cf_b_subject s = {.key = cf_blocker_text(blocker(a), t->name, strlen(t->name)),
                              .record = blocker(a)->sections[CF_B_NUMBERS].size / sizeof(int64_t),
                              .broken = !there};
            const run *end = there ? a->files[file].list + a->files[file].count : NULL;
            while (there && r < end && r->begin < t->offset) r++;
            const bool found = there && !a->quick && t->size && r < end && r->begin == t->offset;
            add_number(a, &s, found ? (int64_t)r->record : CF_B_NONE);
            cf_blocker_add(blocker(a), CF_B_SUBJECTS, &s, sizeof s);
        }
    }
    return cf_arena_ok(&a->arena, err);
}

/* ---- what nothing refers to --------------------------------------------------------------------
 */

static const char *suffix(const char *path)
{
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    return dot && (!slash || dot > slash + 1) ? dot : NULL;
}

/* Files of the kind of those that are used, which nothing refers to: left over from another save,
 * perhaps. No fault. */
static void note_unused(auditing *a, const bool *used)
{
    const cf_dir *dir = &a->source->dir;
    cf_text names = {0};
    size_t n = 0;
    for (uint32_t i = 0; i < dir->count; i++) {
        const char *kind = suffix(dir->files[i].path);
        bool like = a->manifest && strcmp(dir->files[i].path, CF_MANIFEST) != 0;
        for (uint32_t k = 0; kind && !used[i] && !like && k < dir->count; k++) {
            const char *other = used[k] ? suffix(dir->files[k].path) : NULL;
            like = other && strcmp(other, kind) == 0;
        }
        if (used[i] || !like) continue;
        if (n++ < 8) cf_text_printf(&names, "%s%s", n > 1 ? ", " : "", dir->files[i].path);
    }
    if (n)
        cf_source_note(a->source, "%zu file%s that nothing refers to: %s%s", n, n > 1 ? "s" : "",
                       names.at, n > 8 ? ", ..." : "");
    cf_text_free(&names);
}

static bool has_fault(const auditing *a, uint32_t file)
{
    const cf_faults *f = a->source->faults;
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->list[i].file, cf_source_path(a->source, file)) == 0) return true;
    return false;
}

static bool plan(auditing *a, cf_err *err)
{
    const cf_dir *dir = &a->source->dir;
    bool *used = CF_NEWS(&a->arena, bool, dir->count + 1u);
    a->files = CF_NEWS(&a->arena, runs, dir->count + 1u);
    a->last = CF_NEWS(&a->arena, item_place, dir->count + 1u);
    cf_map_init(&a->items, &a->arena);
    if (!cf_arena_ok(&a->arena, err) || !cf_manifest_read(a->source, &a->arena, &a->manifest, err))
        return false;
    if (!add_items(a, err)) return false;
    for (uint32_t i = 0; i < dir->count; i++) {
        const cf_tree *tree = &a->source->trees[i];
        used[i] = tree->generation || tree->failed || a->files[i].items ||
                  (a->cat && a->cat->was_read && a->cat->was_read[i]) ||
                  cf_manifest_find(a->manifest, dir->files[i].path) || has_fault(a, i);
        if (!used[i]) continue;
        if (a->quick) {
            cf_mover_source(&a->layout.mover, i); /* it counts */
            if (a->last[i].storage && !open_last(a, &a->last[i], err)) return false;
            continue;
        }
        if (!a->files[i].items && !add_file(a, i, err)) return false;
        if (a->files[i].count) qsort(a->files[i].list, a->files[i].count, sizeof(run), by_begin);
    }
    note_unused(a, used);
    for (size_t i = 0; a->cat && i < a->cat->count; i++)
        if (a->cat->rows[i]->dtype != CF_NO_DTYPE && !add_subject(a, a->cat->rows[i], err))
            return false;
    return (a->cat || add_manifest_subjects(a, err)) && cf_arena_ok(&a->arena, err);
}

static cf_ref text_of(cf_blocker *b, const char *text)
{
    return cf_blocker_text(b, text, strlen(text));
}

bool cf_verify_plan(cf_source *source, cf_catalogue *cat, cf_replicas replicas, bool quick,
                    cf_blocker *b, cf_err *err)
{
    cf_catalogue none = {.source = source};
    auditing a = {.source = source, .cat = cat, .quick = quick};
    cf_arena_init(&a.arena, 0);
    cf_plan_init(&a.plan, cat ? cat : &none);
    a.plan.replicas = replicas;
    a.layout = (cf_layout){.plan = &a.plan, .b = b};
    bool ok = cf_mover_init(&a.layout.mover, source, b, err) && plan(&a, err);
    if (quick) cf_text_free(&b->sections[CF_B_COMPARES]);
    cf_faults_sort(source->faults);
    for (size_t i = 0; ok && i < source->faults->count; i++) {
        const cf_fault *f = &source->faults->list[i];
        const cf_b_fault fault = {.file = text_of(b, f->file),
                                  .member = text_of(b, f->member),
                                  .message = text_of(b, f->message),
                                  .hint = text_of(b, f->hint),
                                  .offset = f->offset,
                                  .code = f->code};
        cf_blocker_add(b, CF_B_FAULTS, &fault, sizeof fault);
    }
    cf_mover_free(&a.layout.mover);
    cf_arena_free(&a.arena);
    return ok;
}
