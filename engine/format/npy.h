/* numpy's files: one array (.npy), or a zip of them (.npz).
 *
 *   93 'NUMPY' | major, minor | u16 (1.0) or u32 (2.0, 3.0) n | n bytes of header | elements
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   spaces, '\n'
 *
 * The header is a Python literal; what is read of Python here is just that dict, its three keys in
 * any order, each once. Source: numpy/lib/_format_impl.py. Stricter than numpy: nothing may follow
 * the elements. Read are the element types of dtype.c in either byte order; arrays of Python
 * objects are pickles (E_MAGIC), and records, texts, dates and numpy's raw bytes (V: so ml_dtypes
 * writes bfloat16, which then nothing tells from others) are no tensors (E_DTYPE).
 */
#ifndef CF_NPY_H
#define CF_NPY_H

#include "node.h"
#include "span.h"
#include "torchfile.h"

enum { CF_NPY_MAGIC = 6 };
static inline bool cf_npy_magic(const uint8_t *bytes, size_t size)
{
    return size >= CF_NPY_MAGIC && __builtin_memcmp(bytes, "\x93NUMPY", CF_NPY_MAGIC) == 0;
}

/* What a header says. */
typedef struct cf_npy {
    cf_dtype dtype;
    bool big_endian, fortran;
    int ndim;
    int64_t shape[CF_MOST_DIMS];
    uint64_t data, size; /* where the elements begin; bytes of elements */
} cf_npy;

enum { CF_NPY_MOST = 1 << 16 }; /* bytes before the elements: numpy itself stops at 10,000 */

/* The first `have` bytes, all or CF_NPY_MOST of them, of an array file of `whole` bytes. E_MAGIC,
 * E_TRUNCATED, E_TRAILING, E_LAYOUT (a header that is none), E_DTYPE, E_LIMIT (dimensions). */
bool cf_npy_header(const uint8_t *bytes, size_t have, uint64_t whole, cf_npy *out, cf_err *err);

/* All that comes before the elements of an array in C order, as numpy.save writes it: a multiple of
 * 64 bytes. E_DTYPE for what numpy has no type for. */
bool cf_npy_head(cf_text *out, cf_dtype dtype, int ndim, const int64_t *shape, cf_err *err);

/* A tensor of those elements, `offset` bytes into a storage; NULL on failure. */
cf_node *cf_npy_node(const cf_npy *npy, const cf_storage *storage, uint64_t offset, cf_reading *r,
                     cf_err *err);

/* root: a tensor. */
bool cf_npy_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err);

/* root: a dict of tensors by name, which is the member's without ".npy"; a member of another kind
 * is its bytes, as numpy.load has it (E_LIMIT beyond a MiB). Errors name the member. */
bool cf_npz_read(const cf_span *span, cf_reading *r, cf_node **root, cf_err *err);

/* Is this zip numpy's: does it hold an array, and no data.pkl of torch? */
bool cf_npz_is(const cf_span *span, cf_arena *arena);

#endif
