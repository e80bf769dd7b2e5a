/* Where elements are: a storage (bytes somewhere) and a view (dtype, shape, strides) over it.
 *
 * Nothing here reads an element; flow/ turns views into moves. Both structs live in the arena
 * they were made in and are never changed afterwards.
 */
#ifndef CF_VIEW_H
#define CF_VIEW_H

#include "arena.h"
#include "dtype.h"

enum { CF_MOST_DIMS = 64 }; /* torch's own limit of TensorIterator */

typedef enum cf_place {
    CF_IN_FILE,   /* `size` bytes at `offset` of file number `file` */
    CF_IN_MEMORY, /* `bytes`: a numpy array inside a pickle */
    CF_IN_MEMBER, /* a compressed zip member of `packed` bytes at `offset`; `size` when decoded */
    CF_IN_ITEM, /* an item of `packed` bytes at `offset`, not opened yet: what `claim` says of it */
    CF_NOWHERE  /* no data: a meta tensor */
} cf_place;

typedef struct cf_claim cf_claim; /* item.h */

typedef struct cf_storage {
    cf_place place;
    uint32_t file;   /* number of the file in the checkpoint's listing */
    uint64_t offset; /* of the payload's first byte, from the start of the file */
    uint64_t size;   /* bytes of the payload, decoded */
    uint64_t packed; /* CF_IN_MEMBER, CF_IN_ITEM: bytes in the file */
    union {
        const uint8_t *bytes;  /* CF_IN_MEMORY */
        const cf_claim *claim; /* CF_IN_ITEM */
    };
    const char *name; /* "archive/data/17", for messages; "" where there is none */
    uint32_t crc;     /* CRC-32 of the payload, where has_crc */
    uint16_t method;  /* CF_IN_MEMBER: the zip compression method */
    bool has_crc;
    bool big_endian;
} cf_storage;

typedef struct cf_view {
    const cf_storage *storage;
    uint64_t offset; /* of the first element, in BYTES of the storage */
    int64_t numel;
    cf_dtype dtype;  /* of the elements as they come out */
    cf_dtype stored; /* of the elements in the storage: another where the view casts */
    uint8_t ndim;
    bool conj, neg; /* torch's lazy bits: the imaginary part, or everything, has its sign flipped */
    const int64_t *shape;  /* ndim sizes >= 0 */
    const int64_t *stride; /* ndim strides >= 0, in ELEMENTS of dtype */
} cf_view;

/* A view with its own copy of shape and strides (stride NULL: row-major), checked against the
 * storage: E_NUMBER (negative), E_OVERFLOW, E_LIMIT (dimensions), E_BOUNDS. A view without
 * elements may lie anywhere. NULL on failure. */
const cf_view *cf_view_new(cf_arena *arena, const cf_storage *storage, cf_dtype dtype,
                           uint64_t offset, int ndim, const int64_t *shape, const int64_t *stride,
                           cf_err *err);

/* A copy that outlives the original's arena; the storage is shared, not copied. */
const cf_view *cf_view_copy(cf_arena *arena, const cf_view *view);

/* Do the elements lie in row-major order without gaps? */
bool cf_view_dense(const cf_view *view);

/* "F32[2, 3]" into out. */
const char *cf_view_text(cf_dtype dtype, int ndim, const int64_t *shape, char *out, size_t size);

#endif
