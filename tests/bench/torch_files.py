#!/usr/bin/env python3
"""torch_files.py BINARY: one torch file written anew, by ckptflow, torch, safetensors and cp.

Each round runs everyone once in random order; the figure is the median of (cp's time / theirs), as
in run.py. torch and safetensors are timed inside Python, without the two seconds of their import,
and left out where the interpreter (--python, build/interop-venv) has none.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import run

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / "build" / "interop-venv" / "bin" / "python"

MAKE = """
import sys, torch
tensors, left = {}, int(sys.argv[2])
while left > 0:
    rows = max(1, min(left // 4 // 4096, 2048))
    tensors[f"layers.{len(tensors)}.weight"] = torch.randn(rows, 4096)
    left -= rows * 4096 * 4
torch.save(tensors, sys.argv[1])
"""
PEERS = {
    "torch.load + save": "torch.save(torch.load(a), b)",
    "torch.load(mmap) + save": "torch.save(torch.load(a, mmap=True), b)",
    "torch.load(mmap) + safetensors": "save_file(torch.load(a, mmap=True), b)",
}
TIMED = """
import os, sys, time, torch
from safetensors.torch import save_file
a, b = sys.argv[1:]
wall, cpu = time.perf_counter(), sum(os.times()[:2])
{}
print(time.perf_counter() - wall, sum(os.times()[:2]) - cpu)
"""


def contenders(a, source, out):
    yield "cp", ["cp", source, out]
    for threads in (1, 2):
        for to in ("torch", "safetensors"):
            command = [a.binary, "run", "convert", source, "--to", to, "-o", out, "-q"]
            yield f"ckptflow --to {to} -j {threads}", [*command, "--progress", "none", "-j", threads]
    for name, line in PEERS.items():
        yield name, [a.python, "-c", TIMED.format(line), source, out]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--python", default=PYTHON, type=pathlib.Path)
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    a = parser.parse_args()
    if not a.python.exists():
        print(f"skipped: no torch ({a.python})")
        return
    before = run.priority()
    with tempfile.TemporaryDirectory(prefix="ckptflow-bench-", dir=a.folder) as folder:
        source, out = pathlib.Path(folder) / "in.pt", pathlib.Path(folder) / "out"
        subprocess.run([a.python, "-c", MAKE, source, str(a.size)], check=True)
        commands = dict(contenders(a, source, out))
        times = {name: [] for name in commands}
        for _ in range(a.rounds):
            for name in random.sample(list(commands), len(commands)):
                shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
                os.sync()
                time.sleep(0.2)
                said, wall, cpu = run.told(before + [str(word) for word in commands[name]])
                if name in PEERS:
                    wall, cpu = map(float, said.split())
                times[name].append((wall, cpu))
        print("| one torch file | wall s | CPU s | cp wall / wall (min-max) |\n|---|---|---|---|")
        for name, rounds in times.items():
            ratios = [c[0] / r[0] for c, r in zip(times["cp"], rounds)]
            print(
                f"| {name} | {statistics.median(r[0] for r in rounds):.3f}"
                f" | {statistics.median(r[1] for r in rounds):.3f}"
                f" | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |"
            )


if __name__ == "__main__":
    main()
