/* What the files that lay out share: layout.c (what goes where), layout_tensors.c (pieces to moves,
 * safetensors files), layout_values.c (JSON files), layout_torch.c with layout_share.c and
 * layout_archive.c (torch files). Private to them. */
#ifndef CF_LAYING_H
#define CF_LAYING_H

#include "layout.h"
#include "moves.h"
#include "torch_layout.h"

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
    cf_text values; /* of torch files: cf_b_value, until those of JSON files are there */
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
/* Those of one entry, a tensor. */
bool cf_lay_entry(cf_layout *l, const cf_write *w, const cf_entry *e, cf_items *items, cf_err *err);
/* The same of all rows in an item. */
bool cf_lay_compares(cf_layout *l, cf_item *it, cf_err *err);
/* The moves that fill a chunk with the item's elements. */
bool cf_lay_filling(cf_layout *l, const cf_item *it, cf_b_chunk *chunk, cf_err *err);
/* The item as a tensor of the chunk that is laid next; its number. path: in the file, as JSON. */
uint32_t cf_lay_tensor(cf_layout *l, const cf_item *it, cf_ref path);
/* Bytes of the item's elements; E_OVERFLOW names it. */
bool cf_lay_size(const cf_item *it, uint64_t *size, cf_err *err);
/* model.pt, 1, 3 -> model-00001-of-00003.pt, as Hugging Face names them. */
void cf_lay_part_name(cf_text *name, const char *path, size_t number, size_t parts);
bool cf_lay_view(cf_layout *l, cf_items *items, const char *name, const cf_view *view, cf_err *err);
/* One safetensors file, or several and their index where max_shard_size or the header's limit asks
 * for it. options may be NULL. */
bool cf_lay_safetensors(cf_layout *l, const char *path, cf_items *items,
                        const cf_write_options *options, cf_err *err);

/* A chunk of the item's elements, with what the item is, at a place in the file. */
bool cf_lay_item(cf_layout *l, cf_item *it, uint64_t begin, uint64_t size, cf_err *err);

/* ---- layout_npy.c: the npy file of a write, which has one tensor */
bool cf_lay_npy(cf_layout *l, size_t number, cf_err *err);

/* ---- layout_archive.c: one archive of torch.save, anywhere in a file. Begin, then for each
 * storage its place and one chunk (the caller's) that fills it, then the end. */
typedef struct cf_archive {
    cf_torch_layout z;
    uint64_t base;  /* where it begins in the file */
    uint64_t first; /* number of its first chunk */
} cf_archive;

void cf_lay_archive(cf_layout *l, cf_archive *a, uint64_t base, const char *top,
                    const cf_text *pickle);
/* Where in the file the next storage, of `size` bytes, begins. */
uint64_t cf_lay_storage(cf_layout *l, cf_archive *a, uint64_t size);
/* *end: where in the file the archive does. E_OVERFLOW, E_MEMORY. Frees it in any case. */
bool cf_lay_archive_end(cf_layout *l, cf_archive *a, uint64_t *end, cf_err *err);

/* ---- layout_share.c: which items have their bytes together */
typedef struct cf_shared {
    uint32_t like;       /* the first item with the very same elements: perhaps itself */
    uint32_t storage;    /* number in `storages` of the storage that is kept whole; CF_B_NONE */
    const cf_view *view; /* of the storage, then */
} cf_shared;

typedef struct cf_sharing {
    cf_shared *of; /* by number of the item */
    size_t count;
    const cf_view **storages; /* kept ones, as rows of elements */
    size_t n_storages, cap;
} cf_sharing;

bool cf_lay_sharing(cf_layout *l, const cf_items *items, cf_sharing *sharing, cf_err *err);

/* ---- layout_torch.c */
/* The torch file of a write, or several and their index. */
bool cf_lay_torch(cf_layout *l, size_t number, cf_err *err);

/* ---- layout_dcp.c: the files of a dcp write */
bool cf_lay_dcp(cf_layout *l, size_t number, cf_err *err);

/* ---- layout_names.c: when all is laid out */
/* What a manifest says of a value that file number `file` holds under a name. */
cf_b_value cf_lay_value_names(cf_layout *l, uint64_t file, const cf_row *row, const char *name);
bool cf_lay_names(cf_layout *l, cf_err *err);
/* A path as a JSON list; empty for NULL, which is one string. */
cf_ref cf_lay_path(cf_layout *l, const cf_path *path);

/* ---- layout_values.c */
/* The JSON file of a write; the tensors inside its values go to the safetensors file of the same
 * name, with those that have a key of their own. */
bool cf_lay_values(cf_layout *l, size_t number, cf_err *err);

#endif
