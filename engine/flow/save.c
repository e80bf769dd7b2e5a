#include "save.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cover.h"
#include "span.h"

enum { MOST_RUNS = 16, MOST_GROUPS = 6, MOST_NAMES = 8 };

/* ---- ranks in words ---- */

static int by_rank(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

void cf_ranks_text(cf_text *text, int32_t *ranks, size_t count)
{
    qsort(ranks, count, sizeof *ranks, by_rank);
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!i || ranks[i] != ranks[n - 1]) ranks[n++] = ranks[i];
    int runs = 0;
    for (size_t i = 0, k; i < n; i = k, runs++) {
        if (runs == MOST_RUNS) {
            cf_text_printf(text, ",... (%zu in all)", n);
            return;
        }
        for (k = i + 1; k < n && ranks[k] == ranks[k - 1] + 1;) k++;
        if (k - i < 3) k = i + 1; /* two in a row are no run */
        cf_text_printf(text, i ? ",%d" : "%d", ranks[i]);
        if (k > i + 1) cf_text_printf(text, "-%d", ranks[k - 1]);
    }
}

typedef struct group {
    uint64_t hash;
    uint32_t number; /* in the order of the first of each */
    int32_t rank;
} group;

static int by_group(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Numbers the groups; how many there are, 0 if memory failed. */
static size_t number_groups(group *list, size_t count, cf_arena *scratch)
{
    cf_map numbers;
    cf_map_init(&numbers, scratch);
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) {
        bool fresh;
        uint64_t *n = cf_map_put(&numbers, &list[i].hash, sizeof list[i].hash, &fresh);
        if (!n) return 0;
        if (fresh) *n = groups++;
        list[i].number = (uint32_t)*n;
    }
    qsort(list, count, sizeof *list, by_group);
    return groups;
}

void cf_groups_text(cf_text *text, const uint64_t *hashes, const int32_t *ranks, size_t count)
{
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    group *list = CF_NEWS(&scratch, group, count + 1);
    int32_t *of = CF_NEWS(&scratch, int32_t, count + 1);
    for (size_t i = 0; list && i < count; i++) list[i] = (group){hashes[i], 0, ranks[i]};
    const size_t groups = list && of ? number_groups(list, count, &scratch) : 0;
    if (groups == count && count > 2) {
        cf_text_printf(text, "each of %zu ranks its own", count);
    } else {
        for (size_t i = 0, k, g = 0; groups && i < count; i = k, g++) {
            if (g == MOST_GROUPS) {
                cf_text_printf(text, " | ... %zu groups", groups);
                break;
            }
            size_t n = 0;
            for (k = i; k < count && list[k].number == list[i].number; k++) of[n++] = list[k].rank;
            if (i) cf_text_str(text, " | ");
            cf_ranks_text(text, of, n);
        }
    }
    cf_arena_free(&scratch);
}

/* ---- what all files share ---- */

static bool says(const cf_said *s, const char *key)
{
    return s->text && (key ? s->key && strcmp(s->key, key) == 0 : !s->key);
}

/* "20 on ranks 0,1,3 (rank0.pt); 10 on rank 2 (rank2.pt)", each with the first file that says so.
 */
static void add_table(const cf_catalogue *cat, const char *key, cf_text *text)
{
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_map firsts;
    cf_map_init(&firsts, &scratch);
    int32_t *ranks = CF_NEWS(&scratch, int32_t, cat->n_said + 1);
    uint32_t *group_of = CF_NEWS(&scratch, uint32_t, cat->n_said + 1);
    uint32_t groups = 0;
    for (size_t i = 0; ranks && group_of && i < cat->n_said; i++) {
        const cf_said *s = &cat->said[i];
        if (!says(s, key)) continue;
        bool fresh;
        uint64_t *n = cf_map_put(&firsts, s->text, strlen(s->text), &fresh);
        if (!n) break;
        if (fresh) *n = groups++;
        group_of[i] = (uint32_t)*n + 1;
    }
    for (uint32_t g = 1; g <= groups && g <= MOST_GROUPS; g++) {
        const cf_said *first = NULL;
        size_t n = 0;
        for (size_t i = 0; i < cat->n_said; i++) {
            if (group_of[i] != g) continue;
            if (!first) first = &cat->said[i];
            ranks[n++] = cat->said[i].rank;
        }
        cf_text_printf(text, "%s%s on %s ", g > 1 ? "; " : "", first->text,
                       n > 1 ? "ranks" : "rank");
        cf_ranks_text(text, ranks, n);
        cf_text_printf(text, " (%s)", cf_source_path(cat->source, first->file));
    }
    if (groups > MOST_GROUPS) cf_text_printf(text, "; ... %u values in all", groups);
    cf_arena_free(&scratch);
}

static bool disagree(const cf_catalogue *cat, const char *key, cf_err *err)
{
    cf_text table = {0};
    add_table(cat, key, &table);
    cf_fail(err, CF_E_META_CONFLICT, "%s: %s", key ? key : "world size",
            table.at ? table.at : "differs");
    cf_text_free(&table);
    return cf_err_hint(err, "the files are not of one save");
}

bool cf_save_same(const cf_catalogue *cat, cf_err *err)
{
    cf_map firsts;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_map_init(&firsts, &scratch);
    bool ok = true;
    for (size_t i = 0; ok && i < cat->n_said; i++) {
        const cf_said *s = &cat->said[i];
        if (!s->text) continue;
        const char *key = s->key ? s->key : "";
        bool fresh;
        uint64_t *n = cf_map_put(&firsts, key, strlen(key), &fresh);
        if (!n)
            ok = cf_arena_ok(&scratch, err);
        else if (fresh)
            *n = i;
        else if (strcmp(cat->said[*n].text, s->text) != 0)
            ok = disagree(cat, s->key, err) || cf_faults_take(cat->source->faults, err);
    }
    cf_arena_free(&scratch);
    return ok;
}

/* ---- which ranks are there ---- */

/* "model.wte.weight (rows 4 to 6)": what of a tensor is in no file that is here. */
static void add_lost(cf_text *text, const cf_row *row, const cf_cover_fault *fault)
{
    cf_text_str(text, row->key);
    if (fault->missing == row->numel)
        cf_text_str(text, " (all of it)");
    else if (fault->dim == 0 && fault->to - fault->from == 1)
        cf_text_printf(text, " (row %lld)", (long long)fault->from);
    else if (fault->dim == 0)
        cf_text_printf(text, " (rows %lld to %lld)", (long long)fault->from,
                       (long long)fault->to - 1);
    else
        cf_text_printf(text, " (%lld elements)", (long long)fault->missing);
}

/* What lives only on ranks that are missing: tensors that the others do not cover. */
static void add_only_there(cf_catalogue *cat, cf_text *text)
{
    enum { NAMED = 3 };
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_text names = {0};
    size_t lost = 0, whole = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        cf_cover cover;
        cf_cover_fault fault;
        cf_err none;
        if (row->alias || row->dtype == CF_NO_DTYPE || !row->shape) continue;
        const bool told = cf_row_cover(cat, row, &scratch, &cover, &fault, &none);
        if (scratch.held > (1 << 20)) cf_arena_free(&scratch);
        if (told && cover == CF_COVER_EXACT) whole++;
        if (!told || cover != CF_COVER_HOLE) continue;
        bytes += (uint64_t)(fault.missing * cf_dtype_size(row->dtype));
        if (lost++ >= NAMED) continue;
        cf_text_str(&names, lost > 1 ? ", " : "");
        add_lost(&names, row, &fault);
    }
    cf_arena_free(&scratch);
    if (lost) {
        cf_text_printf(text, "only there %s ", lost > 1 ? "are parts of" : "is a part of");
        cf_text_printf(text, "%zu tensor%s, ", lost, lost > 1 ? "s" : "");
        cf_text_size(text, bytes);
        cf_text_printf(text, ": %s%s", names.at, lost > NAMED ? ", ..." : "");
    } else if (whole) {
        cf_text_printf(text, "%zu tensor%s whole without", whole, whole > 1 ? "s are" : " is");
    }
    cf_text_free(&names);
}

/* A file that was not read and whose name says that it was not finished. */
static const char *unfinished(const cf_catalogue *cat)
{
    static const char *const marks[] = {".tmp",      ".part",       ".partial",
                                        ".filepart", ".incomplete", ".crdownload"};
    for (uint32_t i = 0; i < cat->source->dir.count; i++) {
        const char *path = cf_source_path(cat->source, i), *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        if (cat->was_read && cat->was_read[i]) continue;
        if (*name == '.' && strstr(name, ".pt.")) return path; /* as rsync names it */
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
            const char *at = strstr(name, marks[k]);
            const char after = at ? at[strlen(marks[k])] : 'x';
            if (at && (after == '\0' || after == '.' || after == '-')) return path;
        }
    }
    return NULL;
}

/* A file that was not read and is named for the rank: in another case, folder, or as a copy. */
static const char *named_for(const cf_catalogue *cat, int32_t rank)
{
    for (uint32_t i = 0; i < cat->source->dir.count; i++) {
        const char *path = cf_source_path(cat->source, i), *slash = strrchr(path, '/');
        const char *at = strcasestr(slash ? slash + 1 : path, "rank");
        if (!at || (cat->was_read && cat->was_read[i])) continue;
        at += strcspn(at, "0123456789");
        char *end;
        if (*at && strtol(at, &end, 10) == rank) return path;
    }
    return NULL;
}

static bool missing(cf_catalogue *cat, int32_t *ranks, size_t count, size_t files, cf_err *err)
{
    cf_text text = {0}, only = {0};
    cf_ranks_text(&text, ranks, count);
    add_only_there(cat, &only);
    cf_fail(err, CF_E_MISSING_FILE, "%s %s of world %lld %s missing%s%s",
            count > 1 ? "ranks" : "rank", text.at ? text.at : "?", (long long)cat->world,
            count > 1 ? "are" : "is", only.at ? "; " : "", only.at ? only.at : "");
    cf_text_free(&text);
    cf_text_free(&only);
    const char *torn = unfinished(cat);
    if (torn) return cf_err_hint(err, "%s looks like a file that was still being written", torn);
    enum { LOOKED_FOR = 16 };
    for (size_t i = 0; i < count && i < LOOKED_FOR; i++) {
        const char *other = named_for(cat, ranks[i]);
        if (other) return cf_err_hint(err, "%s is named for it, and was not read", other);
    }
    if (cat->in_part)
        return cf_err_hint(err, "--only-rank N takes the pieces of one rank, whose file is enough");
    return cf_err_hint(err,
                       "it was saved by %lld ranks; %zu file%s here; several CKPT can be one "
                       "checkpoint",
                       (long long)cat->world, files, files == 1 ? " is" : "s are");
}

static int by_said_rank(const void *a, const void *b)
{
    const cf_said *x = *(const cf_said *const *)a, *y = *(const cf_said *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

static bool surplus(const cf_catalogue *cat, const cf_said *s, cf_err *err)
{
    cf_fail(err, CF_E_META_CONFLICT, "rank %d in a world of %lld", s->rank, (long long)cat->world);
    cf_err_in_file(err, cf_source_path(cat->source, s->file));
    return cf_err_hint(err, "a file of another save lies among them");
}

/* The same bytes at both ends? The directory of an archive, with all checksums, is at its end. */
static bool seem_equal(const cf_dir *dir, uint32_t a, uint32_t b)
{
    enum { LOOK = 64 << 10 };
    const uint64_t size = dir->files[a].size;
    uint8_t *bytes = size == dir->files[b].size ? malloc(2 * LOOK) : NULL;
    int fd[2] = {-1, -1};
    cf_err none;
    bool equal = bytes && cf_dir_open(dir, a, &fd[0], &none) && cf_dir_open(dir, b, &fd[1], &none);
    const size_t n = size < LOOK ? (size_t)size : LOOK;
    for (int end = 0; equal && end < 2; end++) {
        for (int i = 0; equal && i < 2; i++) {
            const cf_span span = cf_span_of_file(fd[i], size);
            equal = cf_span_read(&span, end ? size - n : 0, bytes + (i ? n : 0), n, &none);
        }
        equal = equal && memcmp(bytes, bytes + n, n) == 0;
    }
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    free(bytes);
    return equal;
}

static bool twice(const cf_catalogue *cat, const cf_said *a, const cf_said *b, cf_err *err)
{
    const cf_dir_file *x = &cat->source->dir.files[a->file], *y = &cat->source->dir.files[b->file];
    const bool roots = x->root != y->root;
    cf_fail(err, CF_E_META_CONFLICT, "rank %d is there twice, in %s%s%s too", a->rank, x->path,
            roots ? " of " : "", roots ? cat->source->dir.roots[x->root] : "");
    cf_err_in_file(err, y->path);
    if (seem_equal(&cat->source->dir, a->file, b->file))
        return cf_err_hint(err, "one is a copy of the other: leave it out");
    return cf_err_hint(err, "by what is inside, and they differ: one of them is of another save");
}

void cf_save_said_world(cf_catalogue *cat)
{
    for (size_t i = 0; i < cat->n_said; i++)
        if (!cat->said[i].key && cat->said[i].size >= 0) cat->world = cat->said[i].size;
}

bool cf_save_world(cf_catalogue *cat, cf_err *err)
{
    size_t n = 0, lost = 0, room = 0;
    const cf_said **ranks = CF_NEWS(&cat->arena, const cf_said *, cat->n_said + 1);
    if (!ranks) return cf_arena_ok(&cat->arena, err);
    for (size_t i = 0; i < cat->n_said; i++) {
        if (!cat->said[i].key) ranks[n++] = &cat->said[i];
    }
    cf_save_said_world(cat);
    if (!cat->world) return true;
    cat->said_world = true;
    qsort(ranks, n, sizeof *ranks, by_said_rank);
    int32_t *absent = NULL;
    int64_t next = 0;
    for (size_t i = 0; i <= n; i++) {
        const int64_t rank = i < n ? ranks[i]->rank : cat->world;
        if (i < n && (rank >= cat->world || (rank >= 0 && rank < next))) {
            if (rank >= cat->world)
                surplus(cat, ranks[i], err);
            else
                twice(cat, ranks[i - 1], ranks[i], err);
            if (!cf_faults_take(cat->source->faults, err)) return false;
            continue;
        }
        for (; next < rank; next++) {
            int32_t *place = CF_PUSH(&cat->arena, absent, lost, room);
            if (!place) return cf_arena_ok(&cat->arena, err);
            *place = (int32_t)next;
        }
        next = rank + 1;
    }
    return lost ? missing(cat, absent, lost, n, err) : true;
}

/* ---- values that differ ---- */

const char *cf_values_kept(cf_values values, size_t n)
{
    return values == CF_VALUES_PER_RANK ? "all are kept"
           : n > 1                      ? "the smallest rank's are taken"
                                        : "the smallest rank's is taken";
}

static const char *groups_of(cf_arena *scratch, const cf_row *row)
{
    uint64_t *hashes = CF_NEWS(scratch, uint64_t, row->n_values + 1);
    int32_t *ranks = CF_NEWS(scratch, int32_t, row->n_values + 1);
    if (!hashes || !ranks) return "";
    for (size_t i = 0; i < row->n_values; i++) {
        hashes[i] = row->values[i].hash;
        ranks[i] = row->values[i].rank;
    }
    cf_text text = {0};
    cf_groups_text(&text, hashes, ranks, row->n_values);
    const char *copy = text.at ? cf_strndup(scratch, text.at, text.size) : "";
    cf_text_free(&text);
    return copy ? copy : "";
}

/* "rng.python, rng.numpy (each of 4 ranks its own), checkpoints (0,1 | 2,3)", the first few. */
static void add_differing(const cf_catalogue *cat, cf_arena *scratch, cf_text *text)
{
    const char *last = NULL;
    size_t named = 0, left = 0;
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        if (!row->differs) continue;
        if (named == MOST_NAMES) {
            left++;
            continue;
        }
        const char *groups = groups_of(scratch, row);
        if (last && strcmp(last, groups) != 0) cf_text_printf(text, " (%s)", last);
        cf_text_printf(text, "%s%s", named++ ? ", " : "", row->key);
        last = groups;
    }
    if (last) cf_text_printf(text, " (%s)", last);
    if (left) cf_text_printf(text, ", and %zu more", left);
}

bool cf_save_values(cf_catalogue *cat, cf_err *err)
{
    const bool strict = cat->values == CF_VALUES_STRICT;
    size_t n = 0;
    const cf_row *first = NULL;
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (strict && cat->said_world && row->n_values && (int64_t)row->n_values < cat->world) {
            cf_fail(err, CF_E_META_CONFLICT, "%zu of %lld ranks have it", row->n_values,
                    (long long)cat->world);
            return cf_err_in_member(err, row->key);
        }
        if (row->differs && !n++) first = row;
    }
    if (!n) return true;
    cf_arena scratch;
    cf_arena_init(&scratch, 0);
    cf_text names = {0};
    add_differing(cat, &scratch, &names);
    const char *what = names.at ? names.at : "";
    if (strict) {
        size_t other = 1;
        while (first->values[other].hash == first->values[0].hash) other++;
        cf_fail(err, CF_E_META_CONFLICT, "differs between rank %d and rank %d; in all %zu: %s",
                first->values[0].rank, first->values[other].rank, n, what);
        cf_err_in_member(err, first->key);
        cf_err_hint(err, "without --values strict the smallest rank's is taken");
    } else {
        cf_text_printf(&cat->notes, "%zu value%s between ranks, %s: %s\n", n,
                       n > 1 ? "s differ" : " differs", cf_values_kept(cat->values, n), what);
    }
    cf_text_free(&names);
    cf_arena_free(&scratch);
    return !strict;
}
