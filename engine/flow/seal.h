/* The bytes of a block's late chunks: what depends on the CRC-32 of others (zip descriptors and
 * directories), written when all others are. */
#ifndef CF_SEAL_H
#define CF_SEAL_H

#include "block.h"

/* crc: of each chunk by its number; those of late ones are filled in. outputs: by number of the
 * file. Errors name the file. */
bool cf_seal(const cf_block *block, uint32_t *crc, const int *outputs, cf_err *err);

#endif
