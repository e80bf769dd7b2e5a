#!/usr/bin/env python3
"""hostile.py CKPTFLOW [--slow] [WORD...]

Small hostile files, made here from opcodes and zip headers: each is converted, and must end with one
of the codes that it is listed with (OK: it is sound), within 64 MiB and 2 s of processor time, by no
signal, with no control character printed and nothing left behind. tests/fixtures/secure has files
that were made elsewhere; here are the many of one kind. WORD: only cases whose name has it. --slow: a build with
sanitizers, which time and memory are not asked of."""

import concurrent.futures
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import zlib

FLOATS = struct.pack("<8f", *range(8))
CRC = zlib.crc32(FLOATS)
CASES = []


def case(name, data, codes, file="m.pt"):
    CASES.append((name, data, codes.split(), file))


# ---- pickles -----------------------------------------------------------------------------------


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return b"X" + struct.pack("<I", len(s)) + s


def integer(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    long = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(long)]) + long


def group(*values):
    return b"(" + b"".join(values) + b"t"


def integers(*values):
    return group(*map(integer, values))


def name(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def call(module, function, *args):
    return name(module, function) + group(*args) + b"R"


HOOKS = name("collections", "OrderedDict") + b")R"


def identity(key="0", numel=8, kind=("torch", "FloatStorage"), more=()):
    return group(text("storage"), name(*kind), text(key), text("cpu"), integer(numel), *more) + b"Q"


def tensor(offset=0, size=(2, 4), stride=(4, 1), storage=None, more=()):
    args = (storage or identity(), integer(offset), integers(*size), integers(*stride))
    return call("torch._utils", "_rebuild_tensor_v2", *args, b"\x89", HOOKS, *more)


def state(*pairs):
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in pairs) + b"u."


# ---- zips --------------------------------------------------------------------------------------


def deflated(data):
    packer = zlib.compressobj(1, 8, -15)
    return packer.compress(data) + packer.flush()


class Member:
    """What the directory says, and under `local` what the header before the payload says."""

    def __init__(self, path, data, method=0, local=None, raw=None, **fields):
        raw = raw if raw is not None else deflated(data) if method == 8 else data
        self.fields = dict(
            flags=0, method=method, crc=zlib.crc32(data), packed=len(raw), size=len(data)
        )
        self.fields.update(made=20, mode=0, extra=b"", path=path.encode(), disk=0, at=None, times=1)
        self.fields.update(fields)
        self.local, self.raw = {**self.fields, "extra": b"", **(local or {})}, raw


def archive(members, before=b"", adjusted=True, comment=b"", after=b"", **end):
    out, directory, count = before, b"", 0
    for m in members:
        at, f, l = len(out) - (0 if adjusted else len(before)), m.fields, m.local
        out += struct.pack("<IHHHI3I", 0x04034B50, 20, l["flags"], l["method"], 0x21 << 16, l["crc"],
                           l["packed"], l["size"])  # fmt: skip
        out += struct.pack("<HH", len(l["path"]), len(l["extra"])) + l["path"] + l["extra"] + m.raw
        for _ in range(f["times"]):
            directory += struct.pack("<IHHHHI3I", 0x02014B50, f["made"], 20, f["flags"], f["method"],
                                     0x21 << 16, f["crc"], f["packed"], f["size"])  # fmt: skip
            directory += struct.pack("<5H2I", len(f["path"]), len(f["extra"]), 0, f["disk"], 0,
                                     f["mode"] << 16, at if f["at"] is None else f["at"])  # fmt: skip
            directory += f["path"] + f["extra"]
            count += 1
    place = len(out) - (0 if adjusted else len(before))
    says = dict(disk=0, first=0, here=count, all=count, size=len(directory), at=place)
    says.update(end)
    return out + directory + struct.pack("<I4H2IH", 0x06054B50, *says.values(), len(comment)) + comment + after


def saved(pickle=None, record=None, pickled=None, more=(), **how):
    """A file of torch.save: a pickle and the record 0, both with fields that may lie."""
    pickle = state(("w", tensor())) if pickle is None else pickle
    members = [Member("archive/data.pkl", pickle, **(pickled or {}))]
    members += [Member("archive/data/0", FLOATS, **(record or {})), *more]
    return archive(members, **how)


def pickles(kind, codes, values, **how):
    """Each value beside a sound tensor."""
    for i, value in enumerate(values):
        case(f"{kind}-{i}", saved(state(("w", tensor()), ("x", value)), **how), codes)


# ---- what a pickle may not name or do ----------------------------------------------------------

FORBIDDEN = """os.system posix.popen nt.system builtins.exec __builtin__.eval builtins.__import__
builtins.open builtins.globals __builtin__.apply __builtin__.execfile subprocess.run commands.getoutput
importlib.import_module runpy.run_path code.InteractiveInterpreter pty.spawn ctypes.CDLL socket.socket
shutil.rmtree operator.attrgetter operator.itemgetter _operator.methodcaller functools.reduce
types.FunctionType types.CodeType marshal.loads pickle.loads cPickle.loads copyreg.add_extension
pathlib/os.system torch/os.system torch.hub/load torch.serialization/os.system torch.jit/load
torch.utils.cpp_extension/load torch.storage/_load_from_bytes torch._utils/sys.modules torch/_utils.os
numpy/load numpy/fromfile numpy.testing._private.utils/runstring collections/OrderedDict.fromkeys
collections/namedtuple os.path/join sys/modules.get asyncio/create_subprocess_shell webbrowser/open
bdb/Bdb cProfile/run pkgutil/resolve_name pydoc/locate zipimport/zipimporter urllib.request/urlopen
uuid/_get_command_stdout torch.nn.functional/relu torch._dynamo.guards/GuardBuilder.get""".split()
forbidden = [word.split("/") if "/" in word else word.rsplit(".", 1) for word in FORBIDDEN]
pickles("name", "E_GLOBAL_DENIED", [call(m, n, text("x")) for m, n in forbidden])
SYSTEM = name("os", "system")
pickles("disguise", "E_GLOBAL_DENIED", [
    text("os") + text("system") + b"\x93", b"\x8c\x02os\x94\x8c\x06system\x94\x93", SYSTEM + b")\x81",
    call("collections", "OrderedDict", SYSTEM), name("a", "B") + b")R}" + text("c") + SYSTEM + b"sb",
    call("torch._tensor", "_rebuild_from_type_v2", SYSTEM, name("torch", "Tensor"), b")", b"}"),
    tensor(storage=identity(kind=("os", "system"))), name(" os", "system"), name("os", "system "),
    name(".os", "system"), name("os.", "system"), name("torch..os", "system"), name("", "system"),
])  # fmt: skip
pickles("opcode", "E_OPCODE", [b"\x82\x01", b"\x84\x01\0\0\0", b"\x97", b"(ios\nsystem\n", b"I01\n", b"L5L\n",
    b"V\n", b"F1\n", b"g1\n", b"Np1\n", b"\0", b"\xff", b"(" + SYSTEM.replace(b"os", b"a") + b"o"])  # fmt: skip
pickles("callee", "E_CALL_DENIED", [b"K\x05)R", b"N)R", b"})R", tensor() + b")R", tensor() + group(identity()) + b"b"])
pickles("target", "E_TYPE", [b"K\x01" + text("a") + b"Ns", b"]" + text("a") + b"Ns", tensor() + b"K\x01Ns", b"}Na",
    b")Na", tensor() + b"Na", b"](N\x90", text("x") + b"}b", b"]}b", b"}]Ns", b"}}Ns", b"}(]tNs",
    name("collections", "OrderedDict") + b"]R"])  # fmt: skip
pickles("memo", "E_MEMO E_LIMIT", [b"h\x07", b"j\xff\xff\xff\xff", b"Nr\xff\xff\xff\xff", b"Nr\0\0\0\x80"])
pickles("identity", "E_PERSID", [b"NQ", b")Q", text("storage") + b"Q", group(text("module"), b"N") + b"Q",
    tensor(storage=identity(more=(group(text("v"), integer(0), integer(8)),))),
    tensor(storage=identity(more=(b"N", b"N")))])  # fmt: skip
for i, body in enumerate((b"X\xff\xff\xff\xff", b"\x8d" + b"\xff" * 8, b"B\xff\xff\xff\xff", b"\x8b\0\0\0\x40",
                          b"\x96" + struct.pack("<Q", 2**40), b"C\xff", b"J\1", b"cos\nsystem")):  # fmt: skip
    case(f"length-{i}", saved(b"\x80\x04}" + body), "E_TRUNCATED E_NUMBER E_LIMIT")


def frame(length, body):
    return b"\x80\x04\x95" + struct.pack("<Q", length) + body


BODY = state(("w", tensor()))[2:]
case("frame-right", saved(frame(len(BODY), BODY)), "OK")
for length in (3, 40, len(BODY) + 1, 2**63):
    case(f"frame-{length}", saved(frame(length, BODY)), "E_FRAME E_TRUNCATED")

# ---- a little that stands for much -------------------------------------------------------------


def unfolded(first, close, depth=40):
    """Each level holds the one below twice."""
    out = b"N"
    for i in range(depth):
        below = b"h" + bytes([i])
        out += b"0(" + (below if i else first + b"q\0") + below + close + b"q" + bytes([i + 1])
    return out


for close in (b"t", b"l"):
    case(f"unfolds-{close}", saved(state(("w", unfolded(tensor(), close)))), "E_LIMIT")
case("unfolds-top", saved(b"\x80\2" + unfolded(tensor(), b"l") + b"."), "E_LIMIT")
pickles("classes", "E_LIMIT", [group(*(name("m", f"X{i}") for i in range(100000)))], pickled={"method": 8})
pickles("one-class", "OK", [group(name("m", "X") * 100000)], pickled={"method": 8})
for opens, closes in ((b"]", b"a"), (b"", b"\x85"), (b"}K\1", b"s"), (b"(", b"t"), (name("m", "X") + b"(", b"tR")):
    pickles(f"deep-{closes}", "E_DEPTH E_LIMIT", [opens * 100000 + b"N" + closes * 100000], pickled={"method": 8})
pickles("many", "OK E_LIMIT", [group(b"]" * 10**6), group(b"N" * 10**6)], pickled={"method": 8})
for size, stride in (((2**40,), (0,)), ((2**20, 2**20), (0, 0)), ((2**29,), (0,)), ((3, 2**30), (1, 0))):
    case(f"expands-{size}", saved(state(("w", tensor(size=size, stride=stride)))), "E_LIMIT")
case("expands-little", saved(state(("w", tensor(size=(1000, 1000), stride=(0, 0))))), "OK")

# ---- tensors and storages ----------------------------------------------------------------------

for offset, size, stride in ((7, (8,), (-1,)), (4, (2, 2), (2, -1)), (0, (2,), (2**62,)), (0, (2, 2), (2**63 - 1,) * 2),
                             (0, (2**64 + 1,), (1,)), (-(2**63), (1,), (1,)), (2**64, (1,), (1,)), (2**62, (1,), (1,)),
                             (0, (0, -1), (1, 1)), (1, (8,), (1,)), (0, (9,), (1,)), (0, (2**32, 2**32), (1, 1))):  # fmt: skip
    case(f"view-{offset}{size}{stride}", saved(state(("w", tensor(offset, size, stride)))),
         "E_BOUNDS E_NUMBER E_OVERFLOW")  # fmt: skip
for numel in (0, 7, 9, 2**61, -1, 2**64 + 8):
    case(f"numel-{numel}", saved(state(("w", tensor(storage=identity(numel=numel))))),
         "E_STORAGE_SIZE E_BOUNDS E_OVERFLOW E_NUMBER")  # fmt: skip
for key in ("./0", "0/", "/0", "..", "0\0", "0\n", "00", "../data/0", "../data.pkl", "C:0", "0\\"):
    case(f"key-{key!r}", saved(state(("w", tensor(storage=identity(key))))), "E_STORAGE_MISSING E_PATH")
V3 = (identity(kind=("torch.storage", "UntypedStorage"), numel=32), integer(0), integers(8), integers(1), b"\x89", HOOKS)
for dtype in ("bits8", "float4_e2m1fn_x2", "int4"):
    value = call("torch._utils", "_rebuild_tensor_v3", *V3, name("torch", dtype))
    case(f"dtype-{dtype}", saved(state(("w", value))), "E_DTYPE E_GLOBAL_DENIED")

# ---- zip archives ------------------------------------------------------------------------------

SOUND = saved()
case("zip", SOUND, "OK")
case("zip-comment", saved(comment=b"\x1b[2J" * 1000), "OK")
case("zip-comment-archive", saved(comment=SOUND), "E_ZIP_STRUCT")
case("zip-behind", b"junk" * 10 + SOUND, "E_ZIP_STRUCT")
case("zip-behind-adjusted", saved(before=b"junk" * 10), "E_ZIP_STRUCT")
case("zip-twice", SOUND + SOUND, "E_ZIP_STRUCT")
case("zip-twice-adjusted", saved(before=SOUND), "E_ZIP_STRUCT")
case("zip-after", saved(after=b"\0"), "E_ZIP_STRUCT E_TRAILING")
for cut in (1, 5, 22, 100, len(SOUND) // 2):
    case(f"zip-cut-{cut}", SOUND[:-cut], "E_ZIP_STRUCT E_TRUNCATED")
for i, end in enumerate((dict(disk=1), dict(first=1), dict(here=1), dict(here=1, all=1), dict(here=0, all=0),
                         dict(here=65535, all=65535), dict(size=0), dict(size=60), dict(size=9999), dict(at=0),
                         dict(at=1), dict(at=2**32 - 1))):  # fmt: skip
    case(f"zip-end-{i}", saved(**end), "E_ZIP_STRUCT")
for kind in (0o010000, 0o020000, 0o060000, 0o140000, 0o120000):
    case(f"zip-mode-{kind:o}", saved(record=dict(made=0x314, mode=kind | 0o666)), "E_NOT_REGULAR E_PATH")
case("zip-mode-file", saved(record=dict(made=0x314, mode=0o104755)), "OK")
for method in (1, 6, 9, 12, 14, 95, 98, 99, 65535):
    case(f"zip-method-{method}", saved(record=dict(method=method)), "E_ZIP_METHOD")
for flag in (0, 5, 6, 13):
    case(f"zip-flag-{flag}", saved(record=dict(flags=1 << flag)), "E_ZIP_ENCRYPTED")
for i, local in enumerate((dict(path=b"archive/data/1"), dict(crc=1), dict(size=31), dict(packed=31), dict(method=8))):
    case(f"zip-local-{i}", saved(record=dict(local=local)), "E_ZIP_MISMATCH")
for i, lie in enumerate((dict(at=0), dict(at=2**32 - 16), dict(size=100, packed=100), dict(size=2**31, packed=2**31),
                         dict(disk=1), dict(extra=b"\1\0\xff\0"), dict(size=2**32 - 1))):  # fmt: skip
    case(f"zip-lie-{i}", saved(record=dict(local={}, **lie)), "E_ZIP_MISMATCH E_ZIP_OVERLAP E_ZIP_STRUCT E_STORAGE_SIZE")
case("zip-two-names", saved(record=dict(times=2)), "E_ZIP_DUP")
case("zip-crc", saved(record=dict(crc=CRC ^ 1)), "E_ZIP_CRC")
case("zip-crc-none", saved(record=dict(crc=0)), "OK")
case("zip-crc-deflated", saved(record=dict(method=8, crc=CRC ^ 1)), "E_ZIP_CRC")
case("zip-bomb", saved(pickled=dict(method=8, raw=deflated(b"]" * (64 << 20)), size=64 << 20)), "E_LIMIT")
for path in ("/etc/x", "archive/..", "archive//x", "\\\\a\\b", "archive/a\nb", "archive/\u0085", "archive/\x7f"):
    case(f"zip-path-{path!r}", saved(more=[Member(path, b"x")]), "E_PATH")
case("json", b'{"a": 1}', "E_MAGIC")
case("json-list", b"[1, 2]", "E_MAGIC")
case("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "E_MAGIC", "m.safetensors")
case("stream-number", b"\x80\2\x8a\x05\1\2\3\4\5.\x80\2K\1.", "E_MAGIC")


# ---- running -----------------------------------------------------------------------------------


def run(tool, slow, name, data, codes, file):
    """What is wrong, as text; None."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder, "work")
        work.mkdir()
        source = pathlib.Path(folder, file)
        source.write_bytes(data)
        command = [tool, "run", "convert", source, "-o", work / "out", "--json", "--progress", "none"]
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
        out, said = child.stdout.read(), child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        code = "OK" if child.returncode == 0 else None
        for line in said.decode("utf-8", "replace").splitlines():
            if line.startswith('{"error"'):
                code = json.loads(line)["error"]["code"]
        if code not in codes:
            return f"{code} instead of {' or '.join(codes)}: {said.decode('utf-8', 'replace').strip()[:200]}"
        if not 0 <= child.returncode < 126:
            return f"exit {child.returncode}"
        if any(c < 32 and c not in b"\t\n" or c == 127 for c in out + said):
            return "printed control characters"
        if code != "OK" and any(work.iterdir()):
            return "left something behind"
        if not slow and usage.ru_maxrss > 64 << 10:
            return f"{usage.ru_maxrss >> 10} MiB"
        if not slow and usage.ru_utime + usage.ru_stime > 2:
            return f"{usage.ru_utime + usage.ru_stime:.1f} s"


def main():
    tool, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    slow = "--slow" in words
    words = [word for word in words if word != "--slow"]
    chosen = [c for c in CASES if not words or any(word in c[0] for word in words)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        faults = list(pool.map(lambda c: run(tool, slow, *c), chosen))
    for (name, *_), fault in zip(chosen, faults):
        if fault:
            print(f"{name}: {fault}".encode("unicode_escape").decode())
    print(f"{faults.count(None)} of {len(chosen)} cases right")
    sys.exit(faults.count(None) != len(chosen))


main()
