/* What one file's `read` said, until it is merged: private to part.c and catalogue.c. */
#ifndef CF_PART_H
#define CF_PART_H

#include "catalogue.h"

typedef enum cf_op_kind {
    CF_OP_PIECE,
    CF_OP_ITEMS,
    CF_OP_VALUE,
    CF_OP_DECLARE,
    CF_OP_NAME,
    CF_OP_ALIAS,
    CF_OP_PATH,
    CF_OP_SAME,
    CF_OP_WORLD,
    CF_OP_NOTE,
    CF_OP_WRITERS
} cf_op_kind;

typedef struct cf_op {
    cf_op_kind kind;
    uint8_t ndim;
    cf_dtype dtype;
    const char *key;
    const cf_path *path;
    const int64_t *shape; /* NULL: not said */
    const int64_t *at;    /* CF_OP_PIECE: of the box, ndim of the view */
    const cf_view *view;
    const cf_view *range; /* as in cf_piece */
    int64_t start;
    const cf_node *node;
    uint64_t hash;
    const char *text, *more; /* role and name; other key; what is said */
    int64_t size;            /* of the world; how many writers */
    cf_piece *pieces;        /* CF_OP_ITEMS: in the part's `kept` */
    size_t n_pieces, cap_pieces;
    int32_t rank;
} cf_op;

struct cf_part {
    cf_arena arena, kept; /* kept: becomes the catalogue's */
    cf_source *source;
    uint32_t file;
    const cf_node *root; /* the file's tree, where keys have their paths; NULL: not known */
    int32_t rank;        /* by what is inside; else */
    int32_t named;       /* by the name of the file; -1: it has none */
    bool known;          /* rank is by what is inside */
    cf_op *ops;
    size_t count, cap;
    cf_lost *lost;
    size_t n_lost, cap_lost;
};

/* Why things of a file are lost, in `kept`; NULL: the arena failed. */
const cf_cause *cf_part_cause(cf_part *part, const char *path, const cf_err *why);
/* A box of a tensor (size NULL: a value) that no file holds any more; one without elements is no
 * loss. */
bool cf_part_lost(cf_part *part, const char *key, const cf_cause *why, int32_t rank, int ndim,
                  const int64_t *at, const int64_t *size, cf_err *err);

#endif
