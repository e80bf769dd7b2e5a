/* Items: tensors and values that lie in a slice of a file, each in a container of its own.
 *
 *   DCP's .distcp files: [ torch.save archive | safetensors blob | zstd frames of one of these ]*
 *
 * The metadata beside them claims file, offset, length, dtype and shape of each; a claim is
 * believed as far as planning goes, and held against the item when it is opened. Source:
 * torch/distributed/checkpoint/filesystem.py (_write_item, StorageReader), _extension.py (zstd).
 */
#ifndef CF_ITEM_H
#define CF_ITEM_H

#include "torchfile.h"
#include "zipfile.h"

/* What the metadata says of an item; lives as long as its storage. */
struct cf_claim {
    cf_dtype dtype; /* CF_NO_DTYPE: a value */
    uint8_t ndim;
    bool zstd;    /* the slice is a chain of zstd frames */
    int32_t rank; /* who wrote it, -1: not known */
    const int64_t *shape;
    const char *name; /* of the tensor, for safetensors blobs and messages */
};

/* The tensor of the item of `size` bytes at `at` of a file, not packed (any more): its storage is
 * located in that file. A safetensors blob may reach further than its item: torch counts only what
 * one tensor added to it. E_DTYPE, E_META_CONFLICT (shape) where the item is not what is claimed.
 */
bool cf_item_tensor(const cf_span *file, uint64_t at, uint64_t size, const cf_claim *claim,
                    cf_reading *r, const cf_view **view, cf_err *err);
/* The value of such an item. */
bool cf_item_value(const cf_span *file, uint64_t at, uint64_t size, cf_reading *r, cf_node **root,
                   cf_err *err);

/* Unpacks a chain of zstd frames in pieces, with or without a size in their headers, empty ones
 * too. E_LIMIT beyond `most` bytes. */
bool cf_item_unpack(const cf_span *slice, uint64_t most, cf_take *take, void *ctx, cf_err *err);

#endif
