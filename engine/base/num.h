/* Checked arithmetic on what files say. Every size, offset and count that came from outside goes
 * through here; a result that does not fit in 63 bits (or would be negative) is refused. */
#ifndef CF_NUM_H
#define CF_NUM_H

#include <stdbool.h>
#include <stdint.h>

static inline bool cf_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool cf_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Product of a shape. False if a size is negative, or the product does not fit: also where a 0
 * follows, so that the order of sizes does not matter. */
static inline bool cf_numel(const int64_t *shape, int ndim, int64_t *out)
{
    int64_t n = 1;
    bool zero = false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0) return false;
        if (shape[d] == 0)
            zero = true;
        else if (!cf_mul(n, shape[d], &n))
            return false;
    }
    *out = zero ? 0 : n;
    return true;
}

static inline int64_t cf_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cf_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
