/* gzip: members one behind the other (RFC 1952), through zlib. */
#ifndef CF_GZIP_H
#define CF_GZIP_H

#include "span.h"
#include "zipfile.h"

/* Unpacks all members in pieces; zeros behind the last are padding. E_MAGIC, E_TRUNCATED,
 * E_TRAILING, E_LAYOUT (with the byte where it broke, a wrong checksum too), E_LIMIT beyond `most`
 * bytes. */
bool cf_gzip_unpack(const cf_span *file, uint64_t most, cf_take *take, void *ctx, cf_err *err);

#endif
