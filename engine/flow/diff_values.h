/* Two values (trees of nodes) held together: the first place where they differ. */
#ifndef CF_DIFF_VALUES_H
#define CF_DIFF_VALUES_H

#include "node.h"

/* Two tensors or arrays at the same place of two values. */
typedef struct cf_value_views {
    const char *path;
    const cf_view *left, *right;
} cf_value_views;

typedef struct cf_value_diff {
    cf_arena *arena;
    double tolerance;      /* of floats */
    cf_text where;         /* out: "['a'][3]: 1 / 2"; empty if nothing differs */
    cf_value_views *views; /* out: to be compared by their bytes; dtype and shape are equal */
    size_t count, cap;
} cf_value_diff;

/* False where they differ. Dicts in any order, sets and what else has no order by cf_node_equal,
 * shared and cyclic containers as far as they are alike; beyond CF_MOST_DEPTH or 2^22 steps they
 * differ. A numpy array is like a tensor: what was written as JSON comes back as one. */
bool cf_values_alike(cf_value_diff *d, const cf_node *a, const cf_node *b);

#endif
