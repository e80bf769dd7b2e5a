/* Who holds what: each piece and value of a checkpoint, and the ranks that have it in memory.
 *
 * Where every rank wrote what it has, the files tell. A save that drops duplicates before it writes
 * (DCP) leaves one copy, and whose the others were is inferred: a whole tensor or value is
 * everybody's, unless a component of its key is `rank<N>` or `dp_rank_<N>`; chunk i, by offset, of
 * c chunks, c dividing the number W of writers, belongs to the ranks with r mod c = i (replicas
 * outermost, as HSDP) or r div (W/c) = i (replicas innermost, as tensor parallel): the one that
 * agrees with the file each chunk lies in, over all tensors of that c; else to its file's rank.
 * --mesh says otherwise: dimensions as "replicate=2,shard=2", outermost first; a chunk belongs to
 * the ranks that differ from its file's in nothing but dimensions that do not cut the tensor.
 */
#ifndef CF_HOLDERS_H
#define CF_HOLDERS_H

#include "catalogue.h"

enum { CF_MOST_RANKS = 1 << 20, CF_MOST_MESH = 8 };

/* Ranks, ascending, each once, at least one. Interned: equal sets are one pointer. */
typedef struct cf_ranks {
    const int32_t *list;
    size_t count;
} cf_ranks;

/* The N of a component rank<N> or dp_rank_<N> of a key; -1: it has none. */
int64_t cf_rank_in_key(const char *key);

/* Makes sets of ranks, each once, in an arena. */
typedef struct cf_rank_sets {
    cf_arena *arena;
    cf_map known;
    size_t count;
} cf_rank_sets;

void cf_rank_sets_init(cf_rank_sets *sets, cf_arena *arena);
/* The set of a list, which must be ascending; NULL if memory failed. */
const cf_ranks *cf_rank_set(cf_rank_sets *sets, const int32_t *list, size_t count);
bool cf_ranks_hold(const cf_ranks *ranks, int64_t rank);

/* What a policy is asked about. */
typedef struct cf_held {
    const char *key;
    const cf_ranks *holders;
    uint64_t bytes;       /* of the piece's elements; of the stretch that a value lies in, else 1 */
    uint64_t whole_bytes; /* of the tensor; 1 for a value */
    bool value;
    int32_t keeper; /* the policy's answer */
    /* of a checkpoint that exists: */
    int32_t rank;    /* whose file it lies in; 0 where that is not known */
    uint32_t file;   /* of the listing: where its bytes are */
    uint64_t stored; /* bytes there that a reader takes; 0 where it comes with the file's pickle */
    bool copies;     /* every holder has a copy of its own: row's replicas of this piece */
    cf_row *row;
    uint32_t piece; /* number in the row; of a value 0 */
} cf_held;

typedef struct cf_mesh {
    struct {
        int32_t size;
        bool replicas;
    } dims[CF_MOST_MESH]; /* outermost first */
    int count;
    int32_t ranks; /* all sizes multiplied */
} cf_mesh;

/* E_USAGE. Dimensions whose name has "replicate" in it hold copies, all others cut. */
bool cf_mesh_parse(cf_mesh *mesh, const char *text, cf_err *err);

typedef struct cf_holding {
    cf_held *items; /* in the catalogue's order, pieces of a tensor by their offsets */
    size_t count;
    int32_t ranks;
    bool inferred;
    cf_rank_sets sets;
} cf_holding;

/* Rows that are an alias are left out: their pieces are another's. mesh may be NULL. Everything in
 * arena. E_USAGE: a mesh of fewer ranks than there are, or one that cannot be. */
bool cf_holders_find(cf_holding *holding, const cf_catalogue *cat, const cf_mesh *mesh,
                     cf_arena *arena, cf_err *err);

#endif
