#include "dtype.h"

#include <string.h>

static const cf_dtype_info TABLE[CF_DTYPES] = {
    [CF_NO_DTYPE] = {"?", "?", NULL, 1, 1, CF_CLASS_INTEGER, false},
    [CF_F64] = {"F64", "float64", "f8", 8, 8, CF_CLASS_FLOATING, true},
    [CF_F32] = {"F32", "float32", "f4", 4, 4, CF_CLASS_FLOATING, true},
    [CF_F16] = {"F16", "float16", "f2", 2, 2, CF_CLASS_FLOATING, true},
    [CF_BF16] = {"BF16", "bfloat16", NULL, 2, 2, CF_CLASS_FLOATING, true},
    [CF_I64] = {"I64", "int64", "i8", 8, 8, CF_CLASS_INTEGER, true},
    [CF_I32] = {"I32", "int32", "i4", 4, 4, CF_CLASS_INTEGER, true},
    [CF_I16] = {"I16", "int16", "i2", 2, 2, CF_CLASS_INTEGER, true},
    [CF_I8] = {"I8", "int8", "i1", 1, 1, CF_CLASS_INTEGER, true},
    [CF_U64] = {"U64", "uint64", "u8", 8, 8, CF_CLASS_INTEGER, true},
    [CF_U32] = {"U32", "uint32", "u4", 4, 4, CF_CLASS_INTEGER, true},
    [CF_U16] = {"U16", "uint16", "u2", 2, 2, CF_CLASS_INTEGER, true},
    [CF_U8] = {"U8", "uint8", "u1", 1, 1, CF_CLASS_INTEGER, true},
    [CF_BOOL] = {"BOOL", "bool", "b1", 1, 1, CF_CLASS_BOOLEAN, true},
    [CF_C128] = {"C128", "complex128", "c16", 16, 8, CF_CLASS_COMPLEX, false},
    [CF_C64] = {"C64", "complex64", "c8", 8, 4, CF_CLASS_COMPLEX, true},
    [CF_C32] = {"C32", "complex32", NULL, 4, 2, CF_CLASS_COMPLEX, false},
    [CF_F8_E4M3] = {"F8_E4M3", "float8_e4m3fn", NULL, 1, 1, CF_CLASS_FLOATING, true},
    [CF_F8_E5M2] = {"F8_E5M2", "float8_e5m2", NULL, 1, 1, CF_CLASS_FLOATING, true},
    [CF_F8_E8M0] = {"F8_E8M0", "float8_e8m0fnu", NULL, 1, 1, CF_CLASS_FLOATING, true},
    [CF_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", "float8_e4m3fnuz", NULL, 1, 1, CF_CLASS_FLOATING, true},
    [CF_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", "float8_e5m2fnuz", NULL, 1, 1, CF_CLASS_FLOATING, true},
};

static const struct {
    const char *name;
    cf_dtype dtype;
} ALIASES[] = {{"double", CF_F64}, {"float", CF_F32},    {"half", CF_F16},
               {"long", CF_I64},   {"int", CF_I32},      {"short", CF_I16},
               {"cfloat", CF_C64}, {"cdouble", CF_C128}, {"chalf", CF_C32}},
  STORAGES[] = {{"Double", CF_F64},    {"Float", CF_F32},        {"Half", CF_F16},
                {"BFloat16", CF_BF16}, {"Long", CF_I64},         {"Int", CF_I32},
                {"Short", CF_I16},     {"Char", CF_I8},          {"Byte", CF_U8},
                {"Bool", CF_BOOL},     {"ComplexFloat", CF_C64}, {"ComplexDouble", CF_C128}};

static bool is(const char *name, const char *text, size_t length)
{
    return name && strlen(name) == length && memcmp(name, text, length) == 0;
}

const cf_dtype_info *cf_dtype_of(cf_dtype dtype)
{
    return &TABLE[dtype < CF_DTYPES ? dtype : CF_NO_DTYPE];
}

cf_dtype cf_dtype_named(const char *name, size_t length)
{
    for (int i = 1; i < CF_DTYPES; i++)
        if (is(TABLE[i].name, name, length)) return (cf_dtype)i;
    return CF_NO_DTYPE;
}

cf_dtype cf_dtype_of_torch(const char *name, size_t length)
{
    for (int i = 1; i < CF_DTYPES; i++)
        if (is(TABLE[i].torch, name, length)) return (cf_dtype)i;
    for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++)
        if (is(ALIASES[i].name, name, length)) return ALIASES[i].dtype;
    return CF_NO_DTYPE;
}

cf_dtype cf_dtype_of_storage(const char *name, size_t length)
{
    if (length < 7 || memcmp(name + length - 7, "Storage", 7) != 0) return CF_NO_DTYPE;
    for (size_t i = 0; i < sizeof STORAGES / sizeof *STORAGES; i++)
        if (is(STORAGES[i].name, name, length - 7)) return STORAGES[i].dtype;
    return CF_NO_DTYPE;
}

cf_dtype cf_dtype_of_numpy(const char *name, size_t length)
{
    for (int i = 1; i < CF_DTYPES; i++)
        if (is(TABLE[i].numpy, name, length)) return (cf_dtype)i;
    return CF_NO_DTYPE;
}

const char *cf_dtype_storage(cf_dtype dtype)
{
    for (size_t i = 0; i < sizeof STORAGES / sizeof *STORAGES; i++)
        if (STORAGES[i].dtype == dtype) return STORAGES[i].name;
    return NULL;
}
