#include "json_atom.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cf_json_odd_real(cf_string text, double *out)
{
    static const struct {
        const char *name;
        double value;
    } ODD[] = {{"nan", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
    for (size_t i = 0; i < sizeof ODD / sizeof *ODD; i++) {
        if (text.length != strlen(ODD[i].name) || memcmp(text.at, ODD[i].name, text.length) != 0)
            continue;
        *out = ODD[i].value;
        return true;
    }
    return false;
}

bool cf_json_is_integer(cf_string digits)
{
    const size_t sign = digits.length && digits.at[0] == '-';
    for (size_t i = sign; i < digits.length; i++)
        if (digits.at[i] < '0' || digits.at[i] > '9') return false;
    return digits.length > sign && (digits.at[sign] != '0' || digits.length == 1);
}

static int sextet(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool cf_json_base64(cf_string text, char *to, size_t *size)
{
    char *const from = to;
    uint32_t bits = 0;
    size_t n = text.length;
    if (n % 4) return false;
    for (int i = 0; i < 2 && n && text.at[n - 1] == '='; i++) n--;
    for (size_t i = 0; i < n; i++) {
        const int six = sextet(text.at[i]);
        if (six < 0) return false;
        bits = bits << 6 | (uint32_t)six;
        if (i % 4) *to++ = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *size = (size_t)(to - from);
    return n % 4 != 1;
}

static bool half(double value, uint16_t *out)
{
    const double size = fabs(value);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    *out = (uint16_t)(size != size ? 0x7e00 : sign | 0x7c00);
    if (size - size != 0) return true;
    int exponent; /* of the last bit but 11 */
    frexp(size, &exponent);
    if (size == 0 || exponent < -13) exponent = -13;
    const double units = ldexp(size, 11 - exponent); /* up to 2048 */
    *out = (uint16_t)(sign | ((exponent + 13) * 1024 + (int)units));
    return exponent <= 16 && units == (int)units;
}

bool cf_json_put_real(cf_dtype dtype, double value, uint8_t *out)
{
    const float narrow = (float)value;
    uint16_t bits;
    switch (cf_dtype_of(dtype)->swap) {
    case 8: memcpy(out, &value, 8); return true;
    case 4: memcpy(out, &narrow, 4); return (double)narrow == value || value != value;
    default: {
        const bool exact = half(value, &bits);
        memcpy(out, &bits, 2);
        return exact;
    }
    }
}

bool cf_json_put_integer(cf_dtype dtype, const cf_node *node, uint8_t *out)
{
    const int bits = 8 * cf_dtype_of(dtype)->size;
    const bool is_signed = cf_dtype_of(dtype)->name[0] == 'I';
    uint64_t value = (uint64_t)node->integer;
    if (node->kind == CF_NODE_BIG) {
        if (dtype != CF_U64 || node->text.length > 20) return false;
        char digits[24];
        snprintf(digits, sizeof digits, "%.*s", (int)node->text.length, node->text.at);
        errno = 0;
        value = strtoull(digits, NULL, 10);
        if (errno || digits[0] == '-') return false;
    } else if (is_signed) {
        const int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
        if (node->integer > most || node->integer < -most - 1) return false;
    } else if (node->integer < 0 || (bits < 64 && value >> bits)) {
        return false;
    }
    memcpy(out, &value, (size_t)bits / 8);
    return true;
}
