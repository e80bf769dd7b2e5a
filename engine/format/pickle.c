/* The opcodes. See pickle.h for the set, CPython's Lib/pickletools.py for their meaning.
 *
 * Stack and marks are heap arrays bounded by the opcodes read, the memo (pickle_memo.c) too; nodes
 * live in the tree's arena, texts in the input. A frame is a promise of the writer that no opcode
 * crosses its end; CPython's two unpicklers read the same bytes differently where it is broken, so
 * it is enforced.
 */
#include "pickle_vm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "span.h"
#include "text.h"

enum {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    NONE = 'N',
    REDUCE = 'R',
    BUILD = 'b',
    GLOBAL = 'c',
    DICT = 'd',
    LIST = 'l',
    TUPLE = 't',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    EMPTY_TUPLE = ')',
    APPEND = 'a',
    APPENDS = 'e',
    SETITEM = 's',
    SETITEMS = 'u',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINPERSID = 'Q',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES8 = 0x8e,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    FROZENSET = 0x91,
    NEWOBJ_EX = 0x92,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
    BYTEARRAY8 = 0x96
};

enum { MOST_NAME = 1024, MOST_NAMES = 1 << 14, MOST_GROWTH = 64, TELL = 4 << 20 };

bool cf_vm_memory(const cf_vm *vm, cf_err *err)
{
    return cf_arena_ok(vm->p->tree, err) && cf_arena_ok(vm->p->keep, err) &&
           cf_fail(err, CF_E_MEMORY, "out of memory");
}

bool cf_vm_spend(cf_vm *vm, size_t size, cf_err *err)
{
    vm->spent += size;
    if (vm->spent / MOST_GROWTH <= vm->size) return true;
    return cf_fail(err, CF_E_LIMIT,
                   "the values of a pickle of %zu bytes unfold to more than %d times that",
                   vm->size, MOST_GROWTH);
}

/* Room for more in a heap array. */
static bool widen(void **items, size_t *cap, size_t size, cf_err *err)
{
    const size_t more = *cap ? *cap * 2 : 64;
    void *wide = realloc(*items, more * size);
    if (!wide) return cf_fail(err, CF_E_MEMORY, "out of memory");
    *items = wide;
    *cap = more;
    return true;
}

bool cf_vm_widen(cf_vm *vm, cf_node *node, cf_err *err)
{
    return node ? widen((void **)&vm->stack, &vm->cap, sizeof *vm->stack, err)
                : cf_vm_memory(vm, err);
}

/* How many values lie above the last mark. */
static size_t height(const cf_vm *vm)
{
    return vm->count - (vm->mark_count ? vm->marks[vm->mark_count - 1] : 0);
}

/* The upper n values, none of them below a mark; they stay where they are. */
static inline bool upper(cf_vm *vm, size_t n, cf_node ***values, cf_err *err)
{
    if (height(vm) < n)
        return cf_fail(err, CF_E_STACK, "an opcode needs %zu values, the stack has %zu", n,
                       height(vm));
    *values = vm->stack + vm->count - n;
    return true;
}

/* The values above the last mark, which goes; they are off the stack, but still in its memory. */
static bool above_mark(cf_vm *vm, cf_node ***values, size_t *n, cf_err *err)
{
    if (!vm->mark_count) return cf_fail(err, CF_E_STACK, "an opcode needs a mark, there is none");
    const size_t floor = vm->marks[--vm->mark_count];
    *n = vm->count - floor;
    *values = vm->stack + floor;
    vm->count = floor;
    return true;
}

static bool check_name(const char *at, size_t length, cf_err *err)
{
    if (length > MOST_NAME)
        return cf_fail(err, CF_E_LIMIT, "a global's name of %zu bytes, at most %d", length,
                       MOST_NAME);
    if (cf_utf8_valid(at, length) < length || memchr(at, '\0', length))
        return cf_fail(err, CF_E_UTF8, "a global's name is no UTF-8 text");
    return true;
}

/* A name is looked up once, however often a pickle that keeps no memo says it. */
static bool push_global(cf_vm *vm, cf_string module, cf_string name, cf_err *err)
{
    CF_TRY(check_name(module.at, module.length, err));
    CF_TRY(check_name(name.at, name.length, err));
    char both[2 * MOST_NAME + 2];
    const size_t length = module.length + 1 + name.length;
    if (module.length) memcpy(both, module.at, module.length);
    both[module.length] = '\0'; /* which no name holds */
    if (name.length) memcpy(both + module.length + 1, name.at, name.length);
    both[length] = '\0';
    uint64_t known;
    if (cf_map_get(&vm->names, both, length, &known))
        return cf_vm_push(vm, (cf_node *)(uintptr_t)known, err);
    if (vm->names.count >= MOST_NAMES)
        return cf_fail(err, CF_E_LIMIT, "a pickle that names more than %d classes", MOST_NAMES);
    bool fresh;
    cf_node *node = NULL;
    const char *own = cf_memdup(vm->p->tree, both, length + 1);
    uint64_t *place = own ? cf_map_put(&vm->names, own, length, &fresh) : NULL;
    if (!place) return cf_vm_memory(vm, err);
    CF_TRY(cf_vm_global(vm, own, own + module.length + 1, &node, err));
    *place = (uint64_t)(uintptr_t)node;
    return cf_vm_push(vm, node, err);
}

static bool take_line(cf_vm *vm, cf_string *out, cf_err *err)
{
    const uint8_t *at = vm->bytes + vm->at;
    const uint8_t *newline = memchr(at, '\n', vm->size - vm->at);
    if (!newline) return cf_fail(err, CF_E_TRUNCATED, "a global's name does not end");
    *out = (cf_string){.at = (const char *)at, .length = (size_t)(newline - at)};
    return cf_vm_take(vm, out->length + 1, &at, err);
}

static bool named_global(cf_vm *vm, cf_err *err)
{
    cf_string module, name;
    CF_TRY(take_line(vm, &module, err));
    CF_TRY(take_line(vm, &name, err));
    return push_global(vm, module, name, err);
}

static bool stack_global(cf_vm *vm, cf_err *err)
{
    cf_node **top;
    CF_TRY(upper(vm, 2, &top, err));
    if (top[0]->kind != CF_NODE_STRING || top[1]->kind != CF_NODE_STRING)
        return cf_fail(err, CF_E_TYPE, "a global's name is no string");
    vm->count -= 2;
    return push_global(vm, top[0]->text, top[1]->text, err);
}

static bool add_items(cf_vm *vm, cf_list *list, cf_node *const *items, size_t n, cf_err *err)
{
    if (!list->count && n) { /* most lists come whole: exactly as much memory as they need */
        list->items = cf_memdup(vm->p->tree, items, n * sizeof *items);
        if (!list->items) return cf_vm_memory(vm, err);
        list->count = list->cap = n;
        return true;
    }
    for (size_t i = 0; i < n; i++)
        if (!cf_list_add(vm->p->tree, list, items[i])) return cf_vm_memory(vm, err);
    return true;
}

/* Most tuples of one are the arguments of a call, which are read and never seen again. */
static bool push_tuple(cf_vm *vm, cf_node *const *items, size_t n, cf_err *err)
{
    if (!n) return cf_vm_push(vm, vm->unit, err);
    if (n > 1 || !vm->spare_unit || items[0]->kind == CF_NODE_INT)
        return cf_vm_push(vm, cf_common_tuple(&vm->commons, vm->p->tree, items, n), err);
    cf_node *node = vm->spare_unit;
    vm->spare_unit = NULL;
    node->list->items[0] = items[0];
    return cf_vm_push(vm, node, err);
}

static bool push_list(cf_vm *vm, cf_kind kind, cf_node *const *items, size_t n, cf_err *err)
{
    if (kind == CF_NODE_TUPLE) return push_tuple(vm, items, n, err);
    cf_node *node = cf_node_new(vm->p->tree, kind);
    if (!node) return cf_vm_memory(vm, err);
    CF_TRY(add_items(vm, node->list, items, n, err));
    return cf_vm_push(vm, node, err);
}

bool cf_vm_set(cf_vm *vm, cf_dict *dict, cf_node *key, cf_node *value, cf_err *err)
{
    bool again;
    if (key->kind == CF_NODE_STRING && key->text.length &&
        memchr(key->text.at, 0, key->text.length))
        return cf_fail(err, CF_E_UTF8, "a key that holds a NUL");
    CF_TRY(cf_dict_set(vm->p->tree, dict, key, value, &again, err));
    if (!again) return true;
    cf_text shown = {0};
    cf_node_show(&shown, key, 200);
    cf_fail(err, CF_E_DUP_KEY, "the key %s twice in one dict", shown.at ? shown.at : "");
    cf_text_free(&shown);
    return false;
}

static bool set_items(cf_vm *vm, cf_dict *dict, cf_node *const *items, size_t n, cf_err *err)
{
    if (n % 2) return cf_fail(err, CF_E_STACK, "a key without a value");
    if (!dict->count && n / 2 > dict->cap) {
        dict->pairs = CF_NEWS(vm->p->tree, cf_pair, n / 2);
        if (!dict->pairs) return cf_vm_memory(vm, err);
        dict->cap = n / 2;
    }
    for (size_t i = 0; i < n; i += 2) CF_TRY(cf_vm_set(vm, dict, items[i], items[i + 1], err));
    return true;
}

static bool append(cf_vm *vm, cf_node *const *items, size_t n, bool to_set, cf_err *err)
{
    cf_node **top;
    CF_TRY(upper(vm, 1, &top, err));
    if (top[0]->kind == (to_set ? CF_NODE_SET : CF_NODE_LIST))
        return add_items(vm, top[0]->list, items, n, err);
    if (top[0]->kind == CF_NODE_OBJECT) {
        cf_parts *parts = cf_object_own(vm->p->tree, top[0]->object);
        return parts ? add_items(vm, &parts->items, items, n, err) : cf_vm_memory(vm, err);
    }
    return cf_fail(err, CF_E_TYPE, "items for %s %s", CF_A(cf_node_class(top[0])));
}

/* EMPTY_DICT MARK key value ... SETITEMS BUILD is how writers give an object its fields. Where they
 * have the names that an earlier object of its class has, no dict is made. */
static bool set_fields(cf_vm *vm, cf_node *const *items, size_t n, bool *done, cf_err *err)
{
    *done = false;
    if (height(vm) < 2 || vm->at == vm->end || vm->bytes[vm->at] != BUILD) return true;
    cf_node *state = vm->stack[vm->count - 1];
    const cf_node *target = vm->stack[vm->count - 2];
    if (state->kind != CF_NODE_DICT || state->dict->count || state->memoed ||
        target->kind != CF_NODE_OBJECT)
        return true;
    CF_TRY(cf_vm_fields(vm, target->object, items, n, done, err));
    if (!*done) return true;
    vm->at++;
    vm->steps++;
    vm->count--;
    vm->spare_dict = state;
    return true;
}

static bool set_on_top(cf_vm *vm, cf_node *const *items, size_t n, cf_err *err)
{
    cf_node **top;
    bool done;
    CF_TRY(set_fields(vm, items, n, &done, err));
    if (done) return true;
    CF_TRY(upper(vm, 1, &top, err));
    if (top[0]->kind == CF_NODE_DICT) return set_items(vm, top[0]->dict, items, n, err);
    if (top[0]->kind == CF_NODE_OBJECT) {
        cf_parts *parts = cf_object_own(vm->p->tree, top[0]->object);
        return parts ? set_items(vm, &parts->pairs, items, n, err) : cf_vm_memory(vm, err);
    }
    return cf_fail(err, CF_E_TYPE, "keys for %s %s", CF_A(cf_node_class(top[0])));
}

static bool push_dict(cf_vm *vm, cf_node *const *items, size_t n, cf_err *err)
{
    cf_node *node = vm->spare_dict ? vm->spare_dict : cf_node_new(vm->p->tree, CF_NODE_DICT);
    if (!node) return cf_vm_memory(vm, err);
    if (vm->spare_dict) node->dict->count = 0;
    vm->spare_dict = NULL;
    CF_TRY(set_items(vm, node->dict, items, n, err));
    return cf_vm_push(vm, node, err);
}

/* Writers number memo slots in the order of use, so a slot beyond the opcodes read is no slot;
 * BINPUT's 256 cost nothing. */
static bool memo_put(cf_vm *vm, uint64_t slot, cf_err *err)
{
    cf_node **top;
    CF_TRY(upper(vm, 1, &top, err));
    if (slot >= vm->steps && slot > UINT8_MAX)
        return cf_fail(err, CF_E_MEMO, "memo slot %" PRIu64 " after %zu opcodes", slot, vm->steps);
    return cf_memo_put(&vm->memo, slot, top[0], err);
}

static bool memo_get(cf_vm *vm, uint64_t slot, cf_err *err)
{
    cf_node *node = cf_memo_get(&vm->memo, slot);
    return node ? cf_vm_push(vm, node, err)
                : cf_fail(err, CF_E_MEMO, "memo slot %" PRIu64 " was never written", slot);
}

static bool open_frame(cf_vm *vm, cf_err *err)
{
    uint64_t size;
    if (vm->framed) return cf_fail(err, CF_E_FRAME, "a frame within a frame");
    CF_TRY(cf_vm_number(vm, 8, &size, err));
    if (size > vm->size - vm->at)
        return cf_fail(err, CF_E_TRUNCATED, "a frame of %" PRIu64 " bytes, %zu are left", size,
                       vm->size - vm->at);
    vm->framed = true;
    vm->end = vm->at + size;
    return true;
}

/* `extra`: NEWOBJ_EX, whose keyword arguments become the last argument if there are any. */
static bool call(cf_vm *vm, bool extra, cf_err *err)
{
    cf_node **top, *args, *result;
    const size_t n = extra ? 3 : 2;
    CF_TRY(upper(vm, n, &top, err));
    args = top[1];
    if (args->kind != CF_NODE_TUPLE || (extra && top[2]->kind != CF_NODE_DICT))
        return cf_fail(err, CF_E_TYPE, "arguments that are no tuple, but %s %s",
                       CF_A(cf_node_class(args->kind == CF_NODE_TUPLE ? top[2] : args)));
    if (extra && top[2]->dict->count) {
        args = cf_node_new(vm->p->tree, CF_NODE_TUPLE);
        if (!args) return cf_vm_memory(vm, err);
        CF_TRY(cf_vm_spend(vm, top[1]->list->count, err));
        CF_TRY(add_items(vm, args->list, top[1]->list->items, top[1]->list->count, err));
        CF_TRY(add_items(vm, args->list, &top[2], 1, err));
    }
    CF_TRY(cf_vm_call(vm, top[0], args, &result, err));
    vm->count -= n;
    /* torch.Size((2, 3)) is the tuple in its arguments, which are free again */
    if (args->list->count == 1 && result == args->list->items[0] && !args->memoed && !args->plain)
        vm->spare_unit = args;
    return cf_vm_push(vm, result, err);
}

static bool build(cf_vm *vm, cf_err *err)
{
    cf_node **top;
    CF_TRY(upper(vm, 2, &top, err));
    vm->count--;
    return cf_vm_build(vm, top[0], top[1], err);
}

static bool persistent(cf_vm *vm, cf_err *err)
{
    cf_node **top, *result;
    CF_TRY(upper(vm, 1, &top, err));
    CF_TRY(cf_vm_storage(vm, top[0], &result, err));
    vm->count--;
    return cf_vm_push(vm, result, err);
}

static bool mark(cf_vm *vm, cf_err *err)
{
    if (vm->mark_count == vm->mark_cap)
        CF_TRY(widen((void **)&vm->marks, &vm->mark_cap, sizeof *vm->marks, err));
    vm->marks[vm->mark_count++] = vm->count;
    return true;
}

static bool stop(const cf_vm *vm, cf_err *err)
{
    if (vm->mark_count || vm->count != 1)
        return cf_fail(err, CF_E_STACK, "STOP with %zu values and %zu open marks", vm->count,
                       vm->mark_count);
    if (vm->framed && vm->at != vm->end) return cf_fail(err, CF_E_FRAME, "STOP within a frame");
    return true;
}

/* The opcodes that take what lies above a mark. */
static bool step_mark(cf_vm *vm, int op, cf_err *err)
{
    cf_node **items;
    size_t n;
    CF_TRY(above_mark(vm, &items, &n, err));
    switch (op) {
    case TUPLE: return push_list(vm, CF_NODE_TUPLE, items, n, err);
    case LIST: return push_list(vm, CF_NODE_LIST, items, n, err);
    case FROZENSET: return push_list(vm, CF_NODE_SET, items, n, err);
    case DICT: return push_dict(vm, items, n, err);
    case APPENDS: return append(vm, items, n, false, err);
    case ADDITEMS: return append(vm, items, n, true, err);
    case SETITEMS: return set_on_top(vm, items, n, err);
    default: return true; /* POP_MARK */
    }
}

/* The opcodes that take a known number of values. */
static bool step_stack(cf_vm *vm, int op, cf_err *err)
{
    cf_node **top;
    const size_t n = op == TUPLE3                                ? 3
                     : op == TUPLE2 || op == SETITEM             ? 2
                     : op == TUPLE1 || op == APPEND || op == POP ? 1
                                                                 : 0;
    CF_TRY(upper(vm, n, &top, err));
    vm->count -= n;
    switch (op) {
    case APPEND: return append(vm, top, n, false, err);
    case SETITEM: return set_on_top(vm, top, n, err);
    case POP: return true;
    default: return push_list(vm, CF_NODE_TUPLE, top, n, err);
    }
}

static bool step(cf_vm *vm, int op, cf_err *err)
{
    uint64_t n;
    switch (op) {
    case PROTO:
        CF_TRY(cf_vm_number(vm, 1, &n, err));
        return (n >= 2 && n <= 5) ||
               cf_fail(err, CF_E_OPCODE, "pickle protocol %d is not supported", (int)n);
    case FRAME: return open_frame(vm, err);
    case STOP: return stop(vm, err);
    case MARK: return mark(vm, err);
    case TUPLE:
    case LIST:
    case DICT:
    case FROZENSET:
    case APPENDS:
    case ADDITEMS:
    case SETITEMS:
    case POP_MARK: return step_mark(vm, op, err);
    case EMPTY_TUPLE:
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
    case APPEND:
    case SETITEM:
    case POP: return step_stack(vm, op, err);
    case EMPTY_LIST: return push_list(vm, CF_NODE_LIST, NULL, 0, err);
    case EMPTY_SET: return push_list(vm, CF_NODE_SET, NULL, 0, err);
    case EMPTY_DICT: return push_dict(vm, NULL, 0, err);
    case NONE: return cf_vm_push(vm, vm->none, err);
    case NEWTRUE: return cf_vm_push(vm, vm->yes, err);
    case NEWFALSE: return cf_vm_push(vm, vm->no, err);
    case BININT: return cf_vm_number(vm, 4, &n, err) && cf_vm_push_int(vm, (int32_t)n, err);
    case BININT1: return cf_vm_number(vm, 1, &n, err) && cf_vm_push_int(vm, (int64_t)n, err);
    case BININT2: return cf_vm_number(vm, 2, &n, err) && cf_vm_push_int(vm, (int64_t)n, err);
    case LONG1: return cf_vm_push_long(vm, 1, err);
    case LONG4: return cf_vm_push_long(vm, 4, err);
    case BINFLOAT: return cf_vm_push_float(vm, err);
    case SHORT_BINUNICODE: return cf_vm_push_text(vm, 1, CF_NODE_STRING, err);
    case BINUNICODE: return cf_vm_push_text(vm, 4, CF_NODE_STRING, err);
    case BINUNICODE8: return cf_vm_push_text(vm, 8, CF_NODE_STRING, err);
    case SHORT_BINBYTES: return cf_vm_push_text(vm, 1, CF_NODE_BYTES, err);
    case BINBYTES: return cf_vm_push_text(vm, 4, CF_NODE_BYTES, err);
    case BINBYTES8:
    case BYTEARRAY8: return cf_vm_push_text(vm, 8, CF_NODE_BYTES, err);
    case SHORT_BINSTRING: return cf_vm_push_old_text(vm, 1, err);
    case BINSTRING: return cf_vm_push_old_text(vm, 4, err);
    case GLOBAL: return named_global(vm, err);
    case STACK_GLOBAL: return stack_global(vm, err);
    case REDUCE:
    case NEWOBJ: return call(vm, false, err);
    case NEWOBJ_EX: return call(vm, true, err);
    case BUILD: return build(vm, err);
    case BINPERSID: return persistent(vm, err);
    case BINPUT: return cf_vm_number(vm, 1, &n, err) && memo_put(vm, n, err);
    case LONG_BINPUT: return cf_vm_number(vm, 4, &n, err) && memo_put(vm, n, err);
    case MEMOIZE: return memo_put(vm, vm->memo.count, err);
    case BINGET: return cf_vm_number(vm, 1, &n, err) && memo_get(vm, n, err);
    case LONG_BINGET: return cf_vm_number(vm, 4, &n, err) && memo_get(vm, n, err);
    default: return cf_fail(err, CF_E_OPCODE, "pickle opcode 0x%02x is not supported", op);
    }
}

static bool run(cf_vm *vm, cf_err *err)
{
    size_t told = 0;
    for (int op = -1; op != STOP;) {
        if (vm->at == vm->end) {
            vm->framed = false;
            vm->end = vm->size;
            if (vm->p->passed && vm->at - told > TELL) vm->p->passed(vm->bytes, told = vm->at);
            if (vm->at == vm->size)
                return cf_fail_at(err, CF_E_TRUNCATED, (int64_t)vm->at,
                                  "the pickle ends without STOP");
        }
        const size_t at = vm->at;
        op = vm->bytes[vm->at++];
        vm->steps++;
        if (op == MEMOIZE && height(vm) && cf_memo_pass(&vm->memo)) continue;
        if (!step(vm, op, err)) {
            if (err->offset < 0) err->offset = (int64_t)at;
            return false;
        }
    }
    return true;
}

static bool start(cf_vm *vm, cf_err *err)
{
    cf_arena *tree = vm->p->tree;
    vm->none = cf_node_new(tree, CF_NODE_NONE);
    vm->no = cf_node_new(tree, CF_NODE_BOOL);
    vm->yes = cf_node_new(tree, CF_NODE_BOOL);
    vm->unit = cf_node_new(tree, CF_NODE_TUPLE);
    if (!vm->unit) return cf_vm_memory(vm, err);
    vm->yes->integer = 1;
    cf_map_init(&vm->names, tree);
    if (!cf_commons_init(&vm->commons, vm->size)) return cf_fail(err, CF_E_MEMORY, "out of memory");
    return cf_memo_init(&vm->memo, vm->bytes, vm->size, err) &&
           widen((void **)&vm->stack, &vm->cap, sizeof *vm->stack, err);
}

bool cf_pickle_read(cf_pickle *p, const uint8_t *bytes, size_t size, size_t *used, cf_node **root,
                    cf_err *err)
{
    cf_vm vm = {.p = p, .bytes = bytes, .size = size, .end = size};
    bool done = start(&vm, err) && run(&vm, err) && cf_node_check_depth(vm.stack[0], err);
    if (done && !used && vm.at < size)
        done = cf_fail_at(err, CF_E_TRAILING, (int64_t)vm.at,
                          "%zu bytes behind the end of the pickle", size - vm.at);
    if (done && used) *used = vm.at;
    if (done) *root = vm.stack[0];
    free(vm.stack);
    free(vm.marks);
    cf_memo_free(&vm.memo);
    cf_commons_free(&vm.commons);
    return done;
}
