/* Element types, under safetensors' names. The table in dtype.c is the only list of them. */
#ifndef CF_DTYPE_H
#define CF_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cf_dtype {
    CF_NO_DTYPE = 0,
    CF_F64,
    CF_F32,
    CF_F16,
    CF_BF16,
    CF_I64,
    CF_I32,
    CF_I16,
    CF_I8,
    CF_U64,
    CF_U32,
    CF_U16,
    CF_U8,
    CF_BOOL,
    CF_C128,
    CF_C64,
    CF_C32,
    CF_F8_E4M3,
    CF_F8_E5M2,
    CF_F8_E8M0,
    CF_F8_E4M3FNUZ,
    CF_F8_E5M2FNUZ,
    CF_DTYPES
} cf_dtype;

/* What --dtype casts, and what a byte swap works on. */
typedef enum cf_class {
    CF_CLASS_FLOATING,
    CF_CLASS_INTEGER,
    CF_CLASS_BOOLEAN,
    CF_CLASS_COMPLEX
} cf_class;

typedef struct cf_dtype_info {
    const char *name;  /* "BF16" */
    const char *torch; /* "bfloat16": torch.<this> */
    const char *numpy; /* "f4" of numpy's "<f4"; NULL where numpy has none */
    uint8_t size;      /* bytes an element */
    uint8_t swap;      /* bytes a big-endian file swaps: half an element for complex numbers */
    cf_class class;
    bool safetensors; /* the safetensors format holds it */
} cf_dtype_info;

const cf_dtype_info *cf_dtype_of(cf_dtype dtype);
static inline int64_t cf_dtype_size(cf_dtype dtype)
{
    return cf_dtype_of(dtype)->size;
}

/* CF_NO_DTYPE if there is none. */
cf_dtype cf_dtype_named(const char *name, size_t length);      /* "BF16" */
cf_dtype cf_dtype_of_torch(const char *name, size_t length);   /* "bfloat16", "half" */
cf_dtype cf_dtype_of_storage(const char *name, size_t length); /* "BFloat16Storage" */
cf_dtype cf_dtype_of_numpy(const char *name, size_t length);   /* "f4", without byte order */
/* "BFloat16" of torch.BFloat16Storage; NULL: torch has no class for it. */
const char *cf_dtype_storage(cf_dtype dtype);

#endif
