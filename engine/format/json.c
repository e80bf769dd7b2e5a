/* JSON into nodes: index files, manifests, the values that ckptflow writes.
 *
 * A reader of our own, of one page, because the safetensors reader needs the scanner anyway, and
 * JSON libraries lack what is asked for here: integers stay exact at any size, every byte is of the
 * tree's arena and so within its bound, and errors know their byte. The text is copied once;
 * strings are decoded in the copy.
 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "json_scan.h"

cf_node *cf_json_integer(cf_arena *arena, const char *digits, size_t length)
{
    const size_t sign = length && digits[0] == '-';
    int64_t n = 0;
    for (size_t i = sign; i < length; i++) {
        const int digit = digits[i] - '0';
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, sign ? -digit : digit, &n))
            return cf_node_text(arena, CF_NODE_BIG, digits, length);
    }
    return cf_node_int(arena, n);
}

static bool number(cf_scan *s, cf_arena *arena, cf_node **out)
{
    cf_string digits;
    bool whole;
    const int64_t at = cf_scan_offset(s);
    CF_TRY(cf_scan_number(s, &digits, &whole));
    if (whole) {
        *out = cf_json_integer(arena, digits.at, digits.length);
        return *out || cf_arena_ok(arena, s->err);
    }
    cf_node *node = *out = cf_node_new(arena, CF_NODE_FLOAT);
    if (!node) return cf_arena_ok(arena, s->err);
    node->real = strtod(digits.at, NULL);
    if (node->real - node->real != 0)
        return cf_fail_at(s->err, CF_E_NUMBER, at, "a number beyond what a double holds");
    return true;
}

static bool value(cf_scan *s, int depth, cf_arena *arena, cf_node **out);

static bool text(cf_scan *s, cf_arena *arena, cf_node **out)
{
    cf_string string;
    if (cf_scan_peek(s) != '"') return cf_scan_fail(s, CF_E_JSON, "a name expected");
    CF_TRY(cf_scan_string(s, &string));
    *out = cf_node_text(arena, CF_NODE_STRING, string.at, string.length);
    return *out || cf_arena_ok(arena, s->err);
}

static bool container(cf_scan *s, int depth, cf_arena *arena, cf_node *node)
{
    const bool dict = node->kind == CF_NODE_DICT;
    const char close = dict ? '}' : ']';
    if (depth == CF_MOST_DEPTH)
        return cf_fail_at(s->err, CF_E_DEPTH, cf_scan_offset(s), "JSON nested more than %d deep",
                          CF_MOST_DEPTH);
    s->at++;
    if (cf_scan_take(s, close)) return true;
    do {
        cf_node *key, *item;
        bool twice = false;
        const int64_t at = cf_scan_offset(s);
        if (dict) CF_TRY(text(s, arena, &key) && cf_scan_expect(s, ':'));
        CF_TRY(value(s, depth + 1, arena, &item));
        if (dict)
            CF_TRY(cf_dict_set(arena, node->dict, key, item, &twice, s->err));
        else if (!cf_list_add(arena, node->list, item))
            return cf_arena_ok(arena, s->err);
        if (twice) return cf_fail_at(s->err, CF_E_DUP_KEY, at, "a name twice in an object");
    } while (cf_scan_take(s, ','));
    return cf_scan_expect(s, close);
}

static bool value(cf_scan *s, int depth, cf_arena *arena, cf_node **out)
{
    const char c = cf_scan_peek(s);
    if (c == '"') return text(s, arena, out);
    if (c == '-' || (c >= '0' && c <= '9')) return number(s, arena, out);
    char word = 0;
    if (c != '{' && c != '[') CF_TRY(cf_scan_word(s, &word));
    cf_node *node = *out = cf_node_new(arena, c == '{'      ? CF_NODE_DICT
                                              : c == '['    ? CF_NODE_LIST
                                              : word == 'n' ? CF_NODE_NONE
                                                            : CF_NODE_BOOL);
    if (!node) return cf_arena_ok(arena, s->err);
    if (!word) return container(s, depth, arena, node);
    node->integer = word == 't';
    return true;
}

bool cf_json_read(const char *json, size_t size, cf_arena *tree, cf_node **root, cf_err *err)
{
    cf_scan s;
    cf_node *node;
    char *copy = cf_strndup(tree, json, size);
    if (!copy) return cf_arena_ok(tree, err);
    CF_TRY(cf_scan_begin(&s, copy, size, 0, err));
    CF_TRY(value(&s, 0, tree, &node) && cf_scan_end(&s));
    *root = node;
    return true;
}
