/* JSON as trees, and values of a checkpoint as JSON: what JSON itself lacks (CLI.md, "Values in
 * JSON") is an object with one `$` key. */
#ifndef CF_JSON_H
#define CF_JSON_H

#include "node.h"

/* A whole JSON text. E_JSON, E_DUP_KEY, E_UTF8, E_DEPTH, E_NUMBER (a float beyond a double), with
 * the byte offset. Objects become dicts in their order, integers stay exact. */
bool cf_json_read(const char *text, size_t size, cf_arena *tree, cf_node **root, cf_err *err);

/* Tensors and arrays met inside a value: each is written as {"$tensor": "<key>#<n>"} with n from 1
 * in the order they are met. */
typedef struct cf_json_tensors {
    cf_arena *arena; /* of names */
    const char *key;
    struct cf_json_tensor {
        const char *name;
        const cf_view *view;
    } * items;
    size_t count, cap;
} cf_json_tensors;

/* One value of the flat table that train.json is: appends its JSON to out. Shared and cyclic
 * containers become {"$ref": "/path"} from the second time on; a path is that of RFC 6901 within
 * the value written. indent: spaces before the line that the value begins on; < 0: all on one
 * line. tensors NULL: tensors are described, as those without data are. */
bool cf_json_value(cf_text *out, const cf_node *value, int indent, cf_json_tensors *tensors,
                   cf_err *err);

/* What decoding needs beside the JSON. */
typedef struct cf_json_decoding {
    cf_arena *arena; /* of the new nodes; what needs no decoding is shared with the JSON tree */
    bool inert;      /* forbidden names are classes like others, not E_GLOBAL_DENIED */
    /* Gives the view that {"$tensor": "<name>"} stands for. NULL: there are none (E_JSON). */
    bool (*tensor)(void *ctx, const char *name, size_t length, const cf_view **out, cf_err *err);
    void *ctx;
} cf_json_decoding;

/* The value that cf_json_value wrote, from its JSON tree as cf_json_read gave it, which must not
 * change afterwards. Arrays come back as tensors: where their bytes are has no more to say. What is
 * no such object is E_JSON and names the path. */
bool cf_json_decode(const cf_json_decoding *from, cf_node *json, cf_node **value, cf_err *err);

#endif
