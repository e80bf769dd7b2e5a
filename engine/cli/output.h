/* Where a run writes. */
#ifndef CF_OUTPUT_H
#define CF_OUTPUT_H

#include "options.h"

/* -o, or CKPT-unsharded (recipe unshard), or CKPT-<recipe>. out: PATH_MAX bytes. E_USAGE where OUT
 * is, holds or lies in a CKPT: the input is never changed. */
bool cf_output_path(const cf_options *o, char *out, cf_err *err);

#endif
