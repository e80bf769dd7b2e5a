/* Items by the hundred thousand: what the metadata of a checkpoint lists, as pieces of a part.
 *
 * A table of tensors (name -> dtype, shape and the boxes it is cut into) and a table of places
 * ({name, offsets} -> file, offset, length). Their fields have whatever names the writer gave them:
 * a plugin says which. Nothing is opened: what an item really is, its worker finds out.
 */
#ifndef CF_ITEMS_H
#define CF_ITEMS_H

#include "catalogue.h"
#include "item.h"

/* The fields that are looked for; see ITEM_FIELDS in script/bind_items.c for their meaning. */
typedef enum cf_item_field {
    CF_ITEM_DTYPE, /* of an entry of the table of tensors */
    CF_ITEM_SHAPE,
    CF_ITEM_CHUNKS,
    CF_ITEM_CHUNK_AT, /* of one of its chunks */
    CF_ITEM_CHUNK_SIZE,
    CF_ITEM_NAME, /* of a key of the table of places */
    CF_ITEM_AT,
    CF_ITEM_HINT,
    CF_ITEM_PATH, /* of a place */
    CF_ITEM_OFFSET,
    CF_ITEM_LENGTH,
    CF_ITEM_DECODE,
    CF_ITEM_FIELDS
} cf_item_field;

typedef struct cf_items_spec {
    const cf_node *tensors, *places;
    const cf_node *order; /* a dict that begins with names in their order, or NULL */
    const char *fields[CF_ITEM_FIELDS];
    size_t dtype; /* element of the field dtype, from 1; 0: the field itself */
    /* The file of a path and whose it is, asked once a path; CF_NO_FILE and err filled: it is not
     * there. False: refused. */
    bool (*find)(void *ctx, const cf_node *path, uint32_t *file, int32_t *rank, cf_err *err);
    void *ctx;
} cf_items_spec;

enum { CF_NO_FILE = 0xffffffff };

/* E_TYPE, E_NUMBER, E_OVERFLOW, E_BOUNDS, E_STORAGE_SIZE: what the tables say cannot be. Items of
 * files that are missing or too short are filed as lost. E_META_CONFLICT: an item where no chunk is
 * listed. E_DUP_KEY: two items of one chunk. E_COVERAGE: a value without an item. Errors name the
 * row, and the file where there is one. */
bool cf_part_items(cf_part *part, const cf_items_spec *spec, cf_err *err);

/* An item of a claim at a place of a file, held against the file's size. */
bool cf_item_place(const cf_source *source, uint32_t file, int64_t offset, int64_t length,
                   const cf_claim *claim, cf_storage *storage, cf_err *err);

/* Whether a chain of transforms is one that is known. E_TYPE. */
bool cf_item_decode(const cf_node *decode, bool *zstd, cf_err *err);

#endif
