/* What a recipe recorded, and its turning into output files.
 *
 * A recipe names rows (or views of them) and the path they go to; cf_plan_finish checks that
 * everything is written or dropped by name, lays the files out to the byte, and cf_plan_block
 * serialises all of it as one flat block (block.h), which is all that outlives the planner.
 */
#ifndef CF_PLAN_H
#define CF_PLAN_H

#include "holders.h"
#include "tensor.h"

typedef enum cf_writer {
    CF_WRITE_SAFETENSORS,
    CF_WRITE_JSON,
    CF_WRITE_TORCH,
    CF_WRITE_DCP,
    CF_WRITE_NPY
} cf_writer;

/* One thing to write: a row (tensor or value), a tensor made of views, or a value that a recipe
 * made. */
typedef struct cf_entry {
    const char *name;
    cf_row *row;
    const cf_tensor *tensor;
    const cf_node *value;
    const cf_path *path; /* where it goes in a tree of dicts and lists; NULL: nothing was said */
} cf_entry;

typedef struct cf_write_options {
    const char *as;          /* "safetensors" "json" ...; NULL: by the suffix */
    const char *const *meta; /* pairs of strings for safetensors' __metadata__ */
    size_t n_meta;
    uint64_t max_shard_size; /* 0: one file */
    cf_dtype dtype;          /* that floating point tensors are cast to; CF_NO_DTYPE: the plan's */
    bool keep;               /* no cast, whatever the plan says */
    const char *const *keep_dtype; /* globs of names that are not cast */
    size_t n_keep;
    bool nest;     /* entries have paths */
    int32_t ranks; /* dcp: cut anew for so many; 0: as the pieces are */
} cf_write_options;

/* A checkpoint beside the plan's own. */
typedef struct cf_other {
    cf_source source;
    cf_catalogue cat;
    struct cf_other *next;
} cf_other;

typedef struct cf_plan {
    cf_arena arena;
    cf_catalogue *cat;
    cf_replicas replicas;
    cf_dtype dtype; /* --dtype; CF_NO_DTYPE: as they are */
    const char *const *keep_dtype;
    int n_keep; /* --keep-dtype: globs of keys */
    struct cf_write *writes;
    size_t n_writes, cap_writes;
    struct cf_copy *copies;
    size_t n_copies, cap_copies;
    int threads;             /* that other checkpoints are read with; 0: one */
    struct cf_other *others; /* checkpoints of a recipe's options */
    const cf_mesh *mesh;     /* --mesh; NULL: not given */
    cf_holding *holding;     /* of the catalogue, when first needed; by row in `held` */
    cf_map held;
    cf_text notes;
} cf_plan;

void cf_plan_init(cf_plan *plan, cf_catalogue *cat);
void cf_plan_free(cf_plan *plan);

/* Entries are copied, rows borrowed. L_PLAN: no such writer, a writer that cannot hold a value,
 * several tensors for one npy file, a path that is absolute, has "..", or is written twice.
 * A safetensors file without tensors is not written. */
bool cf_plan_write(cf_plan *plan, const char *path, const cf_entry *entries, size_t count,
                   const cf_write_options *options, cf_err *err);
/* Does the writer of a path (and `as`; NULL: by the suffix) hold values that a recipe made? */
bool cf_plan_holds_values(const char *path, const char *as);
/* What a policy is to be asked about: the items of the write that was recorded last, if it is dcp;
 * *count 0 otherwise. Keepers are set: each item's file, or its smallest holder. */
cf_held *cf_plan_held(const cf_plan *plan, size_t *count, int32_t *ranks);
void cf_plan_drop(cf_plan *plan, cf_row *row);
/* Files of the checkpoint that match and that no format read; taken over byte for byte. */
bool cf_plan_copy(cf_plan *plan, const char *glob, cf_err *err);

/* L_PLAN "optim.x is neither written nor dropped". Lays out and makes the moves. */
bool cf_plan_finish(cf_plan *plan, cf_err *err);

#endif
