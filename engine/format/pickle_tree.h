/* A value's tree as a pickle that torch.load(weights_only=True) takes.
 *
 * What it takes: None, bool, int, float, complex, str, bytes, list, tuple, dict, set, dtypes,
 * devices, tensors. Numpy arrays become tensors, numpy scalars numbers, paths texts. What else
 * there is (objects, classes, tensors without data) cannot be held: an entry of a dict that holds
 * one is left out and told; anywhere else the whole value is.
 *
 * Shared values stay shared, lists and dicts may hold themselves.
 */
#ifndef CF_PICKLE_TREE_H
#define CF_PICKLE_TREE_H

#include "node.h"
#include "pickle_write.h"

typedef struct cf_pickle_tree {
    cf_pickler *p;
    /* Gives a tensor's or array's storage a number: fills what cf_pickle_tensor needs. */
    bool (*tensor)(void *ctx, const cf_view *view, cf_pickle_view *out, cf_err *err);
    /* An entry was left out; where: keys and places below the value, joined with "."; what: the
     * class that cannot be held. */
    void (*left_out)(void *ctx, const char *where, const char *what);
    void *ctx;
} cf_pickle_tree;

/* Can it be held? Else *what is the class of what cannot. */
bool cf_pickle_holds(const cf_node *value, const char **what);
/* Pushes a value that can. E_DEPTH beyond CF_MOST_DEPTH. */
bool cf_pickle_value(const cf_pickle_tree *tree, const cf_node *value, cf_err *err);

#endif
