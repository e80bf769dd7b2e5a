/* Arguments of opcodes: numbers and texts.
 *
 * Texts stay where they are in the input. An integer beyond 64 bits becomes decimal text; random
 * states and the like have up to a few hundred bits, so that more than MOST_BITS is refused before
 * the quadratic conversion costs anything.
 */
#include <inttypes.h>
#include <string.h>

#include "pickle_vm.h"
#include "span.h"

enum { MOST_BITS = 1024 };

void cf_vm_short(const cf_vm *vm, uint64_t n, cf_err *err)
{
    if (n > vm->size - vm->at)
        cf_fail(err, CF_E_TRUNCATED, "an argument of %" PRIu64 " bytes, %zu are left", n,
                vm->size - vm->at);
    else
        cf_fail(err, CF_E_FRAME, "an opcode crosses the end of its frame");
}

bool cf_vm_push_int(cf_vm *vm, int64_t value, cf_err *err)
{
    if (value < 0 || value > 255)
        return cf_vm_push(vm, cf_common_int(&vm->commons, vm->p->tree, value), err);
    if (!vm->small[value]) vm->small[value] = cf_node_int(vm->p->tree, value);
    return cf_vm_push(vm, vm->small[value], err);
}

/* Decimal text of a little-endian two's complement number: division by 10^9, limb by limb. */
static bool push_big(cf_vm *vm, const uint8_t *at, size_t n, cf_err *err)
{
    enum { LIMBS = MOST_BITS / 32 + 1, DIGITS = LIMBS * 10 };
    if (n > MOST_BITS / 8)
        return cf_fail(err, CF_E_NUMBER, "an integer of more than %d bits", MOST_BITS);
    const bool negative = at[n - 1] & 0x80;
    uint32_t limbs[LIMBS] = {0};
    uint32_t carry = negative;
    for (size_t i = 0; i < n; i++) {
        const uint32_t byte = (negative ? at[i] ^ 0xffu : at[i]) + carry;
        carry = byte >> 8;
        limbs[i / 4] |= (byte & 0xff) << i % 4 * 8;
    }
    if (carry) limbs[n / 4] |= 1u << n % 4 * 8;
    char digits[DIGITS + 1];
    char *p = digits + DIGITS;
    for (bool more = true; more;) {
        uint64_t rest = 0;
        more = false;
        for (int i = LIMBS - 1; i >= 0; i--) {
            rest = rest << 32 | limbs[i];
            limbs[i] = (uint32_t)(rest / 1000000000);
            rest %= 1000000000;
            more = more || limbs[i];
        }
        for (int i = 0; i < 9; i++, rest /= 10) *--p = (char)('0' + rest % 10);
    }
    while (*p == '0') p++;
    if (negative) *--p = '-';
    const size_t length = (size_t)(digits + DIGITS - p);
    const char *text = cf_strndup(vm->p->tree, p, length);
    return cf_vm_push(vm, text ? cf_node_text(vm->p->tree, CF_NODE_BIG, text, length) : NULL, err);
}

bool cf_vm_push_long(cf_vm *vm, int width, cf_err *err)
{
    uint64_t size;
    const uint8_t *at;
    CF_TRY(cf_vm_number(vm, width, &size, err));
    if (width == 4 && size > INT32_MAX) return cf_fail(err, CF_E_NUMBER, "a negative length");
    CF_TRY(cf_vm_take(vm, size, &at, err));
    size_t n = size; /* without bytes that only repeat the sign */
    while (n > 1 && at[n - 1] == (at[n - 2] & 0x80 ? 0xff : 0)) n--;
    if (n > 8) return push_big(vm, at, n, err);
    uint64_t value = n && at[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;) value = value << 8 | at[i];
    return cf_vm_push_int(vm, (int64_t)value, err);
}

bool cf_vm_push_float(cf_vm *vm, cf_err *err)
{
    uint64_t bits;
    CF_TRY(cf_vm_number(vm, 8, &bits, err));
    cf_node *node = cf_node_new(vm->p->tree, CF_NODE_FLOAT);
    bits = __builtin_bswap64(bits);
    if (node) memcpy(&node->real, &bits, sizeof bits);
    return cf_vm_push(vm, node, err);
}

/* A new node of bytes that will not stay gets a copy; one that was made before has its own. */
static bool push_bytes(cf_vm *vm, cf_node *node, const char *at, size_t size, cf_err *err)
{
    if (node && vm->p->passed && node->text.at == at) {
        node->text.at = cf_memdup(vm->p->tree, at, size);
        if (!node->text.at) return cf_vm_memory(vm, err);
    }
    return cf_vm_push(vm, node, err);
}

/* A length of `width` bytes and that many bytes. */
bool cf_vm_push_text(cf_vm *vm, int width, cf_kind kind, cf_err *err)
{
    uint64_t size;
    const uint8_t *at;
    CF_TRY(cf_vm_number(vm, width, &size, err));
    CF_TRY(cf_vm_take(vm, size, &at, err));
    const char *text = (const char *)at;
    size_t bad = size;
    cf_node *node = kind == CF_NODE_STRING
                        ? cf_common_string(&vm->commons, vm->p->tree, text, size, &bad)
                        : cf_node_text(vm->p->tree, kind, text, size);
    if (bad < size)
        return cf_fail(err, CF_E_UTF8, "a text is no UTF-8 at its byte %zu of %" PRIu64, bad, size);
    return push_bytes(vm, node, text, size, err);
}

/* Python 2's str: text where it is text, else bytes. */
bool cf_vm_push_old_text(cf_vm *vm, int width, cf_err *err)
{
    uint64_t size;
    const uint8_t *at;
    CF_TRY(cf_vm_number(vm, width, &size, err));
    if (width == 4 && size > INT32_MAX) return cf_fail(err, CF_E_NUMBER, "a negative length");
    CF_TRY(cf_vm_take(vm, size, &at, err));
    const char *text = (const char *)at;
    const cf_kind kind = cf_utf8_valid(text, size) == size ? CF_NODE_STRING : CF_NODE_BYTES;
    return push_bytes(vm, cf_node_text(vm->p->tree, kind, text, size), text, size, err);
}
