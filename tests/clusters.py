#!/usr/bin/env python3
"""clusters.py CKPTFLOW: rank files as other clusters' devices, Pythons and numpys write them.

Three ranks of OLMo's rank files, cut unevenly, pickled by Python's own pickler in every protocol
from 2 to 5 (tests/bench/generate.py has the stand-ins for torch's and numpy's classes). Whatever
the spelling, the tensors must be those that were cut and the values must be what is expected here;
what cannot be read must be refused with the rank, the file and the reason.
"""

import collections
import enum
import io
import json
import operator
import pathlib
import struct
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).parent / "bench"))
import generate
from generate import Call, made

WORLD = 3
SHAPES = {"wte.weight": (7, 4), "ln.weight": (2,)}  # the last rank has less, or none


def name(module, path):
    """A class of this path: the one that is there, or a stand-in."""
    there = getattr(sys.modules.get(module), path, None)
    return there or generate.name(module, path)


def foreign(module):
    """A class decorator: of a third party's module, under its own path."""

    def put(cls):
        for i in reversed(range(module.count(".") + 1)):
            part = module.rsplit(".", i)[0]
            sys.modules.setdefault(part, types.ModuleType(part))
        place = sys.modules[module]
        cls.__module__ = module
        setattr(place, cls.__qualname__, cls)
        return cls

    return put


# ---- what values may look like -----------------------------------------------------------------


@foreign("megatron_like.config")
class Outer:
    class Kind(enum.Enum):
        IN = 1

    class Inner:
        class Deep(enum.Enum):
            D = "d"

        def __init__(self):
            self.lr = 0.1


for inner in (Outer.Kind, Outer.Inner, Outer.Inner.Deep):
    inner.__module__ = "megatron_like.config"


@foreign("megatron_like.config")
class Kind(enum.Enum):
    FULL = "full"
    PAIR = (1, 2)


@foreign("megatron_like.config")
class Text(str, enum.Enum):  # StrEnum pickles as this
    X = "x"


@foreign("megatron_like.config")
class Flags(enum.IntFlag):
    A = 1
    B = 2
    C = 4


def by_value(member, protocol):
    return member.__class__, (member._value_,)


for each in (Kind, Text, Flags, Outer.Kind, Outer.Inner.Deep):  # whatever the Python at hand does
    each.__reduce_ex__ = by_value


@foreign("megatron_like.config")
class Named(enum.Enum):  # as Python 3.11.0 to 3.11.3 write all of them
    FULL_SHARD = 1
    lower = 2

    def __reduce_ex__(self, protocol):
        return getattr, (self.__class__, self._name_)


@foreign("megatron_like.config")
class OldFlags(enum.IntFlag):  # as the same write flags: or_ of two
    A = 1
    B = 2
    C = 4

    def __reduce_ex__(self, protocol):
        lowest = self.value & -self.value
        if self.value != lowest:
            return operator.or_, (OldFlags(self.value & ~lowest), OldFlags(lowest))
        return getattr, (self.__class__, self._name_)


@foreign("megatron_like.config")
class Global(enum.Enum):  # enum.global_enum, enum._convert_
    AUTO = 1

    def __reduce_ex__(self, protocol):
        return self._name_


sys.modules["megatron_like.config"].AUTO = Global.AUTO


@foreign("megatron_like.config")
class Slots:
    __slots__ = ("p", "q")

    def __init__(self):
        self.p, self.q = 1, "q"


@foreign("omegaconf_like")
class Config(dict):
    pass


Point = foreign("megatron_like.config")(collections.namedtuple("Point", "a b"))
STRATEGY = name("torch.distributed.fsdp.api", "ShardingStrategy")


def config():
    made_ = Config(a=1)
    made_.flags = 3
    return made_


def of(cls, *args, **fields):
    """As values.json has an object."""
    said = {"$class": cls}
    if args:
        said["args"] = list(args)
    if fields:
        said["state"] = fields
    return said


HERE = "megatron_like.config."


def path(module, cls, parts, whole):
    cls = name(module, cls)
    return Call(cls, *parts), of(f"{cls.__module__}.{cls.__name__}", whole)


def values():
    """{key: (value, what becomes of it)}"""
    old = of("_operator.or_", of("_operator.or_", of(HERE + "OldFlags", "C"), of(HERE + "OldFlags", "B")))
    old["args"].append(of(HERE + "OldFlags", "A"))
    plain = {
        "by_value": (Kind.FULL, of(HERE + "Kind", "full")),
        "by_tuple": (Kind.PAIR, of(HERE + "Kind", {"$tuple": [1, 2]})),
        "text": (Text.X, of(HERE + "Text", "x")),
        "flag": (Flags.A | Flags.C, of(HERE + "Flags", 5)),
        "by_name": (Named.FULL_SHARD, of(HERE + "Named", "FULL_SHARD")),
        "by_lower_name": (Named.lower, of(HERE + "Named", "lower")),
        "old_flags": (OldFlags(7), old),
        "global": (Global.AUTO, of(HERE + "AUTO")),
        "torch_enum": (Call(STRATEGY, 1), of("torch.distributed.fsdp.api.ShardingStrategy", 1)),
        "torch_enum_by_name": (
            Call(getattr, STRATEGY, "FULL_SHARD"),
            of("torch.distributed.fsdp.api.ShardingStrategy", "FULL_SHARD"),
        ),
        "nested": (Outer.Kind.IN, of(HERE + "Outer.Kind", 1)),
        "nested_twice": (Outer.Inner.Deep.D, of(HERE + "Outer.Inner.Deep", "d")),
        "nested_object": (Outer.Inner(), of(HERE + "Outer.Inner", lr=0.1)),
        "slots": (Slots(), of(HERE + "Slots", p=1, q="q")),
        "tuple": (Point(1, 2), of(HERE + "Point", 1, 2)),
        "config": (config(), {**of("omegaconf_like.Config", flags=3), "pairs": [["a", 1]]}),
    }
    posix, windows = ["/", "runs", "x"], ["C:\\", "runs", "x"]
    for module in ("pathlib", "pathlib._local"):  # Python 3.13's own is of the latter
        for cls, parts, whole in (
            ("PosixPath", posix, "/runs/x"),
            ("PurePosixPath", posix[1:], "runs/x"),
            ("WindowsPath", windows, "C:\\runs\\x"),
            ("PureWindowsPath", ["\\\\server\\share\\", "x"], "\\\\server\\share\\x"),
            ("PosixPath", ["/runs/x"], "/runs/x"),  # Python 3.13 keeps what it was made of
        ):
            plain[f"path_{len(plain)}"] = path(module, cls, parts, whole)
    return plain


def arrays(core):
    """The same of numpy, whose modules are `core`."""
    dtype, rebuild = name("numpy", "dtype"), name(core + ".multiarray", "_reconstruct")
    scalar, buffer = name(core + ".multiarray", "scalar"), name(core + ".numeric", "_frombuffer")
    pickle_ = "numpy.random._pickle"
    state_ctor = name(pickle_, "__randomstate_ctor")
    bits, generator = name(pickle_, "__bit_generator_ctor"), name(pickle_, "__generator_ctor")
    seeds = name("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence")
    seed_class = name("numpy.random.bit_generator", "SeedSequence")
    pcg = name("numpy.random._pcg64", "PCG64")

    def type_(text, order="<", size=-1):
        return Call(dtype, text, False, True, state=(3, order, None, None, None, size, size, 0))

    def array(text, shape, data, order="<", size=-1, cls="ndarray"):
        how = (1, shape, type_(text, order, size), False, data)
        return Call(rebuild, name("numpy", cls), (0,), b"b", state=how)

    def opaque(text):
        return lambda said: said["$class"] == "numpy.ndarray" and text in json.dumps(said)

    seed = Call(seeds, seed_class, 65708578, None, state=(1, 0, None, 4, ()))
    pcg_state = {"bit_generator": "PCG64", "state": {"state": 2**100, "inc": 3}, "has_uint32": 0}
    made_bits = Call(bits, pcg, state=(pcg_state, seed))

    def is_generator(said):
        text = json.dumps(said)
        return said["$class"] == pickle_ + ".__generator_ctor" and str(2**100) in text

    f4 = struct.pack("<2f", 1.5, -2)
    return {
        "f32": (Call(scalar, type_("f4"), f4[:4]), {"$scalar": "F32", "value": 1.5}),
        "be": (Call(scalar, type_("f4", ">"), f4[3::-1]), {"$scalar": "F32", "value": 1.5}),
        "bool": (Call(scalar, type_("b1", "|"), b"\1"), {"$scalar": "BOOL", "value": True}),
        "i8": (Call(scalar, type_("i8"), struct.pack("<q", -5)), {"$scalar": "I64", "value": -5}),
        "array": (array("f4", (2,), f4), ("F32", [2], f4)),
        "matrix": (array("f4", (1, 2), f4, cls="matrix"), ("F32", [1, 2], f4)),
        "big": (array("i2", (2,), b"\0\1\0\2", ">"), ("I16", [2], b"\1\0\2\0")),
        "buffer": (Call(buffer, f4, type_("f4"), (2,), "C"), ("F32", [2], f4)),
        "objects": (array("O", (2,), [1, "a"], "|"), opaque('"a"')),
        "texts": (array("U1", (1,), b"x\0\0\0", "<", 4), opaque("U1")),
        "state": (Call(state_ctor, made_bits), lambda said: str(2**100) in json.dumps(said)),
        "generator": (Call(generator, made_bits), is_generator),
    }


# ---- a checkpoint ------------------------------------------------------------------------------


def elements(key, state, begin, end):
    kind = list(SHAPES).index(key) * 1000 + ("", "exp_avg", "exp_avg_sq").index(state) * 100
    return struct.pack(f"<{end - begin}f", *range(kind + begin, kind + end))


class Writer:
    """tag: of devices, ("cuda", 7); placement: gives what is in metadata; rebuild: wraps the tensor
    of a shard in what a device's backend makes of it."""

    def __init__(self, protocol=2, tag=("cpu",), placement=None, rebuild=None, extra=None, step=10):
        self.protocol, self.tag, self.rebuild = protocol, tag, rebuild
        self.placement = placement or self.remote
        self.extra, self.step = extra or {}, step

    def remote(self, rank):
        device = Call(generate.DEVICE, *self.tag)
        return made(generate.REMOTE, _worker_name=None, _rank=rank, _device=device)

    def sharded(self, key, state, rank):
        shape = SHAPES[key]
        row = generate.product(shape[1:])
        each = -(-shape[0] // WORLD)

        def metadata(r):
            begin = min(r * each, shape[0])
            sizes = [min(each, shape[0] - begin), *shape[1:]]
            offsets = [begin, *[0] * (len(shape) - 1)]
            return made(
                generate.PIECE_METADATA,
                shard_offsets=offsets,
                shard_sizes=sizes,
                placement=self.placement(r),
            )

        local, mine = [], metadata(rank)
        if mine.shard_sizes[0]:
            begin = mine.shard_offsets[0] * row
            count = mine.shard_sizes[0] * row
            data = generate.Storage(
                generate.FLOAT_STORAGE, count, elements(key, state, begin, begin + count)
            )
            size = tuple(mine.shard_sizes)
            tensor = generate.plain(size, generate.strides(size), data)
            if self.rebuild:
                tensor = self.rebuild(tensor, size, data.bytes)
            local.append(made(generate.PIECE, tensor=tensor, metadata=mine))
        everything = [m for m in map(metadata, range(WORLD)) if m.shard_sizes[0]]
        layout, cpu = generate.LAYOUT, Call(generate.DEVICE, *self.tag)
        how = (generate.FLOAT32, layout, False, generate.CONTIGUOUS, False)
        state = (
            local,
            made(
                generate.TENSOR_METADATA,
                shards_metadata=everything,
                size=Call(generate.SIZE, (*shape,)),
                tensor_properties=made(generate.PROPERTIES, state=how),
            ),
            made(
                generate.GROUP,
                local_rank=rank,
                global_rank=rank,
                local_world_size=WORLD,
                global_world_size=WORLD,
            ),
            made(generate.CHUNKED, dim=0, placements=[m.placement for m in everything]),
            False,
        )
        steps = generate.strides(shape)
        args = (generate.SHARDED, generate.FLOAT32, (*shape,), steps, 0, layout, cpu, False)
        return Call(
            generate.REBUILD_TYPE, generate.REBUILD_SUBCLASS, generate.SHARDED, args, state
        )

    def root(self, rank):
        model = collections.OrderedDict((k, self.sharded(k, "", rank)) for k in SHAPES)
        states = {
            k: {s: self.sharded(k, s, rank) for s in ("exp_avg", "exp_avg_sq")} for k in SHAPES
        }
        return {
            "model": model,
            "optim": {"state": states, "param_groups": [{"lr": 0.1}]},
            "global_step": self.step,
            "world_size": WORLD,
            "extra": self.extra,
            "device": Call(generate.DEVICE, *self.tag),
        }

    def write(self, folder, ranks=range(WORLD)):
        folder.mkdir(exist_ok=True)
        for rank in ranks:
            stream = io.BytesIO()
            pickler = generate.Pickler(stream, self.protocol)
            pickler.location = ":".join(map(str, self.tag))
            pickler.dump(self.root(rank))
            with open(folder / f"rank{rank}.pt", "wb") as file:
                archive = generate.Archive(file, f"rank{rank}")
                archive.add("data.pkl", [stream.getbuffer()])
                archive.add("byteorder", [b"little"])
                for number, storage in enumerate(pickler.storages):
                    archive.add(f"data/{number}", [storage.bytes])
                archive.add("version", [b"3\n"])
                archive.finish()
        return folder


# ---- what comes out ----------------------------------------------------------------------------


def read_safetensors(file):
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for key, item in json.loads(data[8 : 8 + size]).items():
        if key != "__metadata__":
            begin, end = (8 + size + at for at in item["data_offsets"])
            tensors[key] = (item["dtype"], item["shape"], data[begin:end])
    return tensors


class Tool:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.count = binary, folder, 0

    def fresh(self):
        self.count += 1
        return self.folder / str(self.count)

    def run(self, *checkpoints):
        out = self.fresh()
        command = [self.binary, "run", "unshard.lua", *map(str, checkpoints), "-o", str(out), "-q"]
        done = subprocess.run(command, capture_output=True, text=True)
        return out, done.returncode, done.stderr.strip()

    def holds(self, *checkpoints, dtype="F32", extra=None):
        """It converts, to the right tensors and values."""
        out, code, said = self.run(*checkpoints)
        assert code == 0, f"exit {code}: {said}"
        model, optim = (read_safetensors(out / f"{r}.safetensors") for r in ("model", "optim"))
        want_model, want_optim = {}, {}
        for key, shape in SHAPES.items():
            n = generate.product(shape)
            for state in ("", "exp_avg", "exp_avg_sq"):
                data = elements(key, state, 0, n)
                if dtype == "BF16":
                    data = b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))
                where, full = (want_optim, f"{key}.{state}") if state else (want_model, key)
                where[full] = (dtype, list(shape), data)
        assert model == want_model, f"model: {model}"
        assert optim == want_optim, f"optim: {optim}"
        said = json.loads((out / "train.json").read_text())
        beside = out / "train.safetensors"
        tensors = read_safetensors(beside) if beside.exists() else {}
        for key, (_, want) in (extra or {}).items():
            got = said["extra." + key]
            if isinstance(want, tuple):
                assert tensors[got["$tensor"]] == want, f"{key}: {tensors[got['$tensor']]}"
            elif callable(want):
                assert want(got), f"{key}: {got}"
            else:
                assert got == want, f"{key}: {got} is not {want}"

    def refused(self, checkpoints, code, *words):
        _, status, said = self.run(*checkpoints)
        assert status, "it was taken"
        for word in (code, *words):
            assert word in said, f"no {word!r} in {said}"


# ---- the cases ---------------------------------------------------------------------------------


def devices(tool):
    for tag in (("cuda", 7), ("hip", 0), ("xpu", 1), ("mps", 0), ("privateuseone", 0), ("npu", 3)):
        tool.holds(Writer(tag=tag).write(tool.fresh()))
    tool.holds(Writer(tag=("meta",)).write(tool.fresh()))  # a name only: there are bytes
    text = Writer(tag=("cuda", 7), placement=lambda rank: f"rank:{rank}/cuda:7")
    tool.holds(text.write(tool.fresh()))
    tool.holds(Writer(placement=lambda rank: None).write(tool.fresh()))


def backends(tool):
    """Tensors of devices without storages."""
    utils = "torch._utils"
    from_tensor = name(utils, "_rebuild_device_tensor_from_cpu_tensor")
    bf16 = name("torch", "bfloat16")

    def cpu(tensor, size, data):
        return Call(from_tensor, tensor, generate.FLOAT32, "privateuseone:0", False)

    def array(function, dtype):
        def rebuild(tensor, size, data):
            f4 = Call(generate.NUMPY_DTYPE, "f4", False, True)
            state = (1, size, f4, False, data)
            whole = Call(generate.RECONSTRUCT, generate.NDARRAY, (0,), b"b", state=state)
            return Call(name(utils, function), whole, dtype, "xla:0", False)

        return rebuild

    tool.holds(Writer(rebuild=cpu).write(tool.fresh()))
    for function in ("_rebuild_device_tensor_from_numpy", "_rebuild_xla_tensor"):
        tool.holds(Writer(rebuild=array(function, generate.FLOAT32)).write(tool.fresh()))
    # the properties of the whole say float32, so a bfloat16 shard is of another save
    other = Writer(rebuild=array("_rebuild_xla_tensor", bf16)).write(tool.fresh())
    tool.refused([other], "E_META_CONFLICT", "rank0.pt", "model.wte.weight")


def no_data(tool):
    """Shards on the device meta have no data: nothing to join."""
    meta = name("torch._utils", "_rebuild_meta_tensor_no_storage")

    def nothing(tensor, size, data):
        return Call(meta, generate.FLOAT32, size, generate.strides(size), False)

    folder = Writer(rebuild=nothing).write(tool.fresh())
    tool.refused([folder], "E_", "rank0.pt", "model.wte.weight")


def spellings(tool):
    for protocol in (2, 3, 4, 5):
        for core in ("numpy.core", "numpy._core"):
            extra = {**values(), **arrays(core)}
            given = {key: value for key, (value, _) in extra.items()}
            folder = Writer(protocol, extra=given).write(tool.fresh())
            tool.holds(folder, extra=extra)


def copied_while_saving(tool):
    old, new = Writer(step=10), Writer(step=20)
    mixed = old.write(tool.fresh())
    new.write(mixed, [1])
    tool.refused([mixed], "E_META_CONFLICT", "global_step: 10 on ranks 0,2 (rank0.pt)", "20 on rank 1 (rank1.pt)")
    empty = new.write(tool.fresh())
    (empty / "rank1.pt").write_bytes(b"")
    tool.refused([empty], "E_TRUNCATED", "rank1.pt")
    cut = new.write(tool.fresh())
    data = (cut / "rank2.pt").read_bytes()
    for size in (1, 3, 30, 100, len(data) // 2, len(data) - 1, len(data) - 22):
        (cut / "rank2.pt").write_bytes(data[:size])
        tool.refused([cut], "E_", "rank2.pt")
    (cut / "rank2.pt").write_bytes(data[: len(data) // 2].ljust(len(data), b"\0"))
    tool.refused([cut], "E_", "rank2.pt")
    torn = new.write(tool.fresh())
    (torn / "rank1.pt").rename(torn / "rank1.pt.tmp")
    tool.refused(
        [torn], "E_MISSING_FILE", "rank 1 of world 3 is missing", "model.wte.weight (rows 3 to 5)",
        "rank1.pt.tmp looks like a file that was still being written",
    )
    both = new.write(tool.fresh())  # the whole one is there too
    (both / "rank1.pt.tmp").write_bytes((both / "rank1.pt").read_bytes()[:100])
    tool.holds(both)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in (devices, backends, no_data, spellings, copied_while_saving):
            tool = Tool(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(folder) / case.__name__)
            tool.folder.mkdir()
            try:
                case(tool)
            except AssertionError as error:
                print(f"FAIL {case.__name__} {tool.count}: {error}")
                failed += 1
    print("all as expected" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
