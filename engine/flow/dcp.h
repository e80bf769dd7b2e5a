/* A write as torch's DCP: which items there are, whose they are, and whose file each goes to.
 *
 * With `ranks` tensors are cut anew, as torch.chunk cuts: parts of equal size, a shorter one, and
 * where ranks are left with nothing one empty part at the end of the dimension, as torch writes it.
 * A tensor that was cut is cut in that dimension (the first, if in several; a flat one in dimension
 * 0), one that was whole stays whole and is everybody's; but where one rank wrote all of it whole,
 * parameters and their states are cut in dimension 0, as FSDP2 cuts them. Without `ranks` pieces
 * and their holders stay as they are (holders.h). What need not be changed is copied with its
 * container, byte for byte. Items are made when the recipe writes, so that its policy can be asked;
 * files are laid out at the end (layout_dcp.c).
 */
#ifndef CF_DCP_H
#define CF_DCP_H

#include "holders.h"
#include "laying.h"

typedef struct cf_dcp_item {
    uint32_t number; /* of the tensor, or of the value */
    bool value;
    const cf_storage *raw;    /* an item that is copied as it lies; NULL: it is made */
    const int64_t *at, *size; /* of a tensor: the box */
    uint32_t index;           /* number of the chunk in its tensor */
    uint32_t next;            /* item of the same tensor in the order of the files */
    uint64_t offset, length;  /* in the keeper's file */
} cf_dcp_item;

/* A tensor or value under its name. */
typedef struct cf_dcp_thing {
    const char *name;
    const cf_path *path;  /* NULL: the name is one key */
    const cf_row *row;    /* NULL: the recipe made it */
    const cf_node *value; /* NULL: a tensor, number `tensor` of the write's */
    uint32_t tensor;
    uint32_t first, last; /* items, in the order of the files; CF_B_NONE: none */
    bool left_out;
} cf_dcp_thing;

typedef struct cf_dcp {
    int32_t ranks;
    cf_items tensors;
    cf_dcp_thing *things;
    size_t n_things, cap_things;
    cf_held *held;      /* what policies are asked about, */
    cf_dcp_item *items; /* and what each is */
    size_t count, cap_held, cap_items;
    cf_text differ; /* as in cf_layout */
    size_t n_differ;
} cf_dcp;

/* The items of a write, each kept where it lies, or by its smallest holder. E_USAGE of a mesh. */
bool cf_dcp_begin(cf_plan *plan, struct cf_write *write, cf_err *err);

/* `.metadata`: what lies where. Items have their places. */
bool cf_dcp_metadata(const cf_dcp *dcp, const uint32_t *order, cf_text *out, cf_err *err);

#endif
