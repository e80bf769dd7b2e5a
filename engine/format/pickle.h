/* An inert pickle reader: protocols 2 to 5 as real writers use them, nothing is ever called.
 *
 * Source: CPython Lib/pickletools.py (opcodes), torch/_weights_only_unpickler.py, torch/_utils.py
 * (rebuild functions). The machine is iterative: no recursion however deep a pickle nests.
 *
 * Opcodes: PROTO FRAME STOP MARK POP POP_MARK EMPTY_* NONE NEW* BININT* LONG1 LONG4 BINFLOAT
 * (SHORT_)BINUNICODE(8) (SHORT_)BINBYTES(8) BINSTRING SHORT_BINSTRING BYTEARRAY8 TUPLE* LIST DICT
 * APPEND(S) SETITEM(S) ADDITEMS FROZENSET GLOBAL STACK_GLOBAL REDUCE BUILD NEWOBJ NEWOBJ_EX
 * BINPERSID BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET. Others are E_OPCODE.
 *
 * Names fall into three classes (CLI.md, "What a pickle may name"); the tables are in globals.c.
 */
#ifndef CF_PICKLE_H
#define CF_PICKLE_H

#include "node.h"

/* A persistent id of torch.save: ('storage', <class>, key, location, numel [, view]). */
typedef struct cf_persid {
    cf_dtype dtype; /* of the storage class; CF_U8 for UntypedStorage */
    bool untyped;   /* numel counts bytes, and the tensor names its own dtype */
    cf_string key;
    cf_string location;
    int64_t numel;
    bool has_view; /* torch before 1.6: a storage that is part of another */
    cf_string view_key;
    int64_t view_offset, view_numel; /* in elements */
} cf_persid;

typedef struct cf_pickle {
    cf_arena *tree, *keep;
    bool checked; /* the bytes were held against a checksum */
    bool inert;   /* --inert: a forbidden name becomes an opaque value instead of an error */
    /* Gives the storage of an id; the same pointer for the same key. NULL: the file may hold no
     * persistent ids (E_PERSID). */
    bool (*storage)(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *err);
    void *ctx;
    /* Not NULL: the bytes go before the tree does, whose texts are copies. It is told from time to
     * time how many bytes from the first on will not be read again. */
    void (*passed)(const uint8_t *bytes, size_t size);
    /* First forbidden name met with `inert`, for the warning; "" if none. */
    char forbidden[192];
} cf_pickle;

/* Reads one pickle from the start of bytes, which stay as long as the tree, unless `passed`.
 * used: bytes up to and with STOP (NULL: anything behind STOP is E_TRAILING). Errors carry the
 * byte offset in the pickle. */
bool cf_pickle_read(cf_pickle *p, const uint8_t *bytes, size_t size, size_t *used, cf_node **root,
                    cf_err *err);

/* The class of a name. */
cf_trust cf_global_trust(const char *module, const char *name);

#endif
