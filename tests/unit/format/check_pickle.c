/* The pickle machine: single opcodes, what it refuses and with which code, and real pickles. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pickle.h"
#include "suite.h"

static cf_arena tree, keep;
static cf_pickle reader;
static cf_err err;
static uint8_t file[1 << 15];

static void setup(void)
{
    cf_arena_init(&tree, 64 << 20);
    cf_arena_init(&keep, 64 << 20);
    reader = (cf_pickle){.tree = &tree, .keep = &keep};
}

static void teardown(void)
{
    cf_arena_free(&tree);
    cf_arena_free(&keep);
}

/* A storage of the size that the id declares. */
static bool storage(void *ctx, const cf_persid *id, const cf_storage **out, cf_err *e)
{
    ck_assert_ptr_nonnull(ctx);
    cf_storage *s = CF_NEW(&keep, cf_storage);
    if (!s) return cf_arena_ok(&keep, e);
    *s = (cf_storage){.size = (uint64_t)(id->numel * cf_dtype_size(id->dtype)), .name = ""};
    *out = s;
    return true;
}

static cf_node *read_pickle(const void *bytes, size_t size)
{
    cf_node *root = NULL;
    reader.storage = storage;
    reader.ctx = &reader;
    return cf_pickle_read(&reader, bytes, size, NULL, &root, &err) ? root : NULL;
}

static cf_node *read_file(const char *name)
{
    return read_pickle(file, load_fixture("pickle", name, file, sizeof file));
}

static void assert_shown(const cf_node *node, const char *want)
{
    cf_text text = {0};
    ck_assert_msg(node != NULL, "%s: %s", cf_code_name(err.code), err.message);
    cf_node_show(&text, node, 4000);
    ck_assert_str_eq(text.at, want);
    cf_text_free(&text);
}

/* A pickle of protocol 4 that names a global and calls it. */
#define B(bytes)          bytes, sizeof(bytes) - 1
#define P(bytes)          B("\x80\4" bytes)
#define G(module, name)   "c" module "\n" name "\n"
#define NUMPY_DTYPE(text) G("numpy", "dtype") "U\2" text "\x89\x88\x87R"
#define STORAGE                                                                                    \
    "(U\7storage" G("torch", "FloatStorage") "U\1"                                                 \
                                             "0U\3cpuK\x8tQ"
#define V2   G("torch._utils", "_rebuild_tensor_v2")
#define REST "\x89}tR."

static const struct {
    const char *bytes;
    size_t size;
    const char *shown;
} values[] = {
    {P("N."), "None"},
    {P("]\x94(K\1M\1\2J\xff\xff\xff\xff\x88"
       "e."),
     "[1, 513, -1, True]"},
    /* MEMOIZE numbers by how many there are, whatever numbers BINPUT gave */
    {P("(K\1q\5K\2\x94h\5h\1t."), "(1, 2, 1, 2)"},
    {P("(K\1q\0K\2q\0h\0t."), "(1, 2, 2)"},
    {P("(K\1\x94K\2\x94K\3q\0h\0h\1t."), "(1, 2, 3, 3, 2)"},
    {P("(K\1q\1K\2q\0K\3\x94h\2h\0h\1t."), "(1, 2, 3, 3, 2, 1)"},
    /* a second object with the same fields, and one whose state is taken up again */
    {P("(cm\nX\nq\0)\x81}(X\1\0\0\0aK\1ubh\0)\x81}(X\1\0\0\0aK\2ubt."),
     "(m.X{'a': 1}, m.X{'a': 2})"},
    {P("(cm\nX\nq\0)\x81}(X\1\0\0\0aK\1ubh\0)\x81}q\7(X\1\0\0\0aK\2ubh\7t."),
     "(m.X{'a': 1}, m.X{'a': 2}, {'a': 2})"},
    {P("\x8a\0."), "0"},
    {P("\x8a\2\0\x80."), "-32768"},
    {P("\x8a\x08\0\0\0\0\0\0\0\x80."), "-9223372036854775808"},
    {P("\x8a\x09\0\0\0\0\0\0\0\x80\0."), "9223372036854775808"},
    {P("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff."), "-9223372036854775809"},
    {P("\x8a\x0a\1\0\0\0\0\0\0\0\0\0."), "1"},
    {P("\x8b\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\1."), "1208925819614629174706176"},
    {P("\x8a\x0b\0\0\0\0\0\0\0\0\0\0\xff."), "-1208925819614629174706176"},
    {P("G\x3f\xd0\0\0\0\0\0\0."), "0.25"},
    {P("U\2\xc3\xa9."), "'é'"},
    {P("U\1\xe9."), "b'\\xe9'"}, /* Python 2's bytes */
    {P("\x96\2\0\0\0\0\0\0\0hi."), "b'hi'"},
    {P("(K\1K\2l."), "[1, 2]"},
    {P("(U\1aK\2d."), "{'a': 2}"},
    {P("\x8f\x94(K\1K\2\x90."), "{1, 2}"},
    {P("K\1(K\2K\3"
       "1\x85."),
     "(1,)"},
    {P("K\1K\2"
       "0\x85."),
     "(1,)"},
    {P(")\x94)\x86."), "((), ())"},
    {P("U\1aq\xffh\xff\x86."), "('a', 'a')"},
    {P("\x95\2\0\0\0\0\0\0\0K\1K\2\x86."), "(1, 2)"},
    {P(G("collections", "OrderedDict") ")R}U\x9_metadataNsb."), "{}"},
    {P(G("collections", "Counter") "}U\1aK\1s\x85R."), "{'a': 1}"},
    {P(G("collections", "OrderedDict") "]]U\1aaK\1aa\x85R."), "{'a': 1}"},
    {P(G("collections", "defaultdict") G("__builtin__", "list") "\x85R."), "{}"},
    {P(G("__builtin__", "frozenset") "]K\1a\x85R."), "{1}"},
    {P(G("__builtin__", "bytes") ")R."), "b''"},
    {P(G("_codecs", "encode") "X\3\0\0\0a\xc3\xbfU\6latin1\x86R."), "b'a\\xff'"},
    {P(G("torch", "Size") "K\2K\3\x86\x85R."), "(2, 3)"},
    {P(G("torch", "bfloat16") "."), "torch.bfloat16"},
    {P(G("torch", "device") "U\4cudaK\1\x86R."), "torch.device('cuda', 1)"},
    {P(G("torch.serialization", "_get_layout") "U\xdtorch.strided\x85R."), "torch.strided"},
    {P(G("pathlib", "PosixPath") "U\1/U\1aU\1b\x87R."), "pathlib.PosixPath('/a/b',)"},
    {P(G("pathlib", "PosixPath") ")R."), "pathlib.PosixPath('.',)"},
    {P(G("pathlib._local", "WindowsPath") "U\3C:\\U\1aU\1b\x87R."),
     "pathlib._local.WindowsPath('C:\\\\a\\\\b',)"},
    {P(G("m.x", "Color") "K\1\x85R."), "m.x.Color(1,)"},
    {P(G("__builtin__", "getattr") G("m.x", "Color") "U\3RED\x86R."), "m.x.Color('RED',)"},
    /* a class in a class, as protocol 2 writes it; flags of Python 3.11.0 */
    {P(G("__builtin__", "getattr") G("m.x", "Outer") "U\5Color\x86RK\1\x85R."),
     "m.x.Outer.Color(1,)"},
    {P(G("__builtin__", "getattr") "(" G("__builtin__", "getattr")
           G("m", "A") "U\1B\x86RU\1CtR)\x81."),
     "m.A.B.C"},
    {P(G("_operator", "or_") G("m", "F") "K\1\x85RK\2\x86R."), "_operator.or_(m.F(1,), 2)"},
    {P(G("__builtin__", "getattr") G("torch.distributed._shard.sharded_tensor.metadata",
                                     "MEM_FORMAT_ENCODING") "U\1T\x86R."),
     "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING('T',)"},
    {P(G("copy_reg", "_reconstructor") G("m", "X") G("__builtin__", "object") "N\x87R."), "m.X"},
    {P(G("m", "X") ")\x81N}U\1aK\1s\x86"
                   "b."),
     "m.X{'a': 1}"},
    {P(G("m", "X") ")\x81}U\1bK\2s}U\1aK\1s\x86"
                   "b."),
     "m.X{'b': 2, 'a': 1}"},
    {P(G("m", "X") ")\x81K\1K\2\x86"
                   "b."),
     "m.X<(1, 2)>"},
    {P(G("m", "X") "K\1\x85}U\1kK\2s\x92."), "m.X(1, {'k': 2})"},
    {P(G("m", "X") ")\x81(K\1e(U\1aK\1u."), "m.X[1]{'a': 1}"},
    {P(G("m", "Outer.Inner") ")\x81."), "m.Outer.Inner"},
    {P(G("_operator", "getitem") G("typing", "Union") ")\x86R."),
     "_operator.getitem(typing.Union, ())"},
    {P(V2 "(" STORAGE "K\0K\2K\4\x86K\4K\1\x86" REST), "tensor(F32[2, 4])"},
    {P(V2 "(" STORAGE "K\x63K\0\x85K\1\x85" REST), "tensor(F32[0])"},
    {P(G("torch.nn.parameter", "Parameter") V2 "(" STORAGE "K\7))\x89}tR\x88\x86R."),
     "tensor(F32[])"},
    {P(G("torch._tensor", "_rebuild_from_type_v2") "(" V2 G("m", "MyTensor") "(" STORAGE
                                                                             "K\0))\x89}t}tR."),
     "tensor(F32[])"},
    {P(G("torch._utils", "_rebuild_tensor_v3") "(" STORAGE
                                               "K\1K\3\x85K\1\x85\x89}" G("torch", "uint16") "tR."),
     "tensor(U16[3])"},
    {P(G("torch._utils", "_rebuild_meta_tensor_no_storage") "(" G("torch",
                                                                  "int8") "K\3\x85K\1\x85\x89tR."),
     "tensor(I8[3])"},
    {P(G("numpy.core.multiarray", "scalar") NUMPY_DTYPE("i2") "(K\3U\1>NNNNNNtb"
                                                              "C\2\1\2\x86R."),
     "int16(258)"},
    {P(G("numpy._core.numeric",
         "_frombuffer") "(\x96\2\0\0\0\0\0\0\0hi" NUMPY_DTYPE("u1") "K\2\x85U\1CtR."),
     "ndarray(U8[2])"},
};

START_TEST(reads_values)
{
    const cf_node *root = read_pickle(values[_i].bytes, values[_i].size);
    assert_shown(root, values[_i].shown);
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    cf_code code;
    int64_t offset; /* -2: not looked at */
} refused[] = {
    {B(""), CF_E_TRUNCATED, 0},
    {P("N"), CF_E_TRUNCATED, 3},
    {P("N.."), CF_E_TRAILING, 4},
    {B("\x80\x63N."), CF_E_OPCODE, 0},
    {P("I1\n."), CF_E_OPCODE, 2},
    {P("N2."), CF_E_OPCODE, 3}, /* DUP */
    {P("\x97."), CF_E_OPCODE, 2},
    {P("."), CF_E_STACK, 2},
    {P("NN."), CF_E_STACK, 4},
    {P("(N."), CF_E_STACK, 4},
    {P("N(0."), CF_E_STACK, 4},
    {P("t."), CF_E_STACK, 2},
    {P("N(\x85."), CF_E_STACK, 4},
    {P("}(Nu."), CF_E_STACK, 5},
    {P("h\0."), CF_E_MEMO, 2},
    {P("(cm\nX\nq\0)\x81}(X\1\0\0\0aK\1ubh\0)\x81}(X\1\0\0\0aK\1X\1\0\0\0aK\2ubt."), CF_E_DUP_KEY,
     46},
    {P("Nr\xff\xff\xff\xff."), CF_E_MEMO, 3},
    {P("\x95\xff\0\0\0\0\0\0\0N."), CF_E_TRUNCATED, 2},
    {P("\x95\1\0\0\0\0\0\0\0K\1."), CF_E_FRAME, 11},
    {P("\x95\3\0\0\0\0\0\0\0N\x95\1\0\0\0\0\0\0\0."), CF_E_FRAME, 12},
    {P("\x95\3\0\0\0\0\0\0\0N.."), CF_E_FRAME, 12},
    {P("X\5\0\0\0abc."), CF_E_TRUNCATED, 2},
    {P("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), CF_E_TRUNCATED, 2},
    {P("\x8b\xff\xff\xff\xff."), CF_E_NUMBER, 2},
    {P("T\xff\xff\xff\xff."), CF_E_NUMBER, 2},
    {P("X\3\0\0\0\xed\xa0\x80."), CF_E_UTF8, 2},
    {P("}U\3a\0bNs."), CF_E_UTF8, 9},
    {P("c\xff\nx\n."), CF_E_UTF8, 2},
    {P("cos"), CF_E_TRUNCATED, 2},
    {P("}(U\1aNU\1aNu."), CF_E_DUP_KEY, 12},
    {P("}]Ns."), CF_E_TYPE, 5},
    {P("]U\1aNs."), CF_E_TYPE, 7},
    {P("K\1}b."), CF_E_TYPE, 5},
    {P("NNa."), CF_E_TYPE, 4},
    {P("N)R."), CF_E_CALL_DENIED, 4},
    {P(G("m", "X") ")R)R."), CF_E_CALL_DENIED, 10},
    {P(G("m", "X") "NR."), CF_E_TYPE, 8},
    {P(G("os", "system") "."), CF_E_GLOBAL_DENIED, 2},
    {P("U\5torchU\x17serialization.os.system\x93."), CF_E_GLOBAL_DENIED, 34},
    {P("NN\x93."), CF_E_TYPE, 4},
    {P(G("__builtin__", "getattr") G("os.path", "join") "."), CF_E_GLOBAL_DENIED, 23},
    {P(G("__builtin__", "getattr") G("m", "X") "U\x9__class__\x86R."), CF_E_CALL_DENIED, 40},
    {P(G("__builtin__", "getattr") G("torch", "Tensor") "U\4set_\x86R."), CF_E_CALL_DENIED, 44},
    {P(G("_operator", "or_") "}}\x86R."), CF_E_CALL_DENIED, 20},
    {P(G("_operator", "or_") "K\1K\2\x86R."), CF_E_CALL_DENIED, 22},
    {P(G("__builtin__", "getattr") G("m", "A") "U\1x\x86R)R."), CF_E_CALL_DENIED, 34},
    {P(G("__builtin__", "type") "K\1\x85R."), CF_E_CALL_DENIED, 23},
    {P(G("_codecs", "encode") "U\1aU\5rot13\x86R."), CF_E_TYPE, 29},
    {P(G("_codecs", "encode") "U\3\xe4\xb8\xadU\6latin1\x86R."), CF_E_TYPE, 32},
    {P("K\1Q."), CF_E_PERSID, 4},
    {P("(U\6moduleNU\1aU\1btQ."), CF_E_PERSID, -2},
    {P("(U\7storage" G("m", "FloatStorage") "U\1"
                                            "0U\3cpuK\x8tQ."),
     CF_E_DTYPE, -2},
    {P("(U\7storageU\1aU\1"
       "0U\3cpuK\x8tQ."),
     CF_E_PERSID, -2},
    {P("(U\7storage" G("torch", "FloatStorage") "U\1"
                                                "0U\3cpuJ\xff\xff\xff\xfftQ."),
     CF_E_NUMBER, -2},
    {P("(U\7storage" G("torch", "FloatStorage") "U\1"
                                                "0U\3cpu\x8a\x8\0\0\0\0\0\0\0\x20tQ."),
     CF_E_OVERFLOW, -2},
    {P(V2 "(" STORAGE "K\1K\2K\4\x86K\4K\1\x86" REST), CF_E_BOUNDS, -2},
    {P(V2 "(" STORAGE "J\xff\xff\xff\xffK\1\x85K\1\x85" REST), CF_E_BOUNDS, -2},
    {P(V2 "(" STORAGE "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7fK\1\x85K\1\x85" REST), CF_E_BOUNDS,
     -2},
    {P(V2 "(" STORAGE "\x8a\x9\0\0\0\0\0\0\0\0\1K\1\x85K\1\x85" REST), CF_E_NUMBER, -2},
    {P(V2 "(" STORAGE "K\0J\xff\xff\xff\xff\x85K\1\x85" REST), CF_E_NUMBER, -2},
    {P(V2 "(" STORAGE "K\0K\1K\1\x86K\1\x85" REST), CF_E_TYPE, -2},
    {P(V2 "(K\0" STORAGE "K\1\x85K\1\x85" REST), CF_E_TYPE, -2},
    {P(V2 "(" STORAGE "K\0))\x89}tR(" STORAGE "K\0))tb."), CF_E_CALL_DENIED, -2},
    {P(V2 "(" STORAGE "K\0))\x89}tRU\1aNs."), CF_E_TYPE, -2},
    {P(G("torch._tensor", "_rebuild_from_type_v2") "(" G("torch._tensor", "_rebuild_from_type_v2")
           G("m", "T") ")}tR."),
     CF_E_CALL_DENIED, -2},
    {P(G("numpy.core.multiarray", "scalar") NUMPY_DTYPE("i2") "C\3abc\x86R."), CF_E_BOUNDS, -2},
};

START_TEST(refuses)
{
    ck_assert_msg(!read_pickle(refused[_i].bytes, refused[_i].size), "case %d", _i);
    ck_assert_msg(err.code == refused[_i].code, "case %d: %s: %s", _i, cf_code_name(err.code),
                  err.message);
    ck_assert_int_ge(err.offset, 0);
    if (refused[_i].offset >= 0) ck_assert_int_eq(err.offset, refused[_i].offset);
}
END_TEST

static const struct {
    const char *module, *name;
    cf_trust trust;
} names[] = {
    {"builtins", "eval", CF_FORBIDDEN},
    {"__builtin__", "dict", CF_MODELLED},
    {"nt", "system", CF_FORBIDDEN},
    {"os.path", "Join", CF_FORBIDDEN},
    {"cPickle", "loads", CF_FORBIDDEN},
    {"argparse", "Namespace", CF_FOREIGN},
    {"argparse", "ArgumentParser", CF_FORBIDDEN},
    {"_io", "BytesIO", CF_FOREIGN},
    {"io", "open", CF_FORBIDDEN},
    {"collections", "deque", CF_FOREIGN},
    {"datetime", "datetime", CF_MODELLED},
    {"torch", "load", CF_FORBIDDEN},
    {"torch", "float8_e4m3fn", CF_MODELLED},
    {"torch.cuda", "HalfStorage", CF_MODELLED},
    {"torch.nn.modules.linear", "Linear", CF_FOREIGN},
    {"torch.distributed.fsdp", "_Private", CF_FOREIGN},
    {"torch.hub", "load", CF_FORBIDDEN},
    {"torch", "_utils._rebuild_tensor_v2", CF_FORBIDDEN},
    {"torch.distributed._shard.sharded_tensor.api", "ShardedTensor.ProcessGroupState", CF_MODELLED},
    {"torch.distributed._tensor.placement_types", "Shard", CF_MODELLED},
    {"torchvision.models", "resnet18", CF_FOREIGN},
    {"numpy._core.multiarray", "_reconstruct", CF_MODELLED},
    {"numpy", "float64", CF_MODELLED},
    {"numpy.dtypes", "Float32DType", CF_FOREIGN},
    {"numpy", "load", CF_FORBIDDEN},
    {"numpy.f2py.os", "system", CF_FORBIDDEN},
    {"megatron.core", "make", CF_FOREIGN},
    {"megatron.core", "os.system", CF_FORBIDDEN},
    {"__main__", "Config", CF_FOREIGN},
    {"", "x", CF_FORBIDDEN},
    {"m", "", CF_FORBIDDEN},
    {"m..n", "X", CF_FORBIDDEN},
    {"m", "a b", CF_FORBIDDEN},
};

START_TEST(names_fall_into_three_classes)
{
    ck_assert_msg(cf_global_trust(names[_i].module, names[_i].name) == names[_i].trust, "%s.%s",
                  names[_i].module, names[_i].name);
}
END_TEST

START_TEST(sharded_tensor)
{
    const cf_node *root = read_file("shardedtensor.pkl");
    ck_assert_msg(root != NULL, "%s", err.message);
    const cf_node *st = cf_node_field(cf_node_field(root, "model"), "transformer.wte.weight");
    ck_assert_str_eq(cf_node_class(st), "ShardedTensor");
    cf_node *const *state =
        cf_object_parts(st->object)->state->list->items; /* shards, metadata, group, spec, rrefs */
    ck_assert_uint_eq(cf_object_parts(st->object)->state->list->count, 5);
    const cf_node *shard = state[0]->list->items[0];
    assert_shown(cf_node_field(shard, "tensor"), "tensor(BF16[2, 3])");
    assert_shown(cf_node_field(cf_node_field(shard, "metadata"), "shard_offsets"), "[0, 0]");
    assert_shown(cf_node_field(state[1], "size"), "(7, 3)");
    ck_assert_str_eq(cf_node_class(state[2]), "ProcessGroupState");
    ck_assert_int_eq(cf_node_field(state[2], "global_world_size")->integer, 4);
    ck_assert_int_eq(st->object->class->trust, CF_MODELLED);
    ck_assert_int_eq(root->dict->count > 1, true);
}
END_TEST

START_TEST(dtensor_and_dcp_metadata)
{
    const cf_node *root = read_file("dtensor.pkl");
    ck_assert_msg(root != NULL, "%s", err.message);
    const cf_node *dt = cf_node_field(root, "model.norm.weight");
    ck_assert_str_eq(cf_node_class(dt), "DTensor");
    assert_shown(cf_node_field(dt, "_local_tensor"), "tensor(F32[2])");
    const cf_node *spec = cf_node_field(dt, "_spec");
    assert_shown(cf_node_field(spec, "tensor_meta"),
                 "torch.distributed.tensor._dtensor_spec.TensorMeta((8,), (1,), torch.float32)");

    root = read_file("dcp_2_1.pkl");
    ck_assert_msg(root != NULL, "%s", err.message);
    const cf_dict *data = cf_node_field(root, "storage_data")->dict;
    for (size_t i = 0; i < data->count; i++) {
        ck_assert_str_eq(cf_node_class(data->pairs[i].key), "MetadataIndex");
        ck_assert_ptr_eq(cf_dict_find(data, data->pairs[i].key), data->pairs[i].value);
    }
    ck_assert_int_eq(cf_node_field(data->pairs[0].value, "length")->integer, 864);
    const cf_node *entry = cf_node_field(cf_node_field(root, "state_dict_metadata"), "st");
    ck_assert_int_eq(
        cf_object_parts(cf_node_field(entry, "properties")->object)->state->list->items[0]->dtype,
        CF_F32);
}
END_TEST

static const char *const zoo[] = {"proto2.pkl", "proto5.pkl", "numpy1.pkl", "winpath.pkl"};

START_TEST(foreign_objects)
{
    const cf_node *root = read_file(zoo[_i]);
    ck_assert_msg(root != NULL, "%s", err.message);
    assert_shown(cf_node_field(root, "model"), "{'w': tensor(F32[2, 3]), 'b': tensor(BF16[3])}");
    assert_shown(cf_node_field(root, "best"), "float64(0.25)");
    assert_shown(cf_node_field(root, "arr"), "ndarray(F32[4])");
    assert_shown(cf_node_field(root, "neg"), "-1180591620717411303424");
    assert_shown(cf_node_field(root, "color"), "megatron_like.training.state.Color(1,)");
    assert_shown(cf_node_field(root, "dev"), "torch.device('cuda', 7)");
    assert_shown(cf_node_field(root, "recursive"), "{'name': 'self', 'me': ...}");
    const cf_node *args = cf_node_field(root, "args");
    ck_assert_int_eq(args->object->class->trust, CF_FOREIGN);
    ck_assert_int_eq(cf_node_field(args, "tensor_model_parallel_size")->integer, 2);
    ck_assert_int_eq(cf_node_field(args, "params_dtype")->dtype, CF_BF16);
}
END_TEST

START_TEST(torchscript)
{
    const cf_node *root = read_file("torchscript.pkl");
    ck_assert_msg(root != NULL, "%s", err.message);
    ck_assert_str_eq(cf_node_class(root), "Sequential");
    assert_shown(cf_node_field(cf_node_field(root, "2"), "weight"), "tensor(F32[2, 3])");
}
END_TEST

START_TEST(inert_reads_the_rest)
{
    ck_assert_ptr_null(read_file("evil.pkl"));
    ck_assert_int_eq(err.code, CF_E_GLOBAL_DENIED);
    ck_assert_ptr_nonnull(strstr(err.message, "io.open"));
    ck_assert_ptr_nonnull(strstr(err.hint, "--inert"));
    reader.inert = true;
    const cf_node *root = read_file("evil.pkl");
    ck_assert_msg(root != NULL, "%s", err.message);
    ck_assert_str_eq(reader.forbidden, "io.open");
    ck_assert_int_eq(cf_node_field(root, "evil")->object->class->trust, CF_FORBIDDEN);
    assert_shown(cf_node_field(cf_node_field(root, "model"), "w"), "tensor(F32[2, 3])");
    /* getattr(os, 'system')('x') */
    root = read_pickle(P(G("__builtin__", "getattr") G("os", "path") "U\6system\x86RU\1x\x85R."));
    assert_shown(root, "__builtin__.getattr('x',)");
}
END_TEST

START_TEST(flags_and_order)
{
    static const char CONJ[] = "\x80\4" V2 "((U\7storage" G(
        "torch", "ComplexFloatStorage") "U\1"
                                        "0U\3cpuK\x8tQK\1))\x89}}(U\4conj\x88U\3neg\x88utR.";
    const cf_node *root = read_pickle(B(CONJ));
    assert_shown(root, "tensor(C64[])");
    ck_assert(root->view->conj && root->view->neg);
    ck_assert_uint_eq(root->view->offset, 8);

    static const char FORTRAN[] = "\x80\4" G("numpy.core.multiarray", "_reconstruct")
        G("numpy", "ndarray") "K\0\x85"
                              "C\1b\x87R(K\1K\2K\3\x86" NUMPY_DTYPE("u1") "\x88"
                                                                          "C\6abcdeftb.";
    root = read_pickle(B(FORTRAN));
    assert_shown(root, "ndarray(U8[2, 3])");
    ck_assert_int_eq(root->view->stride[0], 1);
    ck_assert_int_eq(root->view->stride[1], 2);
    ck_assert_int_eq(root->view->storage->bytes[5], 'f');
}
END_TEST

START_TEST(objects_in_arrays)
{
    static const char OBJECTS[] = "\x80\4" G("numpy.core.multiarray", "_reconstruct")
        G("numpy", "ndarray") "K\0\x85"
                              "C\1b\x87R(K\1K\1\x85" NUMPY_DTYPE("O8") "\x89]Natb.";
    const cf_node *root = read_pickle(B(OBJECTS));
    ck_assert(root && root->kind == CF_NODE_OBJECT);
    ck_assert_int_eq(cf_object_parts(root->object)->state->list->items[4]->kind, CF_NODE_LIST);
}
END_TEST

START_TEST(several_in_a_row)
{
    static const char TWO[] = "\x80\2K\1.\x80\2K\2.";
    size_t used;
    cf_node *root;
    ck_assert(cf_pickle_read(&reader, (const uint8_t *)TWO, sizeof TWO - 1, &used, &root, &err));
    ck_assert_uint_eq(used, 5);
    ck_assert(cf_pickle_read(&reader, (const uint8_t *)TWO + used, 5, &used, &root, &err));
    ck_assert_int_eq(root->integer, 2);
    ck_assert(!cf_pickle_read(&reader, (const uint8_t *)"\x80\2K\1Q.", 6, NULL, &root, &err));
    ck_assert_int_eq(err.code, CF_E_PERSID);
}
END_TEST

START_TEST(bombs)
{
    enum { N = 1 << 20 };
    char *bytes = malloc(N + 2);
    memset(bytes, '(', N);
    bytes[N] = 'N';
    bytes[N + 1] = '.';
    ck_assert(!read_pickle(bytes, N + 2)); /* a million marks */
    ck_assert_int_eq(err.code, CF_E_STACK);
    memset(bytes, '\x85', N);
    bytes[0] = 'N';
    bytes[N] = '.';
    ck_assert(!read_pickle(bytes, 60000)); /* no STOP */
    bytes[60000] = '.';
    ck_assert(!read_pickle(bytes, 60001));
    ck_assert_int_eq(err.code, CF_E_DEPTH);
    /* one text of 4 KiB, encoded again and again */
    size_t n = (size_t)snprintf(bytes, 128,
                                "\x80\4" G("_codecs", "encode") "q1"
                                                                "0X");
    memcpy(bytes + n, "\0\x10\0\0", 4);
    memset(bytes + n + 4, 'a', 4096);
    n += 4100;
    memcpy(bytes + n,
           "U\6latin1\x86q2"
           "0",
           12);
    n += 12;
    for (; n < N - 8; n += 6) memcpy(bytes + n, "h1h2R0", 6);
    bytes[n++] = 'N';
    bytes[n++] = '.';
    ck_assert(!read_pickle(bytes, n));
    ck_assert_msg(err.code == CF_E_LIMIT, "%s", err.message);
    free(bytes);
}
END_TEST

START_TEST(every_cut_and_every_flip)
{
    ck_assert_ptr_nonnull(read_file("proto5.pkl"));
    const size_t size = load_fixture("pickle", "proto5.pkl", file, sizeof file);
    for (size_t i = 0; i < size; i++) {
        teardown();
        setup();
        uint8_t *cut = malloc(i + 1); /* its own block: sanitizers see a byte too far */
        memcpy(cut, file, i);
        ck_assert(!read_pickle(cut, i));
        free(cut);
        file[i] ^= (uint8_t)(1 << i % 8);
        read_pickle(file, size);
        file[i] ^= (uint8_t)(1 << i % 8);
    }
}
END_TEST

START_TEST(little_memory)
{
    for (size_t limit = 1; limit < 40000; limit += 97) {
        teardown();
        cf_arena_init(&tree, limit);
        cf_arena_init(&keep, 4096);
        if (!read_file("proto2.pkl")) ck_assert_int_eq(err.code, CF_E_LIMIT);
    }
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

int main(void)
{
    Suite *suite = suite_create("pickle");
    TCase *tcase = tcase_create("pickle");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, reads_values, 0, COUNT(values));
    tcase_add_loop_test(tcase, refuses, 0, COUNT(refused));
    tcase_add_loop_test(tcase, names_fall_into_three_classes, 0, COUNT(names));
    tcase_add_loop_test(tcase, foreign_objects, 0, COUNT(zoo));
    tcase_add_test(tcase, sharded_tensor);
    tcase_add_test(tcase, dtensor_and_dcp_metadata);
    tcase_add_test(tcase, torchscript);
    tcase_add_test(tcase, inert_reads_the_rest);
    tcase_add_test(tcase, flags_and_order);
    tcase_add_test(tcase, objects_in_arrays);
    tcase_add_test(tcase, several_in_a_row);
    tcase_add_test(tcase, bombs);
    tcase_add_test(tcase, every_cut_and_every_flip);
    tcase_add_test(tcase, little_memory);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
