/* The catalogue: every key of a checkpoint, what it is and where its pieces lie.
 *
 * `read` of each file fills a part; parts are merged in the order of the files, whatever thread
 * made them, and cf_catalogue_finish proves that the whole is one: nothing missing, nothing held
 * twice with different places, all files of one save.
 *
 * Everything lives in the catalogue's arena (parts: in their own, freed by the merge). Counting is
 * from 0. A piece's rank is its file's unless a plugin said otherwise.
 */
#ifndef CF_CATALOGUE_H
#define CF_CATALOGUE_H

#include "keypath.h"
#include "source.h"

typedef struct cf_piece {
    int32_t rank; /* -1: not known */
    uint32_t file;
    const cf_view *view;
    const int64_t *at;    /* offsets of the box, ndim of the row; its sizes are the view's */
    uint32_t replica_of;  /* number of the equal piece that is kept; its own number if kept */
    int64_t start;        /* a box of a range: the range's first element; -1 otherwise */
    const cf_view *range; /* the whole range's view, with its first box; NULL otherwise */
} cf_piece;

typedef struct cf_value {
    int32_t rank;
    uint32_t file;
    const cf_node *node; /* NULL: equal in hash to another, or not kept: cf_row_value */
    uint64_t hash;
} cf_value;

typedef struct cf_row {
    const char *key;
    const cf_path *path; /* of the key, in the file that had it first; NULL: one string */
    cf_dtype dtype;      /* CF_NO_DTYPE: a value */
    uint8_t ndim;
    bool hull; /* no shape was declared: it is the hull of the boxes */
    const int64_t *shape;
    int64_t numel;
    cf_piece *pieces; /* in the order they were read */
    size_t n_pieces, cap_pieces;
    cf_value *values; /* of values: one a rank that has it, by rank; the first has its node */
    size_t n_values, cap_values;
    const char *role, *name; /* "model" "optim" "copy" "rest"; name within the role */
    struct cf_row *alias;    /* the row whose pieces these are */
    bool used;               /* written or dropped by the plan */
    bool compared;           /* its replicas are, by the plan */
    int64_t written;         /* elements that views of it were written of */
    bool differs;            /* a value that differs between ranks */
    bool holed;              /* a piece of it was lost */
    bool broken;             /* not whole: why is among the source's faults */
    bool in_part;            /* one rank's pieces, in their places; numel: of these */
} cf_row;

/* Why something is lost: what is wrong with a file. */
typedef struct cf_cause {
    const char *path;
    const cf_err *err;
} cf_cause;

/* A box of a tensor that no file holds; size NULL: a value. */
typedef struct cf_lost {
    const char *key;
    const cf_cause *why;
    int32_t rank; /* whose it was; -1: not known */
    uint8_t ndim;
    const int64_t *at, *size;
} cf_lost;

typedef struct cf_role {
    const char *role, *pattern;
} cf_role;

typedef enum cf_values { CF_VALUES_RANK0, CF_VALUES_PER_RANK, CF_VALUES_STRICT } cf_values;
typedef enum cf_replicas { CF_REPLICAS_AUTO, CF_REPLICAS_COMPARE, CF_REPLICAS_TRUST } cf_replicas;

typedef struct cf_catalogue {
    cf_arena arena;
    cf_source *source;
    const char *format, *why; /* the plugin that read it, and the reason it gave */
    cf_row **rows;            /* in the order of first appearance */
    size_t count, cap;
    cf_map keys;
    struct cf_said *said; /* `same` and `world` */
    size_t n_said, cap_said;
    cf_lost *lost; /* what files should hold and do not */
    size_t n_lost, cap_lost;
    bool *was_read;  /* by file of the listing: a part was merged from it */
    bool left_out;   /* a file could not be read, and the work went on (faults) */
    bool said_world; /* a file said how many ranks wrote it: */
    int64_t world;   /* ranks that wrote it: what files said, else ranks seen */
    int64_t writers; /* so many wrote it together, each piece once; 0: each what it has */
    cf_values values;
    int32_t only_rank; /* --only-rank: pieces and values of others are passed over; -1: of none */
    bool in_part; /* with it: what is left keeps its place in the whole, for recipes of pieces */
    int32_t most_rank; /* the largest that was met, where that is so */
    cf_text misnamed;  /* files named for another rank than they hold */
    size_t n_misnamed;
    const struct cf_damage *damage; /* what a run found damaged; NULL: nothing */
    cf_text notes;                  /* for people: what differs between ranks ... */
    cf_text
        losses; /* for programs: of an error that names lost files, what is lost and whole (JSON) */
    cf_map noted; /* what plugins noted, each once */
    size_t n_notes;
} cf_catalogue;

void cf_catalogue_init(cf_catalogue *cat, cf_source *source);
void cf_catalogue_free(cf_catalogue *cat);

/* ---- parts: what `out` in Lua calls. Every text and list is copied; views too (their storages
 * are not). Errors at once: E_BOUNDS for a box that sticks out, E_TYPE for a wrong number of
 * dimensions, E_UTF8 for a key that is no UTF-8 or holds a NUL, E_LIMIT (key over 64 KiB). They
 * name the file and the key. */
typedef struct cf_part cf_part;

/* rank: what {rank} took, or -1. NULL: out of memory. */
cf_part *cf_part_new(cf_source *source, uint32_t file, int32_t rank);
void cf_part_free(cf_part *part);
uint32_t cf_part_file(const cf_part *part);
/* The tree of its file, borrowed until the part is merged: where keys that follow lie in it. */
void cf_part_root(cf_part *part, const cf_node *root);

/* shape NULL: the declared one, else the hull; n_at is the number of offsets given. */
bool cf_part_piece(cf_part *part, const char *key, size_t length, int ndim, const int64_t *shape,
                   int n_at, const int64_t *at, const cf_view *view, cf_err *err);
/* A stretch of the row-major elements of the tensor, from element start on; with at and size (ndim
 * each) of those of that box of it. It becomes the boxes that it is made of. */
bool cf_part_range(cf_part *part, const char *key, size_t length, int ndim, const int64_t *shape,
                   int64_t start, const cf_view *view, const int64_t *at, const int64_t *size,
                   cf_err *err);
bool cf_part_value(cf_part *part, const char *key, size_t length, const cf_node *node, cf_err *err);
/* CF_NO_DTYPE: a value; only its place in the order is told. */
bool cf_part_declare(cf_part *part, const char *key, size_t length, cf_dtype dtype, int ndim,
                     const int64_t *shape, cf_err *err);
bool cf_part_name(cf_part *part, const char *key, size_t length, const char *role, const char *name,
                  cf_err *err);
/* Where the key lies in the tree of its file; what cf_part_root's tree tells else. */
bool cf_part_path(cf_part *part, const char *key, size_t length, const cf_path *path, cf_err *err);
bool cf_part_alias(cf_part *part, const char *key, size_t length, const char *of, cf_err *err);
/* said: the value as text (cf_node_show, or a number's decimal text); NULL: the file does not say.
 */
bool cf_part_same(cf_part *part, const char *key, size_t length, const char *said, cf_err *err);
/* Whose the file is, by what is inside: of all that it says, before and after this call, whatever
 * its name says. */
void cf_part_rank(cf_part *part, int32_t rank);
/* Is it known by what is inside whose the file is, so that a second one of that rank is found? */
bool cf_part_placed(const cf_part *part);
/* size -1: not known; rank -1: the file's. */
bool cf_part_world(cf_part *part, int64_t size, int32_t rank, cf_err *err);
/* A line for people; the same one of many files is kept once. */
bool cf_part_note(cf_part *part, const char *text, size_t length, cf_err *err);
bool cf_part_writers(cf_part *part, int64_t count, cf_err *err);

/* Adds a part and frees it. E_META_CONFLICT, E_DTYPE: other dtype or shape than before. */
bool cf_catalogue_merge(cf_catalogue *cat, cf_part *part, cf_err *err);

/* After the last file: same, world, aliases, hulls, roles, replicas, exact coverage. With a list of
 * faults at the source only what is no fault of the input fails. */
bool cf_catalogue_finish(cf_catalogue *cat, const cf_role *roles, size_t n_roles, cf_err *err);

/* "the smallest rank's are taken": of n values that differ, for notes. */
const char *cf_values_kept(cf_values values, size_t n);

/* The node of one of a row's values: its own or that of an equal one; NULL: differs, not kept. */
const cf_node *cf_row_value(const cf_row *row, size_t number);

cf_row *cf_catalogue_find(const cf_catalogue *cat, const char *key);

#endif
