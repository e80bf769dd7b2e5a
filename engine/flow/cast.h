/* Elements of one dtype turned into another, rounded to nearest, ties to even.
 *
 * NaN stays NaN (with the quiet bit set), infinities stay or become what the target has for them,
 * denormals are kept. float8 e4m3fn has no infinity: what is too large becomes NaN there, as torch
 * does it; e8m0 (powers of two) and complex numbers are not cast. Floats become integers as torch's
 * cast does within range: towards zero; NaN and what is out of range is 0 or the nearest end.
 * Source: IEEE 754, OCP 8-bit floating point specification 1.0, torch/headeronly/util.
 */
#ifndef CF_CAST_H
#define CF_CAST_H

#include <stddef.h>

#include "dtype.h"

/* Is there a way? Equal dtypes have one. */
bool cf_cast_possible(cf_dtype from, cf_dtype to);

/* Is every value of `from` one of `to`: is a cast there, and on, the same as one straight on? */
bool cf_cast_exact(cf_dtype from, cf_dtype to);

/* count elements, little-endian, at any alignment; the areas do not overlap. */
void cf_cast(cf_dtype from, const void *source, cf_dtype to, void *target, size_t count);

#endif
