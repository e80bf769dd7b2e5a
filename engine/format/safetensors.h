/* safetensors: a JSON header of names, then the bytes.
 *
 *   u64 n (little-endian) | n bytes of JSON, padded with spaces | data
 *   {"<name>": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
 *    "__metadata__": {"<string>": "<string>"}}
 *
 * Rules of huggingface/safetensors safetensors/src/tensor.rs: n <= 100,000,000; the ranges, in
 * order of begin, start at 0, touch one another and end with the file; end - begin is the product
 * of the shape and the element size. Stricter here: a name or field twice is E_DUP_KEY. The header
 * is read by a streaming reader of our own: a JSON tree of a million tensors would take a gigabyte.
 */
#ifndef CF_SAFETENSORS_H
#define CF_SAFETENSORS_H

#include "node.h"
#include "span.h"
#include "torchfile.h"

/* root: a dict of name -> tensor in the header's order, all views of one storage (the data);
 * meta: a dict of strings, empty without __metadata__. */
bool cf_safetensors_read(const cf_span *span, cf_reading *r, cf_node **root, cf_node **meta,
                         cf_err *err);

typedef struct cf_st_tensor {
    const char *name;
    size_t length;
    cf_dtype dtype;
    int ndim;
    const int64_t *shape;
    uint64_t begin, end; /* in the data, set by the caller: touching, from 0 */
} cf_st_tensor;

enum { CF_ST_ALIGN = 4096, CF_ST_MOST_HEADER = 100000000 };

/* The first bytes of a file, length field and padding to CF_ST_ALIGN with it. meta: pairs of
 * strings, n_meta * 2 of them, written first. */
bool cf_safetensors_header(cf_text *out, const cf_st_tensor *tensors, size_t count,
                           const char *const *meta, size_t n_meta, cf_err *err);

/* Bytes that one tensor's entry takes in the header, for splitting before it grows too large. */
size_t cf_safetensors_entry_size(const cf_st_tensor *tensor);

#endif
