/* Atoms that JSON lacks, from their text: what json_decode.c needs beside the tree. */
#ifndef CF_JSON_ATOM_H
#define CF_JSON_ATOM_H

#include "node.h"

/* "nan", "inf", "-inf". */
bool cf_json_odd_real(cf_string text, double *out);
/* Decimal digits without leading zeros, perhaps behind a minus sign. */
bool cf_json_is_integer(cf_string digits);
/* `to` has room for text.length bytes. */
bool cf_json_base64(cf_string text, char *to, size_t *size);

/* One element of a numpy type; false: the type does not hold that value. */
bool cf_json_put_real(cf_dtype dtype, double value, uint8_t *out); /* of complex types: one part */
bool cf_json_put_integer(cf_dtype dtype, const cf_node *node, uint8_t *out); /* an int or a big */

#endif
