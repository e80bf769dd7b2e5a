#!/usr/bin/env python3
"""Writes a checkpoint as OLMo's `torch_legacy` does: rank<N>.pt by torch.save, of ShardedTensors.

No torch is needed. The pickles come from Python's own pickler: classes that only carry torch's
names stand in for torch's, so that opcodes, memo and sharing are those of a real file. The archives
are laid out byte for byte as torch 2.13 lays them out: alignment by padding of Z, sizes and CRC-32
behind the data, ZIP64 end record. Tensors are float32 noise; all files together have SIZE.

  --layout rows      large tensors, shards of rows (FSDP)
           columns   large tensors, shards of columns
           tiny      thousands of tensors, shards of some KiB
           ranges    one flat vector a rank, cut anywhere (--plugin tests/bench/ranges.lua)
           ranks     nine small tensors whatever --size says, for hundreds of ranks: uneven shards,
                     and ranks that have none
  --row BYTES        of columns: a shard's row in most tensors (others: four times that)
"""

import argparse
import array
import collections
import functools
import hashlib
import io
import os
import pathlib
import pickle
import random
import re
import struct
import sys
import types
import zlib

# ---- names of torch and numpy ------------------------------------------------------------------


def name(module, path, slots=None):
    """A class that is pickled as `module path`, inside its outer one where path has a dot."""
    *outer, last = path.split(".")
    for i in range(module.count(".") + 1):
        part = module.rsplit(".", i)[0]
        sys.modules.setdefault(part, types.ModuleType(part))
    fields = {"__module__": module, "__qualname__": path}
    if slots:
        fields["__slots__"] = slots
    cls = type(last, (), fields)
    place = sys.modules[module]
    for part in outer:
        place = getattr(place, part)
    setattr(place, last, cls)
    return cls


SHARD = "torch.distributed._shard."
FLOAT32 = name("torch", "float32")
FLOAT_STORAGE = name("torch", "FloatStorage")
BYTE_STORAGE = name("torch", "ByteStorage")
SIZE = name("torch", "Size")
DEVICE = name("torch", "device")
GET_LAYOUT = name("torch.serialization", "_get_layout")
REBUILD_TENSOR = name("torch._utils", "_rebuild_tensor_v2")
REBUILD_SUBCLASS = name("torch._utils", "_rebuild_wrapper_subclass")
REBUILD_TYPE = name("torch._tensor", "_rebuild_from_type_v2")
SHARDED = name(SHARD + "sharded_tensor.api", "ShardedTensor")
GROUP = name(SHARD + "sharded_tensor.api", "ShardedTensor.ProcessGroupState")
PIECE = name(SHARD + "sharded_tensor.shard", "Shard", ["tensor", "metadata"])
PIECE_METADATA = name(
    SHARD + "metadata", "ShardMetadata", ["shard_offsets", "shard_sizes", "placement"]
)
TENSOR_METADATA = name(SHARD + "sharded_tensor.metadata", "ShardedTensorMetadata")
PROPERTIES = name(SHARD + "sharded_tensor.metadata", "TensorProperties")
MEMORY_FORMAT = name(SHARD + "sharded_tensor.metadata", "MEM_FORMAT_ENCODING")
CHUNKED = name(SHARD + "sharding_spec.chunk_sharding_spec", "ChunkShardingSpec")
REMOTE = name("torch.distributed.remote_device", "_remote_device")
NDARRAY = name("numpy", "ndarray")
NUMPY_DTYPE = name("numpy", "dtype")
RECONSTRUCT = name("numpy._core.multiarray", "_reconstruct")
PROPERTIES.__getstate__ = lambda self: self.state


class Call:
    """Pickled as function(*arguments), then state."""

    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


def made(cls, **fields):
    thing = cls.__new__(cls)
    for key, value in fields.items():
        setattr(thing, key, value)
    return thing


# ---- tensors -----------------------------------------------------------------------------------

Storage = collections.namedtuple("Storage", "kind count bytes")  # or how many, for a rank
CONTIGUOUS = Call(MEMORY_FORMAT, 0)
LAYOUT = Call(GET_LAYOUT, "torch.strided")
LOCATION = "cpu"


def device():
    return Call(DEVICE, str(b"cpu", "ascii"))  # torch makes a new string each time


def strides(shape):
    steps = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        steps[i] = steps[i + 1] * shape[i + 1]
    return tuple(steps)


def product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def plain(size, steps, storage):
    return Call(REBUILD_TENSOR, storage, 0, size, steps, False, collections.OrderedDict())


# ---- what differs between ranks ----------------------------------------------------------------


def encoded(value):
    """As it stands in a pickle; a list: its items, one after another."""
    if isinstance(value, list):
        return b"".join(map(encoded, value))
    if isinstance(value, bytes):
        text = str(value, "latin1").encode()
        return b"X" + struct.pack("<I", len(text)) + text
    return pickle.dumps(value, 2)[2:-1]


class Holes:
    """A pickle is made once for all ranks that hold shards of the same tensors: where they differ,
    numbers and bytes that occur nowhere else stand for theirs, and are replaced for each rank.
    Nothing that is replaced has a place in the memo, so what is left fits all of them."""

    FIRST = 0x5EE00000
    MARK = re.compile(rb"J([\0-\377]{2}[\xe0-\xef])\x5e|X\x0c\0\0\0HOLE-(\d{7})")

    def __init__(self):
        self.values = []  # functions of a rank

    def number(self, value):
        self.values.append(value)
        return self.FIRST + len(self.values) - 1

    def bytes(self, value):
        self.values.append(value)
        return b"HOLE-%07d" % (len(self.values) - 1)

    def cut(self, stream):
        """Parts of a pickle, and between each two of them the hole."""
        self.parts, self.order, at = [], [], 0
        for found in self.MARK.finditer(stream):
            mark = int.from_bytes(found[1], "little") & 0xFFFFF if found[1] else int(found[2])
            self.order.append(mark)
            self.parts.append(stream[at : found.start()])
            at = found.end()
        self.parts.append(stream[at:])
        assert len(set(self.order)) == len(self.order) == len(self.values) <= 0x100000

    def fill(self, rank):
        done = [self.parts[0]]
        for part, hole in zip(self.parts[1:], self.order):
            done += encoded(self.values[hole](rank)), part
        return b"".join(done)


@functools.lru_cache(maxsize=4)
def random_numbers(rank):
    rng = random.Random(rank)
    array = rng.randbytes(2496)
    version, state, gauss = rng.getstate()
    return array, version, list(state), gauss


class Holder:
    """What the ranks hold that have shards of the same tensors. counts: of the storages, in the
    order of the pickle, functions of a rank."""

    def __init__(self, ranks, held):
        self.ranks, self.held = ranks, held
        self.holes = Holes()

    def part(self, shape, dim, rank):
        """Offsets and sizes; torch cuts what torch.chunk cuts."""
        step = -(-shape[dim] // self.ranks)
        sizes, offsets = list(shape), [0] * len(shape)
        offsets[dim] = min(rank * step, shape[dim])
        sizes[dim] = min(step, shape[dim] - offsets[dim])
        return offsets, sizes

    def tensor(self, dims, shape_of):
        """Of a shape that depends on the rank."""
        number = self.holes.number
        size = tuple(number(lambda r, d=d: shape_of(r)[d]) for d in range(dims))
        steps = tuple(number(lambda r, d=d: strides(shape_of(r))[d]) for d in range(dims))
        count = number(lambda r: product(shape_of(r)))
        return plain(size, steps, Storage(FLOAT_STORAGE, count, lambda r: 4 * product(shape_of(r))))

    def placement(self, rank):
        return made(REMOTE, _worker_name=None, _rank=rank, _device=device())

    def sharded(self, shape, dim):
        # (*shape,): no two of torch's objects share a tuple
        def metadata(offsets, sizes, rank):
            return made(
                PIECE_METADATA,
                shard_offsets=offsets,
                shard_sizes=sizes,
                placement=self.placement(rank),
            )

        def part(rank):
            return self.part(shape, dim, rank)

        number, local = self.holes.number, []
        if self.held(shape, dim):
            offsets, sizes = (
                [number(lambda r, d=d, i=i: part(r)[i][d]) for d in range(len(shape))]
                for i in (0, 1)
            )
            tensor = self.tensor(len(shape), lambda r: part(r)[1])
            here = metadata(offsets, sizes, number(lambda r: r))
            local.append(made(PIECE, tensor=tensor, metadata=here))
        parts = [(*part(rank), rank) for rank in range(self.ranks)]
        everything = [metadata(*part) for part in parts if part[1][dim] > 0]
        properties = made(PROPERTIES, state=(FLOAT32, LAYOUT, False, CONTIGUOUS, False))
        state = (
            local,
            made(
                TENSOR_METADATA,
                shards_metadata=everything,
                size=Call(SIZE, (*shape,)),
                tensor_properties=properties,
            ),
            made(
                GROUP,
                local_rank=number(lambda r: r),
                global_rank=number(lambda r: r),
                local_world_size=self.ranks,
                global_world_size=self.ranks,
            ),
            made(CHUNKED, dim=dim, placements=[part.placement for part in everything]),
            False,
        )
        args = (SHARDED, FLOAT32, (*shape,), strides(shape), 0, LAYOUT, device(), False)
        return Call(REBUILD_TYPE, REBUILD_SUBCLASS, SHARDED, args, state)

    def state(self, shapes, layout):
        """What the trainer saves."""

        def sharded(shape):
            return self.sharded(shape, cut_dim(shape, layout))

        def step():  # the same on every rank
            return plain((), (), Storage(FLOAT_STORAGE, 1, struct.pack("<f", 1000)))

        model = collections.OrderedDict((key, sharded(shape)) for key, shape in shapes.items())
        states = {
            key: {"step": step(), "exp_avg": sharded(shape), "exp_avg_sq": sharded(shape)}
            for key, shape in shapes.items()
        }
        group = {
            "param_names": ["_fsdp_wrapped_module." + key for key in shapes],
            "lr": 0.0003,
            "betas": (0.9, 0.95),
            "eps": 1e-08,
            "weight_decay": 0.1,
            "amsgrad": False,
            "foreach": None,
            "params": list(shapes),
        }
        return {
            "model": model,
            "optim": {"state": states, "param_groups": [group]},
            "epoch": 0,
            "global_step": 1000,
            "global_train_examples_seen_this_epoch": 2048000,
            "global_train_tokens_seen": 2**33,
            "world_size": self.ranks,
            "checkpoints": [pathlib.Path("/scratch/run/step1000")],
            "unsharded_checkpoints": [],
            "ephemeral_checkpoints": [],
            "rng": self.random_states(),
        }

    def flat(self, shapes):
        """A stretch of one vector of all parameters, and what lies in the whole vector."""
        total = sum(product(shape) for shape in shapes.values())
        each = -(-total // self.ranks)
        params, at = [], 0
        for key, shape in shapes.items():
            params.append({"key": key, "shape": list(shape), "at": at})
            at += product(shape)
        return {
            "flat": self.tensor(1, lambda r: [max(0, min(each, total - r * each))]),
            "start": self.holes.number(lambda r: r * each),
            "params": params,
            "world_size": self.ranks,
        }

    def random_states(self):
        u4 = Call(NUMPY_DTYPE, "u4", False, True, state=(3, "<", None, None, None, -1, -1, 0))
        block = self.holes.bytes(lambda r: random_numbers(r)[0])
        keys = Call(RECONSTRUCT, NDARRAY, (0,), b"b", state=(1, (624,), u4, False, block))
        # a tuple of four is pickled as one of 625 is
        first = self.holes.number(lambda r: random_numbers(r)[2][:-3])
        last = [self.holes.number(lambda r, i=i: random_numbers(r)[2][i]) for i in (-3, -2, -1)]
        return {
            "python": (random_numbers(0)[1], (first, *last), random_numbers(0)[3]),
            "numpy": ("MT19937", keys, 624, 0, 0.0),
            "torch": plain((5056,), (1,), Storage(BYTE_STORAGE, 5056, lambda r: 5056)),
            "cuda": None,
            "mps": None,
        }


def cut_dim(shape, layout):
    return 1 if layout == "columns" and len(shape) > 1 else 0


class Template:
    """The pickles of the ranks that hold shards of the same tensors."""

    def __init__(self, ranks, held, shapes, layout):
        holder = Holder(ranks, held)
        stream = io.BytesIO()
        pickler = Pickler(stream)
        pickler.dump(holder.flat(shapes) if layout == "ranges" else holder.state(shapes, layout))
        self.holes = holder.holes
        self.holes.cut(stream.getvalue())
        self.storages = [storage.bytes for storage in pickler.storages]


class Noise:
    """Weights: a block of normal floats, read in a circle from a place of each tensor's own. Its
    length is a prime number of floats, so that no stretch repeats at the distance of a row."""

    FLOATS = 250007

    def __init__(self, seed):
        self.rng = random.Random(seed)
        gauss = self.rng.gauss
        block = array.array("f", (gauss(0, 0.02) for _ in range(self.FLOATS)))
        self.block = memoryview(block).cast("B")

    def read(self, size):
        place = 4 * self.rng.randrange(self.FLOATS)
        while size:
            part = self.block[place : place + size]
            yield part
            size -= len(part)
            place = 0


# ---- torch.save --------------------------------------------------------------------------------


class Pickler(pickle.Pickler):
    location = LOCATION

    def __init__(self, file, protocol=2):
        super().__init__(file, protocol)
        self.storages = []

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages.append(obj)
        return ("storage", obj.kind, str(len(self.storages) - 1), self.location, obj.count)


class Archive:
    """A zip file as torch's writer leaves it, written from its first byte to its last."""

    LIMIT = 2**32 - 1  # the headers of larger files are others

    def __init__(self, file, top):
        self.file, self.top = file, top
        self.at, self.entries = 0, []

    def write(self, part):
        self.file.write(part)
        self.at += len(part)

    def add(self, member, parts):
        header, path = self.at, f"{self.top}/{member}".encode()
        pad = -(header + 30 + len(path) + 4) % 64
        flags = 0x808  # sizes follow the data; UTF-8
        self.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, flags, *[0] * 6, len(path), pad + 4))
        self.write(path + struct.pack("<2sH", b"FB", pad) + b"Z" * pad)
        start, crc = self.at, 0
        for part in parts:
            self.write(part)
            crc = zlib.crc32(part, crc)
        size = self.at - start
        if self.at >= self.LIMIT:
            sys.exit("a rank file of 4 GiB or more: take more ranks")
        self.write(struct.pack("<4s3I", b"PK\7\10", crc, size, size))
        self.entries.append((path, header, crc, size))

    def finish(self):
        start, n = self.at, len(self.entries)
        for path, header, crc, size in self.entries:
            head = struct.pack("<4s6H", b"PK\1\2", 0, 0, 0x808, 0, 0, 0)
            tail = struct.pack("<5HII", len(path), 0, 0, 0, 0, 0, header)
            self.write(head + struct.pack("<3I", crc, size, size) + tail + path)
        size, end = self.at - start, self.at
        self.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0x31E, 45, 0, 0, n, n, size, start))
        self.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        few = min(n, 0xFFFF)
        self.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, few, few, size, start, 0))


def save(template, rank, path, noise):
    with open(path, "wb", buffering=1 << 20) as file:
        archive = Archive(file, path.stem)
        archive.add("data.pkl", [template.holes.fill(rank)])
        archive.add(".format_version", [b"1"])
        archive.add(".storage_alignment", [b"64"])
        archive.add("byteorder", [b"little"])
        for number, storage in enumerate(template.storages):
            parts = noise.read(storage(rank)) if callable(storage) else [storage]
            archive.add(f"data/{number}", parts)
        archive.add("version", [b"3\n"])
        sums = repr([entry[2] for entry in archive.entries]).encode()
        digits = int(hashlib.sha256(sums).hexdigest(), 16) % 10**40
        archive.add(".data/serialization_id", [b"%040d" % digits])
        archive.finish()


# ---- the model ---------------------------------------------------------------------------------


def few(ranks):
    """Some of the names, cut unevenly: the last shard is short, the last ranks have none."""
    return {
        "transformer.wte.weight": (2 * ranks - ranks // 3 | 1, 16),
        "transformer.blocks.0.att_proj.weight": (3 * ranks + 1, 8),
        "transformer.ln_f.weight": (ranks // 2 + 1,),
    }


def model(parameters, layout, width=None):
    """Names and shapes of OLMo's layers, about so many parameters in all."""
    fixed, width = width, width or 64
    while not fixed and layout != "tiny" and 16 * (2 * width) ** 2 <= parameters // 4:
        width *= 2
    layers = int(0.9 * parameters) // (16 * width * width)
    rows = max(1, (parameters - layers * 16 * width * width) // width)
    shapes = {"transformer.wte.weight": (rows, width)}
    for i in range(layers):
        block = f"transformer.blocks.{i}."
        shapes[block + "attn_norm.weight"] = (width,)
        shapes[block + "ff_norm.weight"] = (width,)
        shapes[block + "att_proj.weight"] = (3 * width, width)
        shapes[block + "attn_out.weight"] = (width, width)
        shapes[block + "ff_proj.weight"] = (8 * width, width)
        shapes[block + "ff_out.weight"] = (width, 4 * width)
    shapes["transformer.ln_f.weight"] = (width,)
    return shapes


CONFIG = """\
run_name: bench
seed: {seed}
model:
  d_model: {width}
sharded_checkpointer: torch_legacy
"""


def generate(folder, ranks=4, size=1 << 30, layout="rows", seed=1, row=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    # 4 bytes each, in the model and twice in the optimizer
    if layout == "ranks":
        shapes = few(ranks)
    else:
        shapes = model(size // (4 if layout == "ranges" else 12), layout, row and row * ranks // 4)
    width = shapes["transformer.wte.weight"][1]
    (folder / "config.yaml").write_text(CONFIG.format(seed=seed, width=width))
    noise = Noise(seed)
    templates = {}
    for rank in range(ranks):

        def held(shape, dim, rank=rank):  # what torch.chunk has for this rank
            return rank * -(-shape[dim] // ranks) < shape[dim]

        kind = tuple(held(shape, cut_dim(shape, layout)) for shape in shapes.values())
        if kind not in templates:
            templates[kind] = Template(ranks, held, shapes, layout)
        save(templates[kind], rank, folder / f"rank{rank}.pt", noise)


UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size_of(text):
    match = re.fullmatch(r"([\d.]+)\s*(\w*)", text)
    if not match or match[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"no size: {text} (as 64MiB, 1GiB)")
    return int(float(match[1]) * UNITS[match[2]])


def options(parser):
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=size_of, default="1GiB", help="of all files (default 1GiB)")
    parser.add_argument("--layout", choices=["rows", "columns", "tiny", "ranges", "ranks"], default="rows")
    parser.add_argument("--row", type=size_of, help="bytes of a row of a shard of columns")
    parser.add_argument("--seed", type=int, default=1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="a folder that is not there yet")
    options(parser)
    a = parser.parse_args()
    if a.ranks < 2:
        parser.error("--ranks: a lone rank is not sharded")
    if os.path.exists(a.out):
        parser.error(f"{a.out} exists")
    generate(a.out, a.ranks, a.size, a.layout, a.seed, a.row)


if __name__ == "__main__":
    main()
