#include "damage.h"

#include <string.h>

#include "storages.h"

void cf_damage_init(cf_damage *d)
{
    *d = (cf_damage){0};
    cf_arena_init(&d->arena, 0);
    cf_map_init(&d->places, &d->arena);
    cf_map_init(&d->keys, &d->arena);
    pthread_mutex_init(&d->lock, NULL);
}

void cf_damage_free(cf_damage *d)
{
    cf_arena_free(&d->arena);
    pthread_mutex_destroy(&d->lock);
}

void cf_damage_begin(cf_damage *d)
{
    d->found = false;
}

/* root, offset, path: what a record and a storage are known by in two plans. */
static const char *place_of(cf_arena *arena, uint32_t root, uint64_t offset, const char *path,
                            size_t *size)
{
    const size_t length = strlen(path);
    char *key = cf_alloc(arena, sizeof root + sizeof offset + length);
    if (!key) return NULL;
    memcpy(key, &root, sizeof root);
    memcpy(key + sizeof root, &offset, sizeof offset);
    memcpy(key + sizeof root + sizeof offset, path, length);
    *size = sizeof root + sizeof offset + length;
    return key;
}

static bool take(cf_damage *d, cf_map *map, const char *key, size_t size, const cf_err *err)
{
    bool fresh = false;
    if (!key || !cf_map_put(map, key, size, &fresh)) return false;
    if (!d->found) d->first = *err;
    d->found = true;
    if (!fresh) return true;
    cf_fault *fault = CF_PUSH(&d->arena, d->faults, d->count, d->cap);
    if (!fault) return false;
    *fault = cf_fault_of(&d->arena, err);
    fault->hint = ""; /* it is of this run, the next one does without */
    cf_err none;
    return cf_arena_ok(&d->arena, &none);
}

static bool is_damage(const cf_damage *d, const cf_err *err)
{
    return d && cf_code_exit(err->code) == 4;
}

bool cf_damage_take(cf_damage *d, const cf_block *b, uint64_t record, const cf_err *err)
{
    if (!is_damage(d, err) || b->records[record].place == CF_IN_MEMORY) return false;
    const cf_b_record *rec = &b->records[record];
    size_t size = 0;
    pthread_mutex_lock(&d->lock);
    const char *place = place_of(&d->arena, b->sources[rec->source].root, rec->offset,
                                 cf_record_path(b, rec), &size);
    const bool ok = take(d, &d->places, place, size, err);
    pthread_mutex_unlock(&d->lock);
    return ok;
}

bool cf_damage_take_key(cf_damage *d, const char *key, const cf_err *err)
{
    if (!is_damage(d, err)) return false;
    pthread_mutex_lock(&d->lock);
    const size_t size = strlen(key);
    const bool ok = take(d, &d->keys, cf_strndup(&d->arena, key, size), size, err);
    pthread_mutex_unlock(&d->lock);
    return ok;
}

bool cf_damage_none(const cf_damage *d, cf_err *err)
{
    if (!d || !d->found) return true;
    *err = d->first;
    return false;
}

/* ---- the next plan -----------------------------------------------------------------------------
 */

typedef struct striking {
    const cf_damage *damage;
    cf_source *source;
    cf_arena scratch;
    bool hit;
} striking;

static void look(void *ctx, const cf_storage *s)
{
    striking *k = ctx;
    if (s->place == CF_IN_MEMORY || s->place == CF_NOWHERE) return;
    uint32_t number = s->file;
    const cf_source *of = cf_source_of(k->source, &number);
    const cf_dir_file *f = &of->dir.files[number];
    size_t size;
    uint64_t unused;
    const char *place =
        place_of(&k->scratch, of->first_root + f->root, s->offset, f->stored, &size);
    k->hit |= place && cf_map_get(&k->damage->places, place, size, &unused);
}

static bool same_box(const cf_row *row, const cf_piece *a, const cf_piece *b)
{
    const size_t dims = row->ndim * sizeof(int64_t);
    return !dims || (!memcmp(a->at, b->at, dims) && !memcmp(a->view->shape, b->view->shape, dims));
}

/* Pieces that are damaged go where another rank has the same, and the row is broken where none has.
 */
static void strike_pieces(striking *k, cf_row *row)
{
    size_t kept = 0;
    bool *hit = CF_NEWS(&k->scratch, bool, row->n_pieces + 1);
    for (size_t i = 0; hit && i < row->n_pieces; i++) {
        k->hit = false;
        look(k, row->pieces[i].view->storage);
        hit[i] = k->hit;
    }
    for (size_t i = 0; hit && i < row->n_pieces; i++) {
        bool other = !hit[i];
        for (size_t j = 0; !other && j < row->n_pieces; j++)
            other = !hit[j] && same_box(row, &row->pieces[i], &row->pieces[j]);
        row->broken |= !other;
    }
    for (size_t i = 0; hit && !row->broken && i < row->n_pieces; i++)
        if (!hit[i]) row->pieces[kept++] = row->pieces[i];
    if (!row->broken) row->n_pieces = kept;
}

static bool strike_values(striking *k, cf_row *row, cf_err *err)
{
    cf_storages storages;
    k->hit = false;
    cf_storages_begin(&storages, look, k);
    for (size_t i = 0; i < row->n_values; i++) cf_storages_of_node(&storages, row->values[i].node);
    row->broken |= k->hit;
    return cf_storages_end(&storages, err);
}

bool cf_damage_strike(const cf_damage *d, cf_catalogue *cat, cf_err *err)
{
    striking k = {.damage = d, .source = cat->source};
    bool ok = true;
    cf_arena_init(&k.scratch, 0);
    for (size_t i = 0; ok && i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        uint64_t unused;
        if (row->alias) continue;
        row->broken |= cf_map_get(&d->keys, row->key, strlen(row->key), &unused);
        if (row->n_pieces) strike_pieces(&k, row);
        ok = strike_values(&k, row, err) && cf_arena_ok(&k.scratch, err);
        if (k.scratch.held > (1 << 20)) cf_arena_free(&k.scratch);
    }
    cf_arena_free(&k.scratch);
    for (size_t i = 0; ok && i < d->count; i++) {
        cf_err fault = {0};
        cf_fault_error(&d->faults[i], &fault);
        cf_faults_take(cat->source->faults, &fault);
    }
    return ok;
}
