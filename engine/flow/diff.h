/* diff: two checkpoints held together by value, across formats, shardings and dtypes.
 *
 * The planner (cf_diff_plan) finds for every row of A its row of B: by key, else by role and name.
 * Values are compared there and then. Tensors become two chunks each, one of moves out of A and
 * one out of B, and a pair; cf_diff gathers both, tile by tile, on all threads, and compares the
 * elements. What is only in one of them and has a tensor of the same dtype and shape on the other
 * side is hashed: the same bytes under another name are called renamed.
 *
 *   equal      the same value: -0 is 0, any NaN is any NaN; dtypes are widened first, exactly
 *   identical  and the same bits of the same dtype
 *   max_abs    largest |a - b|; of complex numbers the modulus; infinite against a finite number
 *   max_rel    largest |a - b| / max(|a|, |b|)
 *   max_ulp    units in the last place; of two dtypes in the narrower one, the wider rounded to it
 */
#ifndef CF_DIFF_H
#define CF_DIFF_H

#include "execute.h"
#include "plan.h"

/* cats: A, B, of CKPT 0 and 1. tolerance: of floats inside values. Fills the sections of a block;
 * its texts are the caller's. */
bool cf_diff_plan(cf_catalogue *const cats[2], double tolerance, cf_blocker *b, cf_err *err);

typedef enum cf_tolerance_kind { CF_TOL_ABS, CF_TOL_REL, CF_TOL_ULP } cf_tolerance_kind;

typedef struct cf_tolerance {
    cf_tolerance_kind kind;
    double most;
} cf_tolerance;

/* Of one pair of tensors; counts are elements. */
typedef struct cf_difference {
    uint64_t elements;
    uint64_t unequal; /* by value */
    uint64_t beyond;  /* unequal by more than the tolerance; a NaN against a number always is */
    uint64_t bits;    /* equal, but not to the bit: zeros of two signs, NaNs of two kinds */
    uint64_t nan_a, nan_b, nan_both; /* NaN in A alone, in B alone, in both */
    uint64_t first;                  /* the first that is unequal, where one is */
    double max_abs, max_rel, max_ulp;
    uint64_t max_at; /* where max_abs is */
    double a, b;     /* what stands there (of complex numbers the real parts) */
} cf_difference;

/* Adds count elements from number `first` on. left and right: the bytes, of dtypes that are
 * comparable (a complex one counts two elements of a real one). scratch-free; any alignment. */
void cf_difference_add(cf_difference *d, const cf_tolerance *tolerance, cf_dtype a,
                       const uint8_t *left, cf_dtype b, const uint8_t *right, uint64_t first,
                       uint64_t count);
/* Adds what was found of another part of the same pair. */
void cf_difference_join(cf_difference *to, const cf_difference *more);

typedef struct cf_differences {
    cf_arena arena;
    cf_difference *pairs; /* by number of the pair */
    uint64_t *renamed;    /* of what is only in A: the pair of B's with the same bytes, or NONE */
    uint64_t read;
} cf_differences;

bool cf_diff(const cf_execution *x, const cf_tolerance *tolerance, cf_differences *out,
             cf_err *err);
void cf_differences_free(cf_differences *d);

#endif
