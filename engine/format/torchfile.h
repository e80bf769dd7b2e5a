/* Files of torch.save: the zip form (torch 1.6 and later) and the stream form before it.
 *
 *   zip:    <top>/data.pkl, <top>/data/<key> (storages), <top>/byteorder, <top>/version
 *   stream: pickles of a magic number, a protocol version and the sizes of types; the pickle of
 *           the object; the pickle of a list of storage keys; then for each key an int64 count of
 *           elements and the elements
 *
 * Source: torch/serialization.py. The root is an inert tree whose tensors are views of storages
 * that were located but not read.
 */
#ifndef CF_TORCHFILE_H
#define CF_TORCHFILE_H

#include "node.h"
#include "span.h"

typedef struct cf_reading {
    cf_arena *tree; /* nodes: freed when the file has been read */
    cf_arena *keep; /* storages */
    uint32_t file;  /* number that storages carry */
    bool open_end;  /* safetensors: more may follow the last tensor */
    bool item;      /* of a file: cf_zip_open_item */
    bool inert;
    cf_err *cut; /* safetensors: a file that ends early is read all the same, and this is why; what
                  * it lost lies nowhere. NULL: it is an error */
    char forbidden[192]; /* out: as cf_pickle's */
} cf_reading;

bool cf_torch_zip_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err);
bool cf_torch_legacy_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err);
/* One bare pickle that is the whole file. */
bool cf_pickle_file_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err);

/* Do these first bytes begin a stream-form file? */
bool cf_torch_legacy_magic(const uint8_t *bytes, size_t size);

#endif
