/* The zip of torch.save (2.13), laid out to the byte before a payload is known:
 *
 *   <top>/data.pkl  .format_version "1"  .storage_alignment "64"  byteorder "little"
 *   <top>/data/0 ... data/<n-1>      the storages, in the order in which the pickle names them
 *   <top>/version "3\n"  .data/serialization_id (40 digits)
 *   central directory, zip64 end, its locator, end
 *
 * Each record is a local header (method 0, flags 0x0808, no sizes, no CRC; a zip64 extra field
 * where size or place need it), an extra field "FB" of Z that brings the payload to a multiple of
 * 64, the payload, and a data descriptor; an empty one has flags 0x0800 and no descriptor. So a
 * CRC-32 stands only behind its payload and in the directory: payloads may be written in any order,
 * by any number of threads, and the CRCs after them. torch computes the places of storages by the
 * same rules (calculate_storage_offsets), hence no byte may be otherwise.
 *
 * The caller asks for one record after the other; each time `gap` holds the bytes between the
 * payload before and this one. All places count from the start of the archive, which may lie
 * anywhere in a file (DCP has many archives in one).
 *
 * The serialization id is a fingerprint, as torch has it: 20 digits of a hash of what is known now
 * (pickle and sizes), 20 of the CRC-32 of everything before its record, which is known last.
 *
 * Facts: caffe2/serialize/inline_container.cc (getPadding, writeRecord, writeEndOfFile), miniz's
 * mz_zip_writer_add_mem_ex_v2, torch/serialization.py (_save, _get_offset); archives of torch 2.13
 * byte by byte.
 */
#ifndef CF_TORCH_LAYOUT_H
#define CF_TORCH_LAYOUT_H

#include "text.h"

enum { CF_TORCH_ID = 40, CF_TORCH_ID_KNOWN = 20, CF_TORCH_ALIGN = 64 };

/* Four bytes of a gap, zeros so far, that take the CRC-32 (little-endian) of a payload. */
typedef struct cf_torch_patch {
    size_t at;        /* in the gap */
    uint64_t storage; /* its number; CF_TORCH_THE_ID: the serialization id's payload */
} cf_torch_patch;

#define CF_TORCH_THE_ID UINT64_MAX

typedef struct cf_torch_layout {
    const char *top;
    cf_text gap;
    cf_text patches; /* of cf_torch_patch, in the order of their places */
    uint64_t at;     /* where the next payload lies, in the archive; after _end its size */
    uint64_t n;      /* storages so far */
    uint64_t hash;
    char id[CF_TORCH_ID]; /* the payload of the id: its last 20 digits are "0" still */
    cf_text records;      /* of what went before, for the directory */
} cf_torch_layout;

/* top: one component; it and the pickle are borrowed until _end and _begin are over. */
void cf_torch_layout_begin(cf_torch_layout *z, const char *top, const void *pickle, size_t size);
/* Storage number z->n - 1 of `size` bytes: the gap leads to its first byte, which is at z->at. */
void cf_torch_layout_storage(cf_torch_layout *z, uint64_t size);
/* The payload z->id. */
void cf_torch_layout_id(cf_torch_layout *z);
/* The rest of the archive. E_OVERFLOW, E_MEMORY of all of it. */
bool cf_torch_layout_end(cf_torch_layout *z, cf_err *err);
void cf_torch_layout_free(cf_torch_layout *z);

static inline size_t cf_torch_patches(const cf_torch_layout *z)
{
    return z->patches.size / sizeof(cf_torch_patch);
}

#endif
