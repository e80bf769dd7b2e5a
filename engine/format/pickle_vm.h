/* Private to the pickle reader: the machine's state, and what a call folds into.
 *
 * pickle.c runs the opcodes; pickle_build.c decides what REDUCE, NEWOBJ and BUILD mean;
 * pickle_torch.c and pickle_numpy.c know the rebuild functions of those two; globals.c knows names;
 * pickle_memo.c keeps what is referred to again, pickle_common.c what is said again.
 */
#ifndef CF_PICKLE_VM_H
#define CF_PICKLE_VM_H

#include "pickle.h"
#include "span.h"

/* What calling a name gives. */
typedef enum cf_model {
    CF_CALL_OBJECT, /* an object of that class with its arguments */
    CF_CALL_DICT,
    CF_CALL_LIST,
    CF_CALL_TUPLE,
    CF_CALL_SET,
    CF_CALL_BYTES,
    CF_CALL_ENCODE,
    CF_CALL_COMPLEX,
    CF_CALL_PATH,
    CF_CALL_GETATTR,
    CF_CALL_GETITEM,
    CF_CALL_FLAGS, /* members of an enum, joined */
    CF_CALL_TYPE,
    CF_CALL_RECONSTRUCTOR,
    CF_CALL_NEWOBJ,
    CF_CALL_FIRST, /* its first argument: TorchScript's tags */
    CF_CALL_TENSOR,
    CF_CALL_TENSOR_V3,
    CF_CALL_META,
    CF_CALL_FROM_DEVICE,
    CF_CALL_PARAMETER,
    CF_CALL_FROM_TYPE,
    CF_CALL_WRAPPER,
    CF_CALL_LAYOUT,
    CF_CALL_ARRAY,
    CF_CALL_FROMBUFFER,
    CF_CALL_SCALAR
} cf_model;

/* Every class and global of a tree that the machine made is one of these. */
typedef struct cf_name {
    cf_global global;
    cf_model model;
    const cf_fields *fields; /* the names that objects of the class have, the latest first */
} cf_name;

/* ---- pickle_memo.c */

/* Writers number every object they write and refer to few of them again. A first pass over the
 * opcodes finds which; no other is kept. Heap memory. */
enum { CF_RECENT = 64 };
typedef struct cf_memo {
    uint64_t *read, *written; /* a bit a slot; written: of those beyond `dense` */
    uint32_t *rank;           /* slots read before each 64 of them */
    size_t words;             /* of read and rank */
    size_t written_words;
    uint64_t count;     /* slots written */
    uint64_t dense;     /* all slots below it are written, and it is not */
    uint64_t next_read; /* the first slot from `dense` on that is read some time */
    cf_node **nodes;    /* one a slot that is read; NULL: not written yet */
    struct cf_recent {
        uint64_t slot;
        cf_node *node;   /* NULL: no such slot */
    } recent[CF_RECENT]; /* read lately, by the slot's last bits */
} cf_memo;

bool cf_memo_init(cf_memo *memo, const uint8_t *bytes, size_t size, cf_err *err);
void cf_memo_free(cf_memo *memo);
bool cf_memo_put(cf_memo *memo, uint64_t slot, cf_node *node, cf_err *err);
/* The next slot is written, where nobody reads it: it only counts. False: it is to be put. */
static inline bool cf_memo_pass(cf_memo *memo)
{
    if (memo->count != memo->dense || memo->dense == memo->next_read) return false;
    memo->count = ++memo->dense;
    return true;
}
cf_node *cf_memo_find(cf_memo *memo, uint64_t slot);
static inline cf_node *cf_memo_get(cf_memo *memo, uint64_t slot) /* NULL: was never written */
{
    const struct cf_recent *r = &memo->recent[slot % CF_RECENT];
    return r->slot == slot && r->node ? r->node : cf_memo_find(memo, slot);
}

/* Short strings and short tuples of numbers, each once: metadata repeats them endlessly. Of
 * numbers, which are as often new, those that were made lately. */
typedef struct cf_commons {
    struct cf_common {
        uint64_t hash;
        cf_node *node; /* NULL: free */
    } * slots;
    size_t count, cap;
    cf_node **ints; /* by some bits of the value; what is new pushes out what was there */
    size_t cap_ints;
} cf_commons;

/* The node for a number, a string or a tuple: an equal one that was made before, or a new one.
 * NULL: out of memory, or (a string, with *bad set to the place) no UTF-8. */
bool cf_commons_init(cf_commons *c, size_t size); /* of a pickle of so many bytes */
void cf_commons_free(cf_commons *c);
cf_node *cf_common_int(cf_commons *c, cf_arena *arena, int64_t value);
cf_node *cf_common_string(cf_commons *c, cf_arena *arena, const char *at, size_t length,
                          size_t *bad);
cf_node *cf_common_tuple(cf_commons *c, cf_arena *arena, cf_node *const *items, size_t count);

typedef struct cf_vm {
    cf_pickle *p;
    const uint8_t *bytes;
    size_t size, at; /* at: the next byte */
    size_t end;      /* of the frame, or of the bytes outside frames */
    bool framed;
    cf_node **stack;
    size_t count, cap;
    size_t *marks; /* heights of the stack */
    size_t mark_count, mark_cap;
    cf_memo memo;
    cf_commons commons;
    cf_map names; /* globals met so far, by module, NUL, name -> their node */
    size_t steps; /* opcodes read */
    size_t spent; /* see cf_vm_spend */
    cf_node *none, *no, *yes, *unit, *small[256];
    cf_node *spare_dict, *spare_unit; /* a dict, a tuple of one, that nothing holds any more */
} cf_vm;

/* False with the arenas' error: for a node that could not be made. */
bool cf_vm_memory(const cf_vm *vm, cf_err *err);

/* What is copied, not read, is charged: `size` bytes or items. One pickle may copy no more than 64
 * times its own size (paths share their folders' names), so that a value that is copied again and
 * again cannot fill the memory. E_LIMIT. */
bool cf_vm_spend(cf_vm *vm, size_t size, cf_err *err);

bool cf_vm_widen(cf_vm *vm, cf_node *node, cf_err *err); /* room on the stack */
/* NULL: the node could not be made. */
static inline bool cf_vm_push(cf_vm *vm, cf_node *node, cf_err *err)
{
    if (!node || vm->count == vm->cap) CF_TRY(cf_vm_widen(vm, node, err));
    vm->stack[vm->count++] = node;
    return true;
}

void cf_vm_short(const cf_vm *vm, uint64_t n, cf_err *err); /* says why there are no n bytes */
/* The next n bytes. E_TRUNCATED, E_FRAME. */
static inline bool cf_vm_take(cf_vm *vm, uint64_t n, const uint8_t **out, cf_err *err)
{
    if (n > vm->end - vm->at) {
        cf_vm_short(vm, n, err);
        return false;
    }
    *out = vm->bytes + vm->at;
    vm->at += n;
    return true;
}

/* An unsigned little-endian number of `width` bytes. */
static inline bool cf_vm_number(cf_vm *vm, int width, uint64_t *out, cf_err *err)
{
    const uint8_t *at;
    CF_TRY(cf_vm_take(vm, (uint64_t)width, &at, err));
    *out = width == 1 ? *at : width == 2 ? cf_le16(at) : width == 4 ? cf_le32(at) : cf_le64(at);
    return true;
}

/* What an opcode with a value, or with a length of `width` bytes and that many bytes, pushes. */
bool cf_vm_push_int(cf_vm *vm, int64_t value, cf_err *err);
bool cf_vm_push_long(cf_vm *vm, int width, cf_err *err);
bool cf_vm_push_float(cf_vm *vm, cf_err *err);
bool cf_vm_push_text(cf_vm *vm, int width, cf_kind kind, cf_err *err);
bool cf_vm_push_old_text(cf_vm *vm, int width, cf_err *err);

/* The node of a name: a global, or a dtype. E_GLOBAL_DENIED. */
bool cf_vm_global(cf_vm *vm, const char *module, const char *name, cf_node **out, cf_err *err);

/* Whose module it is. */
typedef enum cf_family { CF_PYTHON, CF_TORCH, CF_NUMPY, CF_OTHERS } cf_family;
cf_family cf_name_family(const char *module);
/* cf_global_trust, and what a call gives. */
cf_trust cf_name_find(const char *module, const char *name, cf_model *model);

bool cf_vm_call(cf_vm *vm, cf_node *callee, cf_node *args, cf_node **out, cf_err *err);
bool cf_vm_build(cf_vm *vm, cf_node *target, cf_node *state, cf_err *err);
/* One key and value for a dict. E_DUP_KEY. */
bool cf_vm_set(cf_vm *vm, cf_dict *dict, cf_node *key, cf_node *value, cf_err *err);
bool cf_vm_fold_state(cf_vm *vm, cf_node *state, cf_node **out, cf_err *err);
/* What BUILD gave: fields where it can be, else a state. */
bool cf_vm_state(cf_vm *vm, cf_object *object, cf_node *state, cf_err *err);
/* The same of keys and values in turn; *done: they are names that objects of its class have. */
bool cf_vm_fields(cf_vm *vm, cf_object *object, cf_node *const *items, size_t n, bool *done,
                  cf_err *err);
bool cf_vm_object(cf_vm *vm, const cf_global *class, cf_node *args, cf_node **out, cf_err *err);

/* A persistent id. */
bool cf_vm_storage(cf_vm *vm, const cf_node *id, cf_node **out, cf_err *err);
bool cf_vm_torch(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err);
bool cf_vm_numpy(cf_vm *vm, const cf_name *name, cf_node *args, cf_node **out, cf_err *err);
/* BUILD on an ndarray: `target` becomes an array where its elements are plain. */
bool cf_vm_array(cf_vm *vm, cf_node *target, cf_node *state, cf_err *err);

/* Argument number i of a tuple; NULL if there is none, or it is of another kind. */
cf_node *cf_vm_arg(const cf_node *args, size_t i, cf_kind kind);
bool cf_vm_bad_args(const cf_global *callee, cf_err *err); /* E_TYPE */
/* Sizes or strides. */
bool cf_vm_sizes(const cf_node *node, int64_t out[CF_MOST_DIMS], int *n, cf_err *err);
bool cf_vm_is(const cf_global *global, const char *module, const char *name);

#endif
