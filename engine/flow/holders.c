#include "holders.h"

#include <stdlib.h>
#include <string.h>

#include "item.h"
#include "num.h"

/* ---- sets of ranks -----------------------------------------------------------------------------
 */

void cf_rank_sets_init(cf_rank_sets *sets, cf_arena *arena)
{
    *sets = (cf_rank_sets){.arena = arena};
    cf_map_init(&sets->known, arena);
}

const cf_ranks *cf_rank_set(cf_rank_sets *sets, const int32_t *list, size_t count)
{
    uint64_t at;
    if (cf_map_get(&sets->known, list, count * sizeof *list, &at))
        return (const cf_ranks *)(uintptr_t)at;
    cf_ranks *set = CF_NEW(sets->arena, cf_ranks);
    const int32_t *own = cf_memdup(sets->arena, list, count * sizeof *list);
    bool fresh;
    uint64_t *place =
        set && own ? cf_map_put(&sets->known, own, count * sizeof *own, &fresh) : NULL;
    if (!place) return NULL;
    *set = (cf_ranks){own, count};
    *place = (uintptr_t)set;
    sets->count++;
    return set;
}

bool cf_ranks_hold(const cf_ranks *ranks, int64_t rank)
{
    size_t low = 0, high = ranks->count;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (ranks->list[mid] == rank) return true;
        if (ranks->list[mid] < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* ---- the mesh that a user names ----------------------------------------------------------------
 */

bool cf_mesh_parse(cf_mesh *mesh, const char *text, cf_err *err)
{
    *mesh = (cf_mesh){.ranks = 1};
    for (const char *at = text; *at;) {
        const size_t name = strcspn(at, "=,"), all = strcspn(at, ",");
        char *end = NULL;
        const long size = at[name] == '=' ? strtol(at + name + 1, &end, 10) : 0;
        if (!name || !end || end != at + all || size < 1 || size > CF_MOST_RANKS ||
            mesh->count == CF_MOST_MESH || mesh->ranks > CF_MOST_RANKS / size ||
            (at[all] && !at[all + 1])) {
            cf_fail(err, CF_E_USAGE, "'%s' is no mesh", text);
            return cf_err_hint(err, "name=size, the outermost first: replicate=2,shard=4");
        }
        mesh->dims[mesh->count].size = (int32_t)size;
        mesh->dims[mesh->count++].replicas = memmem(at, name, "replicate", 9) != NULL;
        mesh->ranks *= (int32_t)size;
        at += all + (at[all] == ',');
    }
    return mesh->count ? true : cf_fail(err, CF_E_USAGE, "an empty mesh");
}

/* Where a rank stands in the dimensions of a mask, as one number. */
static int32_t coordinate(const cf_mesh *mesh, unsigned mask, int32_t rank)
{
    int32_t at = 0, factor = 1;
    for (int d = mesh->count - 1; d >= 0; d--) {
        if (mask & 1u << d) {
            at += rank % mesh->dims[d].size * factor;
            factor *= mesh->dims[d].size;
        }
        rank /= mesh->dims[d].size;
    }
    return at;
}

static int32_t extent(const cf_mesh *mesh, unsigned mask)
{
    int32_t n = 1;
    for (int d = 0; d < mesh->count; d++)
        if (mask & 1u << d) n *= mesh->dims[d].size;
    return n;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

/* How tensors of c chunks are spread: what all of them agree with. */
typedef enum spread { OF_FILE, OUTERMOST, INNERMOST, BY_MESH } spread;

typedef struct class
{
    size_t chunks;
    const cf_ranks **sets;     /* by place: made when first needed */
    bool heard;                /* a tensor without empty chunks is of it */
    bool outermost, innermost; /* no tensor has spoken against it yet */
    uint64_t masks[4];         /* of the 256 of a mesh: those that no tensor contradicts */
    const char *against;       /* a tensor that the whole mesh contradicts */
    spread spread;
    unsigned mask;
} class;

typedef struct finding {
    const cf_catalogue *cat;
    const cf_mesh *mesh;
    cf_arena *arena;
    cf_holding *out;
    cf_map classes; /* c -> class */
    size_t cap;
    uint32_t *order; /* of pieces: scratch */
    size_t cap_order;
    int32_t *ranks; /* scratch: as many as there are */
    const cf_ranks *all;
} finding;

static int32_t rank_of(int32_t rank)
{
    return rank < 0 ? 0 : rank;
}

static const cf_row *ordering;

static int by_offset(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const cf_piece *p = &ordering->pieces[x], *q = &ordering->pieces[y];
    for (int d = 0; d < ordering->ndim; d++)
        if (p->at[d] != q->at[d]) return p->at[d] < q->at[d] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Numbers of the pieces that are no replica, by their offsets. SIZE_MAX: no memory. */
static size_t kept_pieces(finding *f, const cf_row *row)
{
    size_t n = 0;
    for (size_t i = 0; i < row->n_pieces; i++) {
        if (row->pieces[i].replica_of != i) continue;
        uint32_t *place = CF_PUSH(f->arena, f->order, n, f->cap_order);
        if (!place) return SIZE_MAX;
        *place = (uint32_t)i;
    }
    ordering = row;
    if (n > 1) qsort(f->order, n, sizeof *f->order, by_offset);
    return n;
}

/* Of a save by all ranks together, items are what was dropped elsewhere; what else lies beside them
 * (a trainer's state a rank) is its rank's alone. */
static bool deduplicated(const finding *f, const cf_storage *storage)
{
    return f->cat->writers > 0 && storage->place == CF_IN_ITEM;
}

static class *class_of(finding *f, size_t chunks)
{
    bool fresh;
    const uint64_t *key = cf_memdup(f->arena, &(uint64_t){chunks}, sizeof(uint64_t));
    uint64_t *place = key ? cf_map_put(&f->classes, key, sizeof *key, &fresh) : NULL;
    if (!place) return NULL;
    if (fresh) {
        class *c = CF_NEW(f->arena, class);
        if (!c) return NULL;
        const bool divides = f->out->ranks % (int64_t)chunks == 0;
        c->chunks = chunks;
        c->outermost = c->innermost = divides;
        memset(c->masks, 0xff, sizeof c->masks);
        *place = (uintptr_t)c;
    }
    return (class *)(uintptr_t)*place;
}

/* Do the chunks lie in files of ranks that stand in different places of these dimensions? */
static bool distinct(finding *f, const cf_row *row, size_t n, unsigned mask)
{
    bool ok = true;
    memset(f->ranks, 0, n * sizeof *f->ranks);
    for (size_t i = 0; ok && i < n; i++) {
        const int32_t at = coordinate(f->mesh, mask, rank_of(row->pieces[f->order[i]].rank));
        ok = !f->ranks[at];
        f->ranks[at] = 1;
    }
    return ok;
}

/* Empty chunks of several ranks have one place and are one: how many ranks there are is not told.
 */
static bool has_empty(const finding *f, const cf_row *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!row->pieces[f->order[i]].view->numel) return true;
    return false;
}

/* What one tensor says against the ways its class may be spread. */
static bool hear(finding *f, const cf_row *row, cf_err *err)
{
    const size_t n = kept_pieces(f, row);
    class *c = n == SIZE_MAX ? NULL : class_of(f, n ? n : 1);
    if (!c) return cf_arena_ok(f->arena, err);
    if (n < 2 || n > (size_t)f->out->ranks || has_empty(f, row, n)) return true;
    c->heard = true;
    if (f->mesh) {
        unsigned cuts = 0;
        for (int d = 0; d < f->mesh->count; d++)
            if (!f->mesh->dims[d].replicas) cuts |= 1u << d;
        for (unsigned mask = 1; mask < 1u << f->mesh->count; mask++) {
            const bool possible = !(mask & ~cuts) && (size_t)extent(f->mesh, mask) == n;
            if (possible && distinct(f, row, n, mask)) continue;
            c->masks[mask / 64] &= ~(1ull << mask % 64);
            if (possible && mask == cuts) c->against = row->key;
        }
        return true;
    }
    const int32_t each = f->out->ranks / (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const int32_t rank = rank_of(row->pieces[f->order[i]].rank);
        c->outermost &= (size_t)rank % n == i;
        c->innermost &= each && (size_t)(rank / each) == i;
    }
    return true;
}

static bool settle(finding *f, cf_err *err)
{
    for (size_t i = 0; i < f->cat->count; i++) {
        const cf_row *row = f->cat->rows[i];
        if (row->alias || row->dtype == CF_NO_DTYPE) continue;
        const size_t n = kept_pieces(f, row);
        class *c = n == SIZE_MAX ? NULL : class_of(f, n ? n : 1);
        if (!c) return cf_arena_ok(f->arena, err);
        if (n < 2 || c->spread || !c->heard) continue;
        for (unsigned mask = 1; f->mesh && mask < 1u << f->mesh->count; mask++) {
            if ((size_t)extent(f->mesh, mask) != n || !(c->masks[mask / 64] >> mask % 64 & 1))
                continue;
            c->spread = BY_MESH;
            c->mask = mask;
            break;
        }
        if (!f->mesh) c->spread = c->outermost ? OUTERMOST : c->innermost ? INNERMOST : OF_FILE;
        if (f->mesh && c->against && !c->spread) {
            cf_fail(err, CF_E_USAGE, "by this mesh one rank would hold two chunks of %s",
                    c->against);
            return cf_err_hint(err, "the order of --mesh is that of ranks, the outermost first");
        }
    }
    return true;
}

/* ---- one row -----------------------------------------------------------------------------------
 */

int64_t cf_rank_in_key(const char *key)
{
    for (const char *at = key; at; at = strchr(at, '.')) {
        at += *at == '.';
        const char *digits = strncmp(at, "dp_rank_", 8) == 0 ? at + 8
                             : strncmp(at, "rank", 4) == 0   ? at + 4
                                                             : NULL;
        const size_t n = digits ? strspn(digits, "0123456789") : 0;
        if (n && n < 10 && (digits[n] == '.' || !digits[n])) return strtol(digits, NULL, 10);
    }
    return -1;
}

static const cf_ranks *only(finding *f, int32_t rank)
{
    return cf_rank_set(&f->out->sets, &rank, 1);
}

/* Of what has one copy in the file of `rank`: a whole tensor, a value. */
static const cf_ranks *holders_of_whole(finding *f, const char *key, int32_t rank)
{
    const int64_t named = cf_rank_in_key(key);
    return named >= 0 && named < f->out->ranks ? only(f, rank) : f->all;
}

/* The ranks that stand at a place: of the mesh's dimensions that cut, or of the chunks. */
static const cf_ranks *ranks_at(finding *f, class *c, int32_t at)
{
    const int32_t all = f->out->ranks, n = (int32_t)c->chunks, each = all / n;
    size_t count = 0;
    if (!c->sets) c->sets = CF_NEWS(f->arena, const cf_ranks *, c->chunks);
    if (!c->sets || c->sets[at]) return c->sets ? c->sets[at] : NULL;
    for (int32_t r = 0; r < all; r++) {
        const int32_t stands = c->spread == BY_MESH     ? coordinate(f->mesh, c->mask, r)
                               : c->spread == OUTERMOST ? r % n
                                                        : r / each;
        if (stands == at) f->ranks[count++] = r;
    }
    return c->sets[at] = cf_rank_set(&f->out->sets, f->ranks, count);
}

/* Whatever the rule says: who wrote a chunk holds it. */
static const cf_ranks *holders_of_chunk(finding *f, class *c, size_t i, int32_t rank)
{
    if (c->spread == OF_FILE) return only(f, rank);
    const int32_t at = c->spread == BY_MESH ? coordinate(f->mesh, c->mask, rank) : (int32_t)i;
    const cf_ranks *set = ranks_at(f, c, at);
    return !set || cf_ranks_hold(set, rank) ? set : only(f, rank);
}

static int by_rank(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Ranks of the scratch list, sorted and each once. */
static const cf_ranks *seen_ranks(finding *f, size_t n)
{
    size_t count = 0;
    qsort(f->ranks, n, sizeof *f->ranks, by_rank);
    for (size_t i = 0; i < n; i++)
        if (!count || f->ranks[count - 1] != f->ranks[i]) f->ranks[count++] = f->ranks[i];
    return cf_rank_set(&f->out->sets, f->ranks, count);
}

static cf_held *add(finding *f, cf_row *row, cf_err *err)
{
    cf_held *held = CF_PUSH(f->arena, f->out->items, f->out->count, f->cap);
    if (!held) {
        cf_arena_ok(f->arena, err);
        return NULL;
    }
    *held = (cf_held){.key = row->key, .row = row, .bytes = 1, .whole_bytes = 1};
    return held;
}

static bool add_value(finding *f, cf_row *row, cf_err *err)
{
    cf_held *held = add(f, row, err);
    if (!held) return false;
    const cf_value *v = &row->values[0];
    held->value = true;
    held->rank = rank_of(v->rank);
    held->file = v->file;
    if (cf_node_is_item(v->node)) {
        held->file = v->node->storage->file;
        held->bytes = held->stored = v->node->storage->packed;
    }
    size_t n = 0;
    for (size_t i = 0; i < row->n_values && n < (size_t)f->out->ranks; i++)
        f->ranks[n++] = rank_of(row->values[i].rank);
    held->copies =
        row->n_values > 1 || !cf_node_is_item(v->node) || !deduplicated(f, v->node->storage);
    held->holders = held->copies ? seen_ranks(f, n) : holders_of_whole(f, row->key, held->rank);
    return held->holders ? true : cf_arena_ok(f->arena, err);
}

/* Ranks with a copy of piece number `piece`. */
static const cf_ranks *copy_ranks(finding *f, const cf_row *row, uint32_t piece, size_t *copies)
{
    size_t n = 0;
    for (size_t i = piece; i < row->n_pieces && n < (size_t)f->out->ranks; i++)
        if (row->pieces[i].replica_of == piece) f->ranks[n++] = rank_of(row->pieces[i].rank);
    *copies = n;
    return seen_ranks(f, n);
}

static bool add_tensor(finding *f, cf_row *row, cf_err *err)
{
    const size_t n = kept_pieces(f, row);
    class *c = n == SIZE_MAX ? NULL : class_of(f, n ? n : 1);
    if (!c) return cf_arena_ok(f->arena, err);
    const int64_t size = cf_dtype_size(row->dtype);
    for (size_t i = 0; i < n; i++) {
        const cf_piece *p = &row->pieces[f->order[i]];
        cf_held *held = add(f, row, err);
        if (!held) return false;
        held->piece = f->order[i];
        held->rank = rank_of(p->rank);
        held->bytes = (uint64_t)(p->view->numel * size);
        held->whole_bytes = (uint64_t)(row->numel * size);
        const cf_storage *s = p->view->storage;
        held->file = s->place == CF_IN_MEMORY || s->place == CF_NOWHERE ? p->file : s->file;
        held->stored = s->place == CF_IN_ITEM ? s->packed : held->bytes;
        size_t copies = 1;
        held->holders =
            n == row->n_pieces ? only(f, held->rank) : copy_ranks(f, row, held->piece, &copies);
        held->copies = copies > 1 || !deduplicated(f, s);
        if (!held->copies)
            held->holders = n == 1 ? holders_of_whole(f, row->key, held->rank)
                                   : holders_of_chunk(f, c, i, held->rank);
        if (!held->holders) return cf_arena_ok(f->arena, err);
    }
    return true;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static bool count_ranks(finding *f, cf_err *err)
{
    int64_t most = f->cat->writers > f->cat->world ? f->cat->writers : 0;
    int32_t last = -1;
    for (size_t i = 0; i < f->cat->count; i++) {
        const cf_row *row = f->cat->rows[i];
        for (size_t k = 0; k < row->n_pieces; k++)
            if (row->pieces[k].rank > last) last = row->pieces[k].rank;
        for (size_t k = 0; k < row->n_values; k++)
            if (row->values[k].rank > last) last = row->values[k].rank;
    }
    if (most <= last) most = last + 1;
    if (f->cat->said_world) most = cf_max(most, f->cat->world);
    most = cf_max(most, cf_max(f->cat->writers, 1));
    if (f->mesh && f->mesh->ranks <= last)
        return cf_fail(err, CF_E_USAGE, "the mesh has %d ranks; files here are of rank %d",
                       f->mesh->ranks, last);
    if (f->mesh) most = f->mesh->ranks;
    if (most > CF_MOST_RANKS)
        return cf_fail(err, CF_E_LIMIT, "%lld ranks, at most %d", (long long)most, CF_MOST_RANKS);
    f->out->ranks = (int32_t)most;
    return true;
}

bool cf_holders_find(cf_holding *holding, const cf_catalogue *cat, const cf_mesh *mesh,
                     cf_arena *arena, cf_err *err)
{
    finding f = {.cat = cat, .mesh = cat->writers ? mesh : NULL, .arena = arena, .out = holding};
    *holding = (cf_holding){.inferred = cat->writers > 0};
    cf_rank_sets_init(&holding->sets, arena);
    cf_map_init(&f.classes, arena);
    if (!count_ranks(&f, err)) return false;
    f.ranks = CF_NEWS(arena, int32_t, (size_t)holding->ranks);
    for (int32_t r = 0; f.ranks && r < holding->ranks; r++) f.ranks[r] = r;
    f.all = f.ranks ? cf_rank_set(&holding->sets, f.ranks, (size_t)holding->ranks) : NULL;
    if (!f.all) return cf_arena_ok(arena, err);
    for (size_t i = 0; i < cat->count; i++) {
        const cf_row *row = cat->rows[i];
        if (cat->writers && !row->alias && row->dtype != CF_NO_DTYPE && !hear(&f, row, err))
            return false;
    }
    if (cat->writers && !settle(&f, err)) return false;
    for (size_t i = 0; i < cat->count; i++) {
        cf_row *row = cat->rows[i];
        if (row->alias) continue;
        if (!(row->dtype == CF_NO_DTYPE ? add_value(&f, row, err) : add_tensor(&f, row, err)))
            return false;
    }
    return cf_arena_ok(arena, err);
}
