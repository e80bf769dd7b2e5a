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
  --row BYTES        of columns: a shard's row in most tensors (others: four times that)
"""

import argparse
import array
import collections
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

Storage = collections.namedtuple("Storage", "kind count item bytes")  # or their place in the noise
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


def plain(shape, storage):
    size = (*shape,)
    return Call(REBUILD_TENSOR, storage, 0, size, strides(shape), False, collections.OrderedDict())


class Rank:
    """What one rank holds."""

    def __init__(self, rank, ranks, noise):
        self.rank, self.ranks, self.noise = rank, ranks, noise

    def tensor(self, shape):
        return plain(shape, Storage(FLOAT_STORAGE, product(shape), 4, self.noise.place()))

    def placement(self, rank):
        return made(REMOTE, _worker_name=None, _rank=rank, _device=device())

    def sharded(self, shape, dim):
        # (*shape,): no two of torch's objects share a tuple
        step = -(-shape[dim] // self.ranks)
        parts = []
        for rank in range(self.ranks):
            sizes, offsets = list(shape), [0] * len(shape)
            offsets[dim] = rank * step
            sizes[dim] = min(step, shape[dim] - offsets[dim])
            if sizes[dim] > 0:
                parts.append((rank, offsets, sizes))

        def metadata(rank, offsets, sizes):
            return made(
                PIECE_METADATA,
                shard_offsets=list(offsets),
                shard_sizes=list(sizes),
                placement=self.placement(rank),
            )

        local = [
            made(PIECE, tensor=self.tensor(part[2]), metadata=metadata(*part))
            for part in parts
            if part[0] == self.rank
        ]
        everything = [metadata(*part) for part in parts]
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
                local_rank=self.rank,
                global_rank=self.rank,
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
            return self.sharded(shape, 1 if layout == "columns" and len(shape) > 1 else 0)

        def step():  # the same on every rank
            return plain((), Storage(FLOAT_STORAGE, 1, 4, struct.pack("<f", 1000)))

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
        start = self.rank * each
        params, at = [], 0
        for key, shape in shapes.items():
            params.append({"key": key, "shape": list(shape), "at": at})
            at += product(shape)
        return {
            "flat": self.tensor((max(0, min(each, total - start)),)),
            "start": start,
            "params": params,
            "world_size": self.ranks,
        }

    def random_states(self):
        rng = random.Random(self.rank)
        u4 = Call(NUMPY_DTYPE, "u4", False, True, state=(3, "<", None, None, None, -1, -1, 0))
        keys = Call(
            RECONSTRUCT, NDARRAY, (0,), b"b", state=(1, (624,), u4, False, rng.randbytes(2496))
        )
        return {
            "python": rng.getstate(),
            "numpy": ("MT19937", keys, 624, 0, 0.0),
            "torch": plain((5056,), Storage(BYTE_STORAGE, 5056, 1, self.noise.place())),
            "cuda": None,
            "mps": None,
        }


class Noise:
    """Weights: a block of normal floats, read in a circle from a place of each tensor's own. Its
    length is a prime number of floats, so that no stretch repeats at the distance of a row."""

    FLOATS = 250007

    def __init__(self, seed):
        self.rng = random.Random(seed)
        gauss = self.rng.gauss
        block = array.array("f", (gauss(0, 0.02) for _ in range(self.FLOATS)))
        self.block = memoryview(block).cast("B")

    def place(self):
        return 4 * self.rng.randrange(self.FLOATS)

    def read(self, place, size):
        if isinstance(place, bytes):
            yield place
            return
        while size:
            part = self.block[place : place + size]
            yield part
            size -= len(part)
            place = 0


# ---- torch.save --------------------------------------------------------------------------------


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages.append(obj)
        return ("storage", obj.kind, str(len(self.storages) - 1), LOCATION, obj.count)


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


def save(state, path, noise):
    stream = io.BytesIO()
    pickler = Pickler(stream)
    pickler.dump(state)
    with open(path, "wb", buffering=1 << 20) as file:
        archive = Archive(file, path.stem)
        archive.add("data.pkl", [stream.getbuffer()])
        archive.add(".format_version", [b"1"])
        archive.add(".storage_alignment", [b"64"])
        archive.add("byteorder", [b"little"])
        for number, storage in enumerate(pickler.storages):
            archive.add(f"data/{number}", noise.read(storage.bytes, storage.count * storage.item))
        archive.add("version", [b"3\n"])
        sums = repr([entry[2] for entry in archive.entries]).encode()
        digits = int(hashlib.sha256(sums).hexdigest(), 16) % 10**40
        archive.add(".data/serialization_id", [b"%040d" % digits])
        archive.finish()


# ---- the model ---------------------------------------------------------------------------------


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
    shapes = model(size // (4 if layout == "ranges" else 12), layout, row and row * ranks // 4)
    width = shapes["transformer.ln_f.weight"][0]
    (folder / "config.yaml").write_text(CONFIG.format(seed=seed, width=width))
    noise = Noise(seed)
    for rank in range(ranks):
        holder = Rank(rank, ranks, noise)
        state = holder.flat(shapes) if layout == "ranges" else holder.state(shapes, layout)
        save(state, folder / f"rank{rank}.pt", noise)


UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size_of(text):
    match = re.fullmatch(r"([\d.]+)\s*(\w*)", text)
    if not match or match[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"no size: {text} (as 64MiB, 1GiB)")
    return int(float(match[1]) * UNITS[match[2]])


def options(parser):
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=size_of, default="1GiB", help="of all files (default 1GiB)")
    parser.add_argument("--layout", choices=["rows", "columns", "tiny", "ranges"], default="rows")
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
