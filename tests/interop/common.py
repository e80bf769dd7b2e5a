"""What the checks share: running the tool, reading safetensors, and holding values against JSON."""

import base64
import copyreg
import json
import math
import pathlib
import struct
import subprocess

import numpy
import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"


class Tool:
    def __init__(self, binary):
        self.binary = binary

    def run(self, recipe, checkpoint, out, *options):
        command = [self.binary, "run", recipe, checkpoint, "-o", out, "-q", *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr.strip()}"
        return out

    def refused(self, checkpoint, code, *words):
        """`inspect` ends with this error, and its message has the words."""
        done = subprocess.run([self.binary, "inspect", checkpoint], capture_output=True, text=True)
        assert code in done.stderr, f"exit {done.returncode}: {done.stderr.strip() or done.stdout}"
        for word in words:
            assert word in done.stderr, f"no {word!r} in {done.stderr.strip()}"

    def same(self, a, b, *options):
        """`diff` finds none between them."""
        command = [self.binary, "diff", a, b, *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}{done.stdout}"

    def format(self, checkpoint):
        """What `inspect` recognises it as, and its notes."""
        done = subprocess.run([self.binary, "inspect", checkpoint], capture_output=True, text=True)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr.strip()}"
        return done.stdout.split(" ", 1)[0], done.stderr


# ---- tensors -----------------------------------------------------------------------------------

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
PAIRS = {torch.complex128: "F64", torch.complex32: "F16"}  # which safetensors lacks


def described(tensor):
    """A tensor as safetensors has it: dtype, shape, bytes."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    shape = list(tensor.shape)
    if tensor.dtype in PAIRS:
        return PAIRS[tensor.dtype], [*shape, 2], flat.view(torch.uint8).numpy().tobytes()
    return NAMES[tensor.dtype], shape, flat.view(torch.uint8).numpy().tobytes()


def described_array(array):
    """The same of a numpy array."""
    little = array.astype(array.dtype.newbyteorder("<"))
    kind = "BOOL" if array.dtype.kind == "b" else f"{array.dtype.kind}{8 * array.itemsize}".upper()
    return kind, list(array.shape), little.tobytes()


def read_safetensors(path):
    """{key: (dtype, shape, bytes)} and __metadata__, by nothing but the format's description."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    metadata = head.pop("__metadata__", {})
    tensors = {}
    for key, item in head.items():
        begin, end = item["data_offsets"]
        tensors[key] = (item["dtype"], item["shape"], data[8 + size + begin : 8 + size + end])
    return tensors, metadata


def hold_tensors(want, got):
    """Both are {key: (dtype, shape, bytes)}."""
    assert want.keys() == got.keys(), f"keys: {sorted(want.keys() ^ got.keys())}"
    for key, tensor in want.items():
        assert tensor[:2] == got[key][:2], f"{key}: {tensor[:2]} became {got[key][:2]}"
        assert tensor[2] == got[key][2], f"{key}: other bytes"


def written(out, *names):
    """Tensors of these files of an output, as described."""
    whole = {}
    for name in names or ("model", "optim"):
        if (pathlib.Path(out) / f"{name}.safetensors").exists():
            tensors, _ = read_safetensors(pathlib.Path(out) / f"{name}.safetensors")
            whole.update({f"{name}.{key}": tensor for key, tensor in tensors.items()})
    return whole


def hold(want, out, *names):
    """want: {"model.<name>": tensor, "optim.<name>.<state>": tensor}."""
    hold_tensors({key: described(tensor) for key, tensor in want.items()}, written(out, *names))


# ---- values ------------------------------------------------------------------------------------


def has_tensor(thing, above=()):
    if isinstance(thing, (torch.Tensor, ShardedTensor)):
        return True
    if not isinstance(thing, (dict, list, tuple)) or id(thing) in above:
        return False
    inside = thing.values() if isinstance(thing, dict) else thing
    return any(has_tensor(item, (*above, id(thing))) for item in inside)


def leaves(thing, path=()):
    """The rule for keys: dicts are entered, lists and tuples where there is a tensor in them."""
    if isinstance(thing, dict) and thing:
        for key, value in thing.items():
            yield from leaves(value, (*path, str(key)))
    elif isinstance(thing, (list, tuple)) and has_tensor(thing):
        for i, value in enumerate(thing):
            yield from leaves(value, (*path, str(i)))
    else:
        yield ".".join(path), thing


def same_float(a, b):
    return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))


class Holder:
    """Holds a Python value against what the tool wrote for it. tensors: of the file beside."""

    def __init__(self, said, tensors):
        self.root, self.tensors = said, tensors
        self.used = set()  # names of tensors
        self.seen = set()  # pairs that were compared, or are being

    def resolve(self, path):
        """RFC 6901."""
        at = self.root
        for step in path.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            at = at[int(step)] if isinstance(at, list) else at[step]
        return at

    def hold(self, value, said, where="value"):
        while isinstance(said, dict) and said.keys() == {"$ref"}:
            said = self.resolve(said["$ref"])
        if isinstance(value, (list, dict)) and (id(value), id(said)) in self.seen:
            return
        self.seen.add((id(value), id(said)))
        mark = next(iter(said), "") if isinstance(said, dict) else ""
        if mark.startswith("$"):
            same = getattr(self, "mark_" + mark[1:])(value, said[mark], where, said)
        else:
            same = getattr(self, "json_" + type(said).__name__)(value, said, where)
        assert same, f"{where}: {value!r} became {said!r}"

    def hold_all(self, values, said, where):
        assert len(values) == len(said), f"{where}: {len(values)} items became {len(said)}"
        for i, (a, b) in enumerate(zip(values, said)):
            self.hold(a, b, f"{where}[{i}]")
        return True

    # what JSON has

    def json_NoneType(self, value, said, where):
        return value is None

    def json_bool(self, value, said, where):
        return type(value) is bool and value == said

    def json_int(self, value, said, where):
        return type(value) is int and value == said

    def json_float(self, value, said, where):
        return type(value) is float and same_float(value, said)

    def json_str(self, value, said, where):
        return type(value) is str and value == said

    def json_list(self, value, said, where):
        return type(value) is list and self.hold_all(value, said, where)

    def json_dict(self, value, said, where):
        return (
            isinstance(value, dict)
            and list(value) == list(said)
            and self.hold_all(list(value.values()), list(said.values()), where)
        )

    # what JSON lacks

    def mark_dict(self, value, said, where, whole):
        return isinstance(value, dict) and self.hold_all(
            [part for pair in value.items() for part in pair],
            [part for pair in said for part in pair],
            where,
        )

    def mark_tuple(self, value, said, where, whole):
        return isinstance(value, tuple) and self.hold_all(value, said, where)

    def mark_set(self, value, said, where, whole):
        def key(item):
            return repr(item) if not isinstance(item, dict) else repr(item.get("$tuple", item))

        def plain(item):
            return repr(list(item)) if isinstance(item, tuple) else repr(item)

        return isinstance(value, (set, frozenset)) and self.hold_all(
            sorted(value, key=plain), sorted(said, key=key), where
        )

    def mark_bytes(self, value, said, where, whole):
        return isinstance(value, (bytes, bytearray)) and value == base64.b64decode(
            said, validate=True
        )

    def mark_int(self, value, said, where, whole):
        return type(value) is int and value == int(said) and not -(2**63) <= value < 2**63

    def mark_float(self, value, said, where, whole):
        return type(value) is float and same_float(value, float(said))

    def mark_complex(self, value, said, where, whole):
        re, im = map(number, said)
        return type(value) is complex and same_float(value.real, re) and same_float(value.imag, im)

    def mark_dtype(self, value, said, where, whole):
        return isinstance(value, torch.dtype) and NAMES.get(value) == said

    def mark_scalar(self, value, said, where, whole):
        if not isinstance(value, numpy.generic):
            return False
        again = numpy.array(number(whole["value"])).astype(value.dtype)
        return described_array(again) == described_array(numpy.asarray(value)) and (
            described_array(again)[0] == said
        )

    def mark_tensor(self, value, said, where, whole):
        array = isinstance(value, numpy.ndarray)
        self.used.add(said)
        return self.tensors[said] == (described_array(value) if array else described(value))

    def mark_class(self, value, said, where, whole):
        """A class, or an object of it by what makes it: arguments and state."""
        if isinstance(value, type):
            return whole == {"$class": full_name(value)}
        if isinstance(value, pathlib.PurePath):
            names = (f"pathlib.{type(value).__name__}", f"pathlib._local.{type(value).__name__}")
            return said in names and whole["args"] == [str(value)]
        maker, args, state = (*value.__reduce_ex__(2), None)[:3]
        if maker is copyreg.__newobj__:
            args = args[1:]
        self.hold_all(args, whole.get("args", []), where)
        if state is not None or "state" in whole:
            self.hold(state, whole["state"], where)
        return said == full_name(maker if isinstance(maker, type) and args else type(value))


def full_name(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def number(said):
    """A number that JSON may lack."""
    if not isinstance(said, dict):
        assert isinstance(said, (bool, int, float)), f"no number: {said!r}"
        return said
    ((kind, value),) = said.items()
    if kind == "$complex":
        return complex(*map(number, value))
    return {"$int": int, "$float": float}[kind](value)


def hold_values(want, said, tensors):
    """want: {key: value}; said: the JSON file. Gives the tensors that it refers to."""
    assert list(want) == list(said), f"keys: {list(want)} became {list(said)}"
    used = set()
    for key, value in want.items():
        holder = Holder(said[key], tensors)
        holder.hold(value, said[key], key)
        used |= holder.used
    return used
