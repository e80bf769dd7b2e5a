/* A pickle is written: protocol 2, the opcodes that CPython's own pickler uses, so that every
 * unpickler takes it, torch's restricted one (weights_only=True) too.
 *
 * Streaming: each call appends what pushes one value (or what combines values on the stack), in the
 * order in which a reader runs them; nothing is held back, so that a dict of a million tensors
 * costs its bytes alone. Errors are sticky and come out of cf_pickler_end. What is used again is
 * memoised: classes and words (texts that return, such as the names of optimizer states) by
 * themselves, other values where the caller says cf_pickle_put.
 *
 * Facts: Lib/pickle.py and Modules/_pickle.c of CPython 3.11 (batches of 1000, the sizes of
 * integers), torch/_tensor.py (__reduce_ex__: _rebuild_tensor_v2, and v3 for dtypes without a
 * storage class), torch/serialization.py (persistent ids), torch/_weights_only_unpickler.py (bytes
 * only through _codecs.encode, no opcode beyond protocol 2).
 */
#ifndef CF_PICKLE_WRITE_H
#define CF_PICKLE_WRITE_H

#include "dtype.h"
#include "map.h"
#include "text.h"

typedef struct cf_pickler {
    cf_text *out;
    cf_arena arena; /* of the memo's keys */
    cf_map known;   /* "module\nname\n" and "\0word" to the number in the memo and 1 */
    uint32_t memo;  /* the next number */
    cf_err err;     /* of what could not be said; code 0: none */
} cf_pickler;

/* Appends to out, beginning with the protocol. cf_pickler_free after it. */
void cf_pickler_init(cf_pickler *p, cf_text *out);
void cf_pickler_free(cf_pickler *p);
/* The end of the pickle. E_LIMIT, E_NUMBER: a value that protocol 2 cannot say; E_MEMORY. */
bool cf_pickler_end(cf_pickler *p, cf_err *err);

/* ---- the memo: of what is on top of the stack; its number */
uint32_t cf_pickle_put(cf_pickler *p);
void cf_pickle_get(cf_pickler *p, uint32_t number);

/* ---- atoms */
void cf_pickle_none(cf_pickler *p);
void cf_pickle_bool(cf_pickler *p, bool value);
void cf_pickle_int(cf_pickler *p, int64_t value);
enum { CF_PICKLE_DIGITS = 600 }; /* protocol 2's short integers have 255 bytes */
/* Decimal digits, perhaps after a '-'. */
void cf_pickle_big(cf_pickler *p, const char *digits, size_t length);
void cf_pickle_float(cf_pickler *p, double value);
void cf_pickle_complex(cf_pickler *p, double re, double im);
/* UTF-8 (lone surrogates may pass), below 4 GiB. */
void cf_pickle_string(cf_pickler *p, const char *at, size_t length);
/* The same, memoised by its content: for texts that return. */
void cf_pickle_word(cf_pickler *p, const char *at, size_t length);
void cf_pickle_text(cf_pickler *p, const char *word); /* a NUL-terminated word */
void cf_pickle_bytes(cf_pickler *p, const void *bytes, size_t length);
/* A class or function itself. */
void cf_pickle_global(cf_pickler *p, const char *module, const char *name);

/* ---- tuples: begin, n values, end */
void cf_pickle_tuple(cf_pickler *p, size_t n);
void cf_pickle_tuple_end(cf_pickler *p, size_t n);

/* ---- lists and dicts: cf_pickle_list or _dict pushes an empty one (an object may stand for it);
 * then cf_pickle_fill, for each item cf_pickle_item and its value (of a dict: key and value), and
 * cf_pickle_filled. */
typedef struct cf_filling {
    size_t left, batch; /* items to come; those since the last mark */
    char one, many;     /* opcodes */
    bool marked;
} cf_filling;

void cf_pickle_list(cf_pickler *p);
void cf_pickle_dict(cf_pickler *p);
cf_filling cf_pickle_fill_list(size_t count);
cf_filling cf_pickle_fill_dict(size_t count);
void cf_pickle_item(cf_pickler *p, cf_filling *f);
void cf_pickle_filled(cf_pickler *p, cf_filling *f);

/* ---- objects */
void cf_pickle_reduce(cf_pickler *p); /* callable, tuple of arguments -> what it returns */
void cf_pickle_new(cf_pickler *p);    /* class, tuple -> object, by __new__ */
void cf_pickle_build(cf_pickler *p);  /* object, state -> object */
void cf_pickle_persid(cf_pickler *p); /* a tuple -> what it stands for */
/* An object as dataclasses have it: class.__new__(class); the caller pushes its state (a dict) and
 * calls cf_pickle_build. */
void cf_pickle_object(cf_pickler *p, const char *module, const char *name);
/* OrderedDict(), to be filled like a dict. */
void cf_pickle_ordered(cf_pickler *p);

/* ---- torch */
void cf_pickle_dtype(cf_pickler *p, cf_dtype dtype);
void cf_pickle_size(cf_pickler *p, int ndim, const int64_t *shape); /* torch.Size */

/* A tensor over storage data/<key>, of `numel` elements of the tensor's dtype, from element
 * `offset` on. stride NULL: row-major. */
typedef struct cf_pickle_view {
    cf_dtype dtype;
    uint8_t ndim;
    const int64_t *shape, *stride;
    uint64_t key;
    int64_t numel, offset;
} cf_pickle_view;

void cf_pickle_tensor(cf_pickler *p, const cf_pickle_view *view);

#endif
