#!/usr/bin/env python3
"""Every byte of an output comes from the input.

usage: poison.py CKPTFLOW [FAMILY...]

glibc fills what malloc gives with a byte of our choice (MALLOC_PERTURB_). Each checkpoint of
tests/fixtures is written twice, with 0xA5 and with 0x5A, on several threads; the outputs must be the
same to the byte, and must hold no run of 0xA5 that the input does not hold."""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RUN = b"\xa5" * 8


PROBE = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
print(ctypes.string_at(libc.malloc(4096), 4096)[2048])
"""


def poisoned(fill):
    """malloc fills memory with the complement of the number it is told."""
    number = str(fill ^ 0xFF)
    return dict(
        os.environ, MALLOC_PERTURB_=number, GLIBC_TUNABLES=f"glibc.malloc.perturb={number}"
    )


def convert(ckptflow, source, out, fill):
    env = poisoned(fill)
    done = subprocess.run(
        [ckptflow, "run", "convert.lua", source, "-o", out, "-j", "3", "-q", "--progress", "none"],
        env=env, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, f"{source}: {done.stderr}"
    return {p.name: p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def main():
    ckptflow = os.path.abspath(sys.argv[1])
    folders = []
    for family in sys.argv[2:] or ["dcp", "olmo", "others"]:
        folders += sorted(HERE.glob(f"fixtures/{family}/*/ckpt"))
    assert folders
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], env=poisoned(0xA5), capture_output=True, check=True
    )
    if int(probe.stdout) != 0xA5:
        print("skipped: this C library does not fill memory")
        return
    with tempfile.TemporaryDirectory() as work:
        for number, source in enumerate(folders):
            first = convert(ckptflow, source, pathlib.Path(work) / f"{number}a", 0xA5)
            second = convert(ckptflow, source, pathlib.Path(work) / f"{number}b", 0x5A)
            assert first == second, f"{source}: memory that nobody wrote to is in the output"
            there = any(RUN in p.read_bytes() for p in source.rglob("*") if p.is_file())
            found = [name for name, data in first.items() if RUN in data]
            assert there or not found, f"{source}: {found} hold the poison"
    print(f"{len(folders)} checkpoints, no byte invented")


main()
