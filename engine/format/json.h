/* JSON as trees: read by jansson, and written with what JSON itself lacks (CLI.md, "Values in
 * JSON") as objects of one `$` key. */
#ifndef CF_JSON_H
#define CF_JSON_H

#include "node.h"

/* A whole JSON text. E_JSON, E_DUP_KEY, E_UTF8, E_DEPTH, with the byte offset. Objects become
 * dicts in their order, integers stay exact (beyond 64 bits: E_NUMBER). */
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

#endif
