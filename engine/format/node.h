/* One value of a pickle or JSON tree: inert data, never executed.
 *
 * A tree is a graph: shared values are shared nodes, and lists, dicts and object states may hold
 * themselves. Every walker bounds its depth by CF_MOST_DEPTH and expects cycles. Nodes and what
 * they point to live in the arena of their file (`tree`); texts may point into the file's bytes,
 * which live there too. Storages live in the `keep` arena, which outlives the tree.
 */
#ifndef CF_NODE_H
#define CF_NODE_H

#include "arena.h"
#include "map.h"
#include "text.h"
#include "view.h"

enum { CF_MOST_DEPTH = 200, CF_FEW = 16 /* keys that need no index */ };

typedef enum cf_kind {
    CF_NODE_NONE,
    CF_NODE_BOOL,    /* integer: 0 or 1 */
    CF_NODE_INT,     /* integer */
    CF_NODE_BIG,     /* text: decimal digits of an integer beyond 64 bits */
    CF_NODE_FLOAT,   /* real */
    CF_NODE_COMPLEX, /* complex */
    CF_NODE_STRING,  /* text: UTF-8, may hold NULs */
    CF_NODE_BYTES,   /* text */
    CF_NODE_LIST,    /* list */
    CF_NODE_TUPLE,   /* list; torch.Size too */
    CF_NODE_SET,     /* list; frozenset too */
    CF_NODE_DICT,    /* dict, in the file's order; OrderedDict, defaultdict, Counter too */
    CF_NODE_OBJECT,  /* object */
    CF_NODE_GLOBAL,  /* global: a class itself (or, with --inert, a forbidden name) */
    CF_NODE_DTYPE,   /* dtype: torch.float32 */
    CF_NODE_TENSOR,  /* view */
    CF_NODE_ARRAY,   /* view: a numpy array in C or Fortran order, its bytes in memory */
    CF_NODE_SCALAR,  /* view of one element, shape []: a numpy scalar */
    CF_NODE_STORAGE  /* storage that is not (yet) part of a tensor */
} cf_kind;

typedef struct cf_node cf_node;

typedef struct cf_string {
    const char *at; /* not NUL-terminated */
    size_t length;
} cf_string;

typedef struct cf_list {
    cf_node **items;
    size_t count, cap;
} cf_list;

typedef struct cf_pair {
    cf_node *key, *value;
} cf_pair;

typedef struct cf_dict {
    cf_pair *pairs;
    size_t count, cap;
    cf_map *index; /* the key's canonical bytes -> number of the pair; NULL: see node.c */
} cf_dict;

typedef enum cf_trust {
    CF_MODELLED, /* the engine knows what it is */
    CF_FOREIGN,  /* a class of a third party: opaque */
    CF_FORBIDDEN /* only with --inert */
} cf_trust;

typedef struct cf_global {
    const char *module,
        *name; /* NUL-terminated: "torch.distributed._shard.metadata", "ShardMetadata" */
    cf_trust trust;
} cf_global;

/* Names of fields, shared by the objects of a class: metadata holds them by the million. */
typedef struct cf_fields {
    const struct cf_fields *next; /* other names that objects of the class have */
    size_t count;                 /* 1 to CF_FEW */
    cf_node *names[];             /* strings */
} cf_fields;

typedef struct cf_parts {
    cf_node *args;  /* a tuple; NULL: none */
    cf_node *state; /* what BUILD gave, slot and dict states merged into one dict; NULL: none */
    cf_list items;  /* what APPEND(S) gave */
    cf_dict pairs;  /* what SETITEM(S) gave */
} cf_parts;

/* Most objects are nothing but a few named values: those have `fields`, and no other parts. */
typedef struct cf_object {
    const cf_global *class;
    const cf_fields *fields; /* NULL: it has parts */
    union {
        cf_node **values; /* as many as fields */
        cf_parts *parts;  /* NULL: none at all */
    };
} cf_object;

struct cf_node {
    cf_kind kind;
    uint16_t height; /* cf_node_check_depth's: levels of containers here and below */
    bool memoed : 1; /* a pickle's memo leads here: more than one place may hold it */
    bool keyed : 1;  /* an object that is a key of some dict */
    bool plain : 1;  /* a tuple of integers: equal ones are one node, which says nothing */
    union {
        int64_t integer;
        double real;
        struct {
            double re, im;
        } complex;
        cf_string text;
        cf_list *list;
        cf_dict *dict;
        cf_object *object;
        const cf_global *global;
        cf_dtype dtype;
        const cf_view *view;
        struct {
            const cf_storage *storage;
            cf_dtype element; /* CF_U8 if it is untyped */
        };
    };
};

cf_node *cf_node_new(cf_arena *arena, cf_kind kind); /* LIST, TUPLE, SET, DICT come empty */
cf_node *cf_node_int(cf_arena *arena, int64_t value);
cf_node *cf_node_text(cf_arena *arena, cf_kind kind, const char *at, size_t length); /* borrows */

bool cf_list_add(cf_arena *arena, cf_list *list, cf_node *item);

/* Adds or replaces. Keys may be None, bool, int, big, float, complex, string, bytes, dtypes,
 * globals, tuples of those, and by identity objects, sets, tensors and numpy scalars. E_TYPE for
 * others (unhashable); E_LIMIT for a tuple key of more than 4096 parts, 64 levels or 64 KiB.
 * *replaced tells that the key was there. */
bool cf_dict_set(cf_arena *arena, cf_dict *dict, cf_node *key, cf_node *value, bool *replaced,
                 cf_err *err);
/* Makes the index of a dict whose pairs were filled in by hand. */
bool cf_dict_index(cf_arena *arena, cf_dict *dict, cf_err *err);
/* NULL if absent. An int key finds only ints (and bools equal to it), a string only strings. */
cf_node *cf_dict_find(const cf_dict *dict, const cf_node *key);
cf_node *cf_dict_string(const cf_dict *dict, const char *key); /* by text */

/* What an object has beside fields; all empty where there is nothing. */
const cf_parts *cf_object_parts(const cf_object *object);
/* The same to be changed: fields become a state. NULL: the arena failed. */
cf_parts *cf_object_own(cf_arena *arena, cf_object *object);

/* An object's fields, or its state if that is a dict, as a dict (made in `room`); NULL: neither. */
typedef struct cf_record {
    cf_dict dict;
    cf_pair pairs[CF_FEW];
} cf_record;
const cf_dict *cf_object_dict(const cf_object *object, cf_record *room);

/* A field of an object's state (a dict), or a dict's string key; NULL. */
cf_node *cf_node_field(const cf_node *node, const char *name);

/* "dict" "list" "tuple" "set" "bytes" "string" "integer" "float" "complex" "boolean" "none"
 * "tensor" "dtype", or the last part of a class's name: "ShardedTensor"; "ndarray" and numpy's
 * scalar type ("float64") for arrays and scalars. */
const char *cf_node_class(const cf_node *node);

/* E_DEPTH if containers nest deeper than CF_MOST_DEPTH, else all later walks may recurse. Each node
 * is visited once, without recursion; a container within itself counts once. */
bool cf_node_check_depth(cf_node *root, cf_err *err);

/* Deep equality by value, floats by their bits, dicts and sets in any order; tensors are equal if
 * they are the same view of the same place, arrays if they hold the same bytes in the same shape.
 * Cycles and anything deeper than CF_MOST_DEPTH compare unequal unless identical; so do trees that
 * take more than 2^22 steps (a node, or 1 KiB of an array), for shared nodes unfold. */
bool cf_node_equal(const cf_node *a, const cf_node *b);

/* A hash that is equal for equal trees (bounded like cf_node_equal), arrays by their bytes, and
 * what lies in a file too where `peek` gives its bytes; else by the checksum of its record, or by
 * its place. peek NULL: it gives none. */
typedef const uint8_t *cf_peek(void *ctx, const cf_view *view);
uint64_t cf_node_hash(const cf_node *node, cf_peek *peek, void *ctx);

/* Python-like, one line, cut to about `most` bytes: {'a': (1, 2.5), 'm': megatron.X{...}}. Equal
 * nodes with equal order give the same text: plugins use it as a key for small tuples. */
void cf_node_show(cf_text *text, const cf_node *node, size_t most);

/* What a numpy scalar in memory holds: a bool, int, big, float or complex. NULL for other nodes,
 * or if the arena failed. */
cf_node *cf_node_number(cf_arena *arena, const cf_node *scalar);

/* A deep copy with nothing left in the old arenas but storages of tensors; shared stays shared,
 * cycles stay cycles. NULL: the arena failed. */
cf_node *cf_node_copy(cf_arena *arena, const cf_node *node);

#endif
