/* place: a policy as a filter. Items and holders on stdin as JSON, keepers on stdout:
 *
 *   {"schema": "ckptflow.place/1",
 *    "groups": [[0, 1, 2, 3], ...],             lists of ranks that `holders` may name by number
 *    "items": [{"key": "w", "kind": "tensor", "bytes": 64, "whole_bytes": 256, "holders": [0, 2]},
 *              {"key": "lr", "kind": "value", "holders": 0}, ...]}
 *
 *   {"schema": "ckptflow.place/1", "policy": "balanced", "keepers": [0, 0, ...], "load": [...]}
 *
 * keepers is a rank for each item, in the order of the items; load what each rank then carries, by
 * the policy's own weights. The policy is asked in the order of smallest holders, then of the
 * items. kind is "tensor" where it is not given, bytes 1, whole_bytes bytes (of a value: 1). Other
 * fields are passed over. The text is scanned, not made into a tree: half a million items are
 * common. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_scan.h"
#include "print.h"
#include "verbs.h"

enum { MOST_INPUT = 1 << 30, MOST_DEPTH = 64 };

typedef struct placing {
    cf_arena arena;
    cf_scan scan;
    cf_rank_sets sets;
    const cf_ranks **groups;
    size_t n_groups, cap_groups;
    cf_held *items;
    size_t count, cap;
    uint64_t *group; /* by item: number + 1 of the group that it names; 0: none */
    size_t n_group, cap_group;
    int32_t *list; /* scratch: a list of ranks */
    size_t cap_list;
    int32_t ranks; /* one more than the largest */
} placing;

static bool is(cf_string s, const char *name)
{
    return s.length == strlen(name) && memcmp(s.at, name, s.length) == 0;
}

static bool take_count(cf_scan *s, uint64_t most, const char *what, uint64_t *out)
{
    cf_string digits;
    bool whole;
    cf_scan_peek(s);
    if (!cf_scan_number(s, &digits, &whole)) return false;
    char text[24], *end;
    const size_t n = digits.length < sizeof text - 1 ? digits.length : sizeof text - 1;
    memcpy(text, digits.at, n);
    text[n] = '\0';
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (whole && !errno && !*end && text[0] != '-' && digits.length == n && *out <= most)
        return true;
    return cf_fail_at(s->err, CF_E_JSON, cf_scan_offset(s), "%s is a number from 0 to %llu", what,
                      (unsigned long long)most);
}

static int by_rank(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* [0, 2, 5] in any order, as a set. */
static bool take_ranks(placing *p, const cf_ranks **out)
{
    cf_scan *s = &p->scan;
    size_t n = 0;
    if (!cf_scan_expect(s, '[')) return false;
    for (bool more = cf_scan_peek(s) != ']'; more; more = cf_scan_take(s, ',')) {
        uint64_t rank;
        if (!take_count(s, CF_MOST_RANKS - 1, "a rank", &rank)) return false;
        int32_t *place = CF_PUSH(&p->arena, p->list, n, p->cap_list);
        if (!place) return cf_arena_ok(&p->arena, s->err);
        *place = (int32_t)rank;
    }
    if (!cf_scan_expect(s, ']')) return false;
    if (!n) return cf_scan_fail(s, CF_E_JSON, "nobody holds it: an empty list of ranks");
    qsort(p->list, n, sizeof *p->list, by_rank);
    for (size_t i = 1; i < n; i++)
        if (p->list[i] == p->list[i - 1])
            return cf_scan_fail(s, CF_E_JSON, "a rank is listed twice");
    if (p->list[n - 1] >= p->ranks) p->ranks = p->list[n - 1] + 1;
    *out = cf_rank_set(&p->sets, p->list, n);
    return *out ? true : cf_arena_ok(&p->arena, s->err);
}

static bool take_groups(placing *p)
{
    cf_scan *s = &p->scan;
    if (!cf_scan_expect(s, '[')) return false;
    for (bool more = cf_scan_peek(s) != ']'; more; more = cf_scan_take(s, ',')) {
        const cf_ranks **group = CF_PUSH(&p->arena, p->groups, p->n_groups, p->cap_groups);
        if (!group) return cf_arena_ok(&p->arena, s->err);
        if (!take_ranks(p, group)) return false;
    }
    return cf_scan_expect(s, ']');
}

static bool take_field(placing *p, cf_string name, cf_held *held, uint64_t *group, bool *whole)
{
    cf_scan *s = &p->scan;
    cf_string text;
    if (is(name, "key")) {
        if (!cf_scan_string(s, &text)) return false;
        if (memchr(text.at, 0, text.length))
            return cf_scan_fail(s, CF_E_JSON, "a key with a NUL in it");
        held->key = cf_strndup(&p->arena, text.at, text.length);
        return true;
    }
    if (is(name, "kind")) {
        if (!cf_scan_string(s, &text)) return false;
        held->value = is(text, "value");
        return held->value || is(text, "tensor")
                   ? true
                   : cf_scan_fail(s, CF_E_JSON, "kind is \"tensor\" or \"value\"");
    }
    if (is(name, "bytes")) return take_count(s, INT64_MAX, "bytes", &held->bytes);
    if (is(name, "whole_bytes")) {
        *whole = true;
        return take_count(s, INT64_MAX, "whole_bytes", &held->whole_bytes);
    }
    if (!is(name, "holders")) return cf_scan_skip(s, MOST_DEPTH);
    if (cf_scan_peek(s) == '[') return take_ranks(p, &held->holders);
    if (!take_count(s, UINT32_MAX, "holders, the number of a group,", group)) return false;
    ++*group;
    return true;
}

static bool take_item(placing *p)
{
    cf_scan *s = &p->scan;
    cf_held *held = CF_PUSH(&p->arena, p->items, p->count, p->cap);
    uint64_t *group = CF_PUSH(&p->arena, p->group, p->n_group, p->cap_group);
    if (!held || !group) return cf_arena_ok(&p->arena, s->err);
    *held = (cf_held){.bytes = 1};
    *group = 0;
    bool whole = false;
    if (!cf_scan_expect(s, '{')) return false;
    for (bool more = cf_scan_peek(s) != '}'; more; more = cf_scan_take(s, ',')) {
        cf_string name;
        if (!cf_scan_string(s, &name) || !cf_scan_expect(s, ':') ||
            !take_field(p, name, held, group, &whole))
            return false;
    }
    if (!cf_scan_expect(s, '}')) return false;
    if (!held->key) return cf_scan_fail(s, CF_E_JSON, "an item without a key");
    if (!held->holders && !*group) return cf_scan_fail(s, CF_E_JSON, "an item without holders");
    if (!whole) held->whole_bytes = held->value ? 1 : held->bytes;
    return cf_arena_ok(&p->arena, s->err);
}

static bool take_items(placing *p)
{
    cf_scan *s = &p->scan;
    if (!cf_scan_expect(s, '[')) return false;
    for (bool more = cf_scan_peek(s) != ']'; more; more = cf_scan_take(s, ','))
        if (!take_item(p)) return false;
    return cf_scan_expect(s, ']');
}

static bool take_all(placing *p, cf_text *input, cf_err *err)
{
    cf_scan *s = &p->scan;
    bool items = false;
    if (!cf_scan_begin(s, input->at, input->size, 0, err) || !cf_scan_expect(s, '{')) return false;
    for (bool more = cf_scan_peek(s) != '}'; more; more = cf_scan_take(s, ',')) {
        cf_string name, text;
        if (!cf_scan_string(s, &name) || !cf_scan_expect(s, ':')) return false;
        if (is(name, "schema")) {
            if (!cf_scan_string(s, &text)) return false;
            if (!is(text, "ckptflow.place/1"))
                return cf_scan_fail(s, CF_E_JSON, "this is no ckptflow.place/1");
        } else if (is(name, "groups")) {
            if (!take_groups(p)) return false;
        } else if (is(name, "items")) {
            items = true;
            if (!take_items(p)) return false;
        } else if (!cf_scan_skip(s, MOST_DEPTH)) {
            return false;
        }
    }
    if (!cf_scan_expect(s, '}') || !cf_scan_end(s)) return false;
    if (!items) return cf_scan_fail(s, CF_E_JSON, "there are no items");
    for (size_t i = 0; i < p->count; i++) {
        if (!p->group[i]) continue;
        if (p->group[i] > p->n_groups) {
            cf_fail(err, CF_E_JSON, "there is no group %llu", (unsigned long long)p->group[i] - 1);
            return cf_err_in_member(err, p->items[i].key);
        }
        p->items[i].holders = p->groups[p->group[i] - 1];
    }
    return true;
}

static bool read_input(cf_text *input, cf_err *err)
{
    static char buffer[1 << 16];
    for (;;) {
        const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cf_fail_sys(err, errno, "cannot read stdin");
        if (!n) break;
        cf_text_add(input, buffer, (size_t)n);
        if (input->size > MOST_INPUT)
            return cf_fail(err, CF_E_LIMIT, "more than %d MiB of items", MOST_INPUT >> 20);
    }
    if (!input->size) cf_text_add(input, "", 0);
    return cf_text_ok(input, err);
}

static void show(const placing *p, const char *policy, const double *load, cf_text *out)
{
    cf_text_str(out, "{\"schema\":\"ckptflow.place/1\",\"policy\":");
    cf_text_json(out, policy, strlen(policy));
    cf_text_str(out, ",\"keepers\":[");
    for (size_t i = 0; i < p->count; i++) cf_text_printf(out, i ? ",%d" : "%d", p->items[i].keeper);
    cf_text_str(out, "],\"load\":[");
    for (int32_t r = 0; r < p->ranks; r++) cf_text_printf(out, r ? ",%.17g" : "%.17g", load[r]);
    cf_text_str(out, "]}\n");
}

bool cf_job_place(const void *ctx, cf_text *out, cf_text *notes, cf_err *err)
{
    const cf_options *o = ctx;
    static cf_scripts scripts;
    static placing p;
    cf_text input = {0};
    const char *policy = cf_given_value(o, "policy", 0);
    cf_arena_init(&p.arena, 0);
    cf_rank_sets_init(&p.sets, &p.arena);
    bool ok = cf_scripts_find(&scripts, o->plugins.list, o->plugins.count, err) &&
              read_input(&input, err) && take_all(&p, &input, err);
    double *load = ok ? CF_NEWS(&p.arena, double, (size_t)p.ranks + 1) : NULL;
    ok = ok && cf_arena_ok(&p.arena, err) &&
         cf_policy_place(&scripts, policy, p.items, p.count, p.ranks, load, err);
    cf_text_add(notes, scripts.notes.at, scripts.notes.size);
    if (!ok) return false;
    cf_text_add(out, notes->at, notes->size);
    cf_text_add(out, "", 1);
    show(&p, policy, load, out);
    return cf_text_ok(out, err);
}

bool cf_verb_place(const cf_options *o, cf_err *err)
{
    const char *policy = cf_given_value(o, "policy", 0);
    if (!policy || cf_given_value(o, "policy", 1))
        return cf_fail(err, CF_E_USAGE, "place needs one --policy");
    if (o->n_inputs)
        return cf_fail(err, CF_E_USAGE, "place reads items from stdin, not from %s", o->inputs[0]);
    return cf_show_job(cf_job_place, o, err);
}

const cf_option cf_place_options[] = {
    {.name = "policy", .type = CF_OPT_POLICY, .about = "who keeps what: a name, or a file"}, {0}};
