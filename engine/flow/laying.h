/* What the files that lay out share: layout.c (what goes where), layout_tensors.c (pieces to moves,
 * safetensors files), layout_values.c (JSON files). Private to them. */
#ifndef CF_LAYING_H
#define CF_LAYING_H

#include "layout.h"
#include "moves.h"

/* A tensor of a file that is being laid out. */
typedef struct cf_item {
    const char *name, *key, *role;
    const cf_tensor *tensor;
    cf_dtype dtype; /* in the file */
    cf_dtype cast;  /* of the elements: another for what is stored as pairs */
    int ndim;
    const int64_t *shape;
    bool compared;
} cf_item;

typedef struct cf_items {
    cf_item *list;
    size_t count, cap;
} cf_items;

typedef struct cf_layout {
    cf_plan *plan;
    cf_blocker *b;
    cf_mover mover;
    bool *written;  /* by number of the write */
    cf_text differ; /* keys of tensors that may differ between ranks and do */
    size_t n_differ;
} cf_layout;

/* ---- layout.c */
uint64_t cf_lay_chunks(const cf_layout *l); /* so many there are: the number of the next */
void cf_lay_chunk(cf_layout *l, uint64_t begin, uint64_t size, cf_ref bytes);
/* A file of the chunks from number `first` on. */
void cf_lay_file(cf_layout *l, const char *path, uint64_t size, uint64_t first);
/* A file of known bytes. */
void cf_lay_bytes(cf_layout *l, const char *path, const cf_text *text);

/* ---- layout_tensors.c */
/* The items of a write: one an entry, cast as the options say; with --values per-rank one for each
 * rank's copy of a tensor that differs, under rank<N>.<name>. */
bool cf_lay_items(cf_layout *l, const cf_write *w, cf_items *items, cf_err *err);
/* All replicas of a row, once: equal by their stored checksums, or to be compared. E_META_CONFLICT
 * where those differ. *compared is set if there was anything to hold together. */
bool cf_lay_replicas(cf_layout *l, cf_row *row, bool *compared, cf_err *err);
bool cf_lay_view(cf_layout *l, cf_items *items, const char *name, const cf_view *view, cf_err *err);
/* One safetensors file, or several and their index where max_shard_size or the header's limit asks
 * for it. options may be NULL. */
bool cf_lay_safetensors(cf_layout *l, const char *path, cf_items *items,
                        const cf_write_options *options, cf_err *err);

/* ---- layout_names.c: when all is laid out */
bool cf_lay_names(cf_layout *l, cf_err *err);

/* ---- layout_values.c */
/* The JSON file of a write; the tensors inside its values go to the safetensors file of the same
 * name, with those that have a key of their own. */
bool cf_lay_values(cf_layout *l, size_t number, cf_err *err);

#endif
