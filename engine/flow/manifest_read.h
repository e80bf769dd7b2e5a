/* ckptflow-manifest.json read back, as far as bytes go: files and tensors with sizes and CRC-32. */
#ifndef CF_MANIFEST_READ_H
#define CF_MANIFEST_READ_H

#include "source.h"

#define CF_MANIFEST "ckptflow-manifest.json"

typedef struct cf_manifest_tensor {
    const char *name;
    uint64_t offset, size;
    uint32_t crc;
} cf_manifest_tensor;

typedef struct cf_manifest_file {
    const char *path;
    uint64_t size;
    uint32_t crc;
    cf_manifest_tensor *tensors; /* in order, within the file, none over another */
    size_t count;
} cf_manifest_file;

typedef struct cf_manifest {
    cf_manifest_file *files;
    size_t count;
    cf_map paths; /* path -> number */
} cf_manifest;

/* *manifest is NULL if the checkpoint has none. E_JSON for one that is none. All in arena. */
bool cf_manifest_read(cf_source *source, cf_arena *arena, const cf_manifest **manifest,
                      cf_err *err);
/* NULL: it does not list the path (or there is no manifest). */
const cf_manifest_file *cf_manifest_find(const cf_manifest *manifest, const char *path);

#endif
