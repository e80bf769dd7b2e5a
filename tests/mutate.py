#!/usr/bin/env python3
"""Made-up hostile checkpoints: the small ones of tests/fixtures/secure, changed where it hurts.

usage: mutate.py CKPTFLOW [COUNT [SEED]]      COUNT of each kind; a failure is kept and named

Fields of zip structures set to extremes, opcodes of pickles replaced, doubled, left out and swapped,
tokens of JSON headers and indices likewise, bytes anywhere. Whatever comes out, every verb ends with
an exit status of the contract, prints no control character, leaves nothing behind, takes no more
than its memory and time, and what `run` accepts is equal to itself and no fault to `verify --quick`.
"""

import io
import json
import os
import pathlib
import pickletools
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SECURE = HERE / "fixtures" / "secure"
EXITS = {0, 1, 3, 4, 5}
EXTREMES = [0, 1, 2, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF,
            2**63 - 1, 2**63, 2**64 - 1]
SIGNATURES = [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7"]
NAMES = ["os system", "builtins eval", "torch load", "torch.storage UntypedStorage", "torch Size",
         "torch._utils _rebuild_tensor_v2", "collections OrderedDict", "codecs encode", "a.b c.d",
         "torch  x", "OS system", "posix\u00e9 x", "\u200bos system", "__builtin__ getattr",
         "numpy.core.multiarray _reconstruct", "argparse Namespace", "torch.os system"]
ATOMS = [b")", b"]", b"}", b"(", b"N", b"\x88", b"\x85", b"\x87", b"t", b"d", b"0", b"1", b"2", b"R",
         b"b", b"Q", b"\x81", b"\x92", b"e", b"s", b"u", b"\x90", b"\x94", b".", b"o", b"\x97",
         b"I01\n", b"I1_0\n", b"I99999999999999999999\n", b"L5L\n", b"Fnan\n", b"F1e999\n", b"P1\n",
         b"S'a'\n", b"V\\ud800\n", b"ios\nsystem\n", b"\x80\x63", b"\x82\x01", b"g-1\n",
         b"p99999999999\n", b"(" * 3000, b"]" + b"\x85" * 3000, b"T\xff\xff\xff\x7fab",
         b"X\x04\0\0\0\x1b[2J", b"X\3\0\0\0\xed\xa0\x80", b"X\2\0\0\0a\0", b"C\x02ab"]
TOKENS = ["NaN", "-0", "1e3", "1.0", "01", "-1", "9223372036854775808", "18446744073709551616",
          "1e400", "null", "true", "[]", "{}", '""', '"F64"', '"I4"', '"\\ud800"', '"\\u0000"',
          "[[[[]]]]", ",", ":", "//x", "\u00a0", "[0,0]", "[2147483648,2147483648]", "'a'", "+1",
          "[4294967296,4294967296,0]", '"../m.safetensors"', '"/etc/passwd"']


def changed(rng, items, others):
    """A list with some of it replaced, doubled, left out or swapped."""
    items = list(items)
    for _ in range(rng.choice([1, 1, 2, 3])):
        i, j = rng.randrange(len(items)), rng.randrange(len(items))
        how = rng.randrange(5)
        if how == 0:
            items[i] = others()
        elif how == 1:
            items.insert(i, others())
        elif how == 2 and len(items) > 1:
            del items[i]
        elif how == 3:
            items.insert(i, items[j])
        else:
            items[i], items[j] = items[j], items[i]
    return items


def bytes_changed(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        i, width = rng.randrange(len(data)), rng.choice([1, 2, 4, 8])
        how = rng.randrange(4)
        if how == 0:
            data[i] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[i : i + width] = (rng.choice(EXTREMES) % 256**width).to_bytes(width, "little")
        elif how == 2 and len(data) > 16:
            del data[i : i + width]
        else:
            data[i:i] = data[i : i + 46]
    return bytes(data)


def zip_changed(rng, data):
    """One field of a header, of the directory or of its end."""
    data = bytearray(data)
    places = [m.start() for s in SIGNATURES for m in re.finditer(re.escape(s), data)]
    at, width = rng.choice(places) + rng.randrange(4, 46), rng.choice([1, 2, 4, 8])
    old = int.from_bytes(data[at : at + width], "little")
    value = rng.choice([*EXTREMES, old + 1, old - 1, 2 * old, len(data), len(data) + 1])
    data[at : at + width] = (value % 256**width).to_bytes(width, "little")
    return bytes(data)


def opcode(rng):
    how = rng.randrange(6)
    if how == 0:
        return b"c" + rng.choice(NAMES).replace(" ", "\n", 1).encode() + b"\n"
    if how == 1:
        return rng.choice([b"r", b"j", b"J"]) + struct.pack("<I", rng.choice(EXTREMES) % 2**32)
    if how == 2:
        return rng.choice([b"\x95", b"\x8d", b"\x96"]) + struct.pack("<Q", rng.choice(EXTREMES))
    if how == 3:
        size = rng.choice([0, 1, 8, 9, 255])
        return b"\x8a" + bytes([size]) + rng.randbytes(size)
    return rng.choice(ATOMS)


def pickle_changed(rng, data):
    ops = list(pickletools.genops(data))
    ends = [op[2] for op in ops[1:]] + [len(data)]
    parts = [data[op[2] : end] for op, end in zip(ops, ends)]
    return b"".join(changed(rng, parts, lambda: opcode(rng)))


def torch_changed(rng, data):
    """The archive anew, with right checksums: only its pickle is odd."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            member = old.read(name)
            new.writestr(name, pickle_changed(rng, member) if name.endswith(".pkl") else member)
    return out.getvalue()


def json_changed(rng, data):
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|\w+|[\[\]{},:]|\s+', data.decode())
    return "".join(changed(rng, tokens, lambda: rng.choice(TOKENS))).encode()


def safetensors_changed(rng, data):
    size = struct.unpack("<Q", data[:8])[0]
    header = json_changed(rng, data[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


# kind: folder, file that is changed, how
KINDS = {
    "zip": (SECURE / "ctl-torch-shared", "*.pt", zip_changed),
    "pickle": (SECURE / "ctl-torch-shared", "*.pt", torch_changed),
    "legacy": (SECURE / "ctl-legacy", "*.pt", bytes_changed),
    "safetensors": (SECURE / "ctl-st", "*.safetensors", safetensors_changed),
    "dcp": (SECURE / "ctl-dcp", ".metadata", pickle_changed),
    "items": (SECURE / "ctl-dcp", "*.distcp", zip_changed),
    "index": (SECURE / "ctl-hf", "*.index.json", json_changed),
    "ranks": (SECURE / "ctl-rank", "*.pt", torch_changed),
    "manifest": (HERE / "fixtures" / "ckptflow" / "objects", "ckptflow-manifest.json", json_changed),
    "values": (HERE / "fixtures" / "ckptflow" / "objects", "values.json", json_changed),
}


class Runs:
    def __init__(self, ckptflow):
        self.ckptflow = os.path.abspath(ckptflow)
        self.slow = b"__asan_init" in pathlib.Path(ckptflow).read_bytes()

    def limits(self):
        seconds = 120 if self.slow else 4
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    def __call__(self, folder, *arguments):
        """What is wrong with it, and its exit status."""
        done = subprocess.run(
            [self.ckptflow, *arguments], cwd=folder, capture_output=True, check=False,
            preexec_fn=self.limits, env=dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1"),
        )
        out = done.stdout + done.stderr
        wrong = None
        if done.returncode not in EXITS:
            wrong = f"exit status {done.returncode}"
        elif any(byte < 32 and byte not in (9, 10) or byte == 127 for byte in out):
            wrong = "control characters"
        return wrong and f"{arguments[0]}: {wrong}: {out[-400:]}", done.returncode


def one(run, folder):
    """The first thing that is wrong, or None."""
    names = sorted(os.listdir(folder))
    wrong, status = run(folder, "run", "convert", "c", "-o", "out", "--json", "--progress", "none")
    if wrong:
        return wrong
    if status and sorted(os.listdir(folder)) != names:
        return "run: left something behind"
    for verb in ["inspect", "c"], ["verify", "c", "--progress", "none"], ["verify", "c", "--quick"]:
        wrong, other = run(folder, *verb)
        if wrong:
            return wrong
        if status == 0 and other > 1:
            return f"{verb}: exit {other}, but run is fine"
    wrong, other = run(folder, "diff", "c", "c", "--progress", "none")
    if not wrong and status == 0 and other:
        return "diff: it is not equal to itself"
    return wrong


def main():
    run = Runs(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    failures = 0
    for kind, (source, pattern, change) in KINDS.items():
        for number in range(count):
            work = pathlib.Path(tempfile.mkdtemp(prefix=f"mutate-{kind}-"))
            shutil.copytree(source, work / "c")
            path = rng.choice(sorted((work / "c").rglob(pattern)))
            path.chmod(0o644)
            path.write_bytes(change(rng, path.read_bytes()))
            wrong = one(run, work)
            if wrong:
                failures += 1
                print(f"FAIL {kind} {number} ({work}): {wrong}")
            else:
                shutil.rmtree(work)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    if most > 64 and not run.slow:
        failures += 1
        print(f"FAIL {most} MiB, at most 64")
    print(f"{len(KINDS)} kinds, {count} of each, {failures} failures, at most {most} MiB")
    sys.exit(failures > 0)


main()
