/* A key is cut at some of its dots: which ones, the tree knows. Names have dots of their own, so
 * every cut is tried, longest components first; two values of one key would have been refused, so
 * the first that fits is the one. */
#include "keypath.h"

#include <string.h>

#include "num.h"

enum { MOST_TRIES = 4096 }; /* a tree that is made to be ambiguous is given up */

typedef struct search {
    cf_step steps[CF_MOST_DEPTH];
    size_t count, tries;
    bool lists; /* may the path end at a list? */
} search;

/* A dict that is not empty is no leaf, a list may be one. */
static bool may_end(const search *s, const cf_node *node)
{
    if (node->kind == CF_NODE_DICT) return !node->dict->count;
    return (node->kind != CF_NODE_LIST && node->kind != CF_NODE_TUPLE) || !node->list->count ||
           s->lists;
}

/* "17" and not "017", as walk writes it. */
static bool number_of(const char *text, size_t length, int64_t *number)
{
    const bool minus = length && text[0] == '-';
    const size_t digits = length - minus;
    if (!digits || digits > 19 || (text[minus] == '0' && length > 1)) return false;
    *number = 0;
    for (size_t i = minus; i < length; i++) {
        const int digit = text[i] - '0';
        if (digit < 0 || digit > 9 || !cf_mul(*number, 10, number) ||
            !cf_add(*number, minus ? -digit : digit, number))
            return false;
    }
    return true;
}

/* A key that is neither string nor integer is shown in a component. */
static const cf_node *other_key(const cf_dict *dict, const char *text, size_t length,
                                const cf_node **value)
{
    enum { FEW = 64 };
    for (size_t i = 0; i < dict->count && dict->count <= FEW; i++) {
        const cf_node *key = dict->pairs[i].key;
        if (key->kind == CF_NODE_STRING || key->kind == CF_NODE_INT) continue;
        cf_text shown = {0};
        cf_node_show(&shown, key, 64 << 10);
        const bool same = shown.size == length && memcmp(shown.at, text, length) == 0;
        cf_text_free(&shown);
        *value = dict->pairs[i].value;
        if (same) return key;
    }
    return NULL;
}

static const cf_node *in_dict(const cf_dict *dict, const char *text, size_t length, cf_step *step)
{
    const cf_node key = {.kind = CF_NODE_STRING, .text = {text, length}};
    const cf_node *value = cf_dict_find(dict, &key);
    *step = (cf_step){.kind = CF_STEP_TEXT, .length = (uint32_t)length, .text = text};
    if (value) return value;
    cf_node number = {.kind = CF_NODE_INT};
    if (number_of(text, length, &number.integer)) {
        *step = (cf_step){.kind = CF_STEP_NUMBER, .number = number.integer};
        value = cf_dict_find(dict, &number);
        if (value) return value;
    }
    *step = (cf_step){.kind = CF_STEP_KEY, .key = other_key(dict, text, length, &value)};
    return step->key ? value : NULL;
}

static const cf_node *child_of(const cf_node *node, const char *text, size_t length, cf_step *step)
{
    int64_t number;
    if (node->kind == CF_NODE_DICT) return in_dict(node->dict, text, length, step);
    if (node->kind != CF_NODE_LIST && node->kind != CF_NODE_TUPLE) return NULL;
    if (!number_of(text, length, &number) || number < 0 || (uint64_t)number >= node->list->count)
        return NULL;
    *step = (cf_step){.kind = node->kind == CF_NODE_LIST ? CF_STEP_LIST : CF_STEP_TUPLE,
                      .number = number};
    return node->list->items[number];
}

static bool find(search *s, const cf_node *node, const char *key, size_t length)
{
    if (s->count == CF_MOST_DEPTH) return false;
    for (size_t n = length;; n--) {
        if (n == length || key[n] == '.') {
            if (++s->tries > MOST_TRIES) return false;
            cf_step step;
            const cf_node *child = child_of(node, key, n, &step);
            if (child) {
                s->steps[s->count++] = step;
                if (n == length ? may_end(s, child) : find(s, child, key + n + 1, length - n - 1))
                    return true;
                s->count--;
            }
        }
        if (n == 0) return false;
    }
}

/* In the tree, or behind a first component that the tree does not have. */
static bool find_from(search *s, const cf_node *root, const char *key, bool lists)
{
    const size_t length = strlen(key), first = strcspn(key, ".");
    *s = (search){.lists = lists};
    if (find(s, root, key, length)) return true;
    if (s->tries > MOST_TRIES || first == length) return false;
    s->steps[0] = (cf_step){.kind = CF_STEP_TEXT, .length = (uint32_t)first, .text = key};
    s->count = 1;
    return find(s, root, key + first + 1, length - first - 1);
}

const cf_path *cf_path_find(cf_arena *arena, const cf_node *root, const char *key)
{
    search s;
    if (!find_from(&s, root, key, false) && !find_from(&s, root, key, true)) return NULL;
    if (s.count == 1 && s.steps[0].kind == CF_STEP_TEXT) return NULL;
    return cf_path_copy(arena, &(cf_path){s.count, s.steps}, key, key);
}

const cf_path *cf_path_copy(cf_arena *arena, const cf_path *path, const char *from, const char *to)
{
    if (!path) return NULL;
    cf_path *copy = CF_NEW(arena, cf_path);
    cf_step *steps = cf_memdup(arena, path->steps, path->count * sizeof *steps);
    const size_t length = from ? strlen(from) : 0;
    if (!copy || !steps) return NULL;
    for (size_t i = 0; i < path->count; i++) {
        cf_step *s = &steps[i];
        if (s->kind == CF_STEP_TEXT) {
            const size_t at = (uintptr_t)s->text - (uintptr_t)from;
            s->text = from && at <= length ? to + at : cf_strndup(arena, s->text, s->length);
            if (!s->text) return NULL;
        } else if (s->kind == CF_STEP_KEY) {
            s->key = cf_node_copy(arena, s->key);
            if (!s->key) return NULL;
        }
    }
    *copy = (cf_path){path->count, steps};
    return copy;
}

/* ---- changing what lies there ------------------------------------------------------------------
 */

/* A copy of one container alone, and the place in it that a step means; NULL: there is none. */
static cf_node **place_of(cf_arena *arena, cf_node *copy, const cf_step *step)
{
    cf_node key = {.kind = step->kind == CF_STEP_TEXT ? CF_NODE_STRING : CF_NODE_INT};
    if (copy->kind == CF_NODE_DICT && step->kind <= CF_STEP_NUMBER) {
        cf_dict *dict = CF_NEW(arena, cf_dict);
        cf_pair *pairs =
            cf_memdup(arena, copy->dict->pairs, copy->dict->count * sizeof *dict->pairs);
        if (step->kind == CF_STEP_TEXT)
            key.text = (cf_string){step->text, step->length};
        else
            key.integer = step->number;
        if (!dict || !pairs) return NULL;
        *dict = *copy->dict; /* the index tells numbers of pairs: it stays right */
        dict->pairs = pairs;
        dict->cap = dict->count;
        copy->dict = dict;
        for (size_t i = 0; i < dict->count; i++)
            if (cf_node_equal(pairs[i].key, &key)) return &pairs[i].value;
        return NULL;
    }
    const bool list = (copy->kind == CF_NODE_LIST && step->kind == CF_STEP_LIST) ||
                      (copy->kind == CF_NODE_TUPLE && step->kind == CF_STEP_TUPLE);
    if (!list || (uint64_t)step->number >= copy->list->count) return NULL;
    cf_list *own = cf_memdup(arena, copy->list, sizeof *own);
    cf_node **items = cf_memdup(arena, copy->list->items, copy->list->count * sizeof *items);
    if (!own || !items) return NULL;
    own->items = items;
    own->cap = own->count;
    copy->list = own;
    return &items[step->number];
}

const cf_node *cf_path_replace(cf_arena *arena, const cf_node *value, const cf_path *path,
                               const cf_node *by, cf_err *err)
{
    cf_node *root = NULL, **at = &root;
    const cf_node *from = value;
    for (size_t i = 0; i < path->count; i++) {
        cf_node *copy = cf_memdup(arena, from, sizeof *copy);
        *at = copy;
        at = copy ? place_of(arena, copy, &path->steps[i]) : NULL;
        if (!at && !cf_arena_ok(arena, err)) return NULL;
        if (!at) {
            cf_fail(err, CF_E_TYPE, "step %zu of the path leads nowhere", i + 1);
            return NULL;
        }
        from = *at;
    }
    *at = (cf_node *)by;
    return root;
}
