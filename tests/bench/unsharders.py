#!/usr/bin/env python3
"""OLMo's own unsharder, torch, cp and ckptflow on the same rank files.

A torch_legacy checkpoint of generate.py, unsharded by OLMo (ai2-olmo 0.6.0, what its
scripts/unshard.py calls), written anew file by file by torch.load and torch.save (it joins nothing:
the least that a way through Python costs), copied by cp -r, unsharded by ckptflow, and in two
phases: explode, whole or by a job for each rank, all at once, then gather. Where the interpreter
(--python, build/frameworks-venv: `./dev interop` makes it) has no ai2-olmo or no torch, these are
left out, by name.

As in run.py each round runs everyone once, in random order, with real-time priority where it may;
ratios are those within a round. What runs Python has two rows: all of it, and without the imports.
Memory is the most that all processes together had, in a run that is not timed. Then `ckptflow diff`
holds every output against OLMo's: exit 1 if a tensor or a value differs.
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

import generate
import run

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent.parent / "build" / "frameworks-venv" / "bin" / "python"
OLMO = HERE / "olmo_unshard.py"

# A ShardedTensor can be unpickled only in a process group like that which saved it.
TORCH = """
import os, pathlib, sys, time, torch
from torch.distributed._shard import load_with_process_group
from torch.testing._internal.distributed.fake_pg import FakeStore
source, out = map(pathlib.Path, sys.argv[1:])
wall, cpu = time.perf_counter(), sum(os.times()[:2])
files = list(source.glob("rank*.pt"))
out.mkdir()
for rank in range(len(files)):
    name = f"rank{rank}.pt"
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=len(files))
    with load_with_process_group(torch.distributed.new_group(range(len(files)))):
        state = torch.load(source / name, weights_only=False)
    torch.save(state, out / name)
    torch.distributed.destroy_process_group()
print(time.perf_counter() - wall, sum(os.times()[:2]) - cpu)
"""

WHOLE = """
mkdir "$3"
"$1" run explode.lua "$2" -o "$3/e" -j "$4" -q
"$1" run gather.lua "$3/e" -o "$3/g" -j "$4" -q
"""
JOBS = """
mkdir "$3" "$3/e"
for n in $(seq 0 $(($5 - 1))); do "$1" run explode.lua "$2" --only-rank "$n" -o "$3/e/$n" -j 1 -q & done
wait
"$1" run gather.lua "$3"/e/* -o "$3/g" -j "$4" -q
"""

# OLMo leaves out the random states, and what is in train.pt has that in its keys.
OURS = ["--rename", "train.*=*", "--exclude", "rng.*"]
BARE = ", without its imports"
HEAD = """\
| | wall s (min-max) | wall / cp's (min-max) | CPU s | peak memory MiB |
|---|---|---|---|---|"""


def contenders(a, checkpoint, out):
    """{name: command}; those in Python print what they took without their imports."""
    python, here, to = str(a.python), str(checkpoint), str(out)
    commands = {"`cp -r`": ["cp", "-r", here, to]}
    if has(a.python, "olmo"):
        for kind in ("torch", "safetensors"):
            commands[f"OLMo's unsharder, to {kind}"] = [python, str(OLMO), here, to, kind]
    if has(a.python, "torch"):
        commands["`torch.load`, `torch.save`, file by file"] = [python, "-c", TORCH, here, to]
    for kind in ("torch", "safetensors"):
        for threads in a.threads:
            commands[f"`unshard.lua`, to {kind}, -j {threads}"] = [
                *[a.binary, "run", "unshard.lua", here, "-o", to],
                *["--to", kind, "-j", str(threads), "-q"],
            ]
    most, words = str(max(a.threads)), ["sh", a.binary, here, to]
    commands[f"`explode.lua`, `gather.lua`, -j {most}"] = ["sh", "-ec", WHOLE, *words, most]
    commands[f"`explode.lua` by {a.ranks} jobs, `gather.lua`"] = ["sh", "-ec", JOBS, *words, most, str(a.ranks)]
    return commands


def has(python, package):
    """Does this interpreter have it? Says so if not."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec('{package}') is None)"
    there = python.exists() and subprocess.run([python, "-c", look], check=False).returncode == 0
    if not there:
        print(f"skipped: {package} is not in {python}")
    return there


class Bench:
    def __init__(self, a, folder):
        self.binary = a.binary
        self.checkpoint, self.out = folder / "checkpoint", folder / "out"
        generate.generate(self.checkpoint, a.ranks, a.size, "rows", a.seed)
        self.bytes = sum(f.stat().st_size for f in self.checkpoint.iterdir())
        self.commands = contenders(a, self.checkpoint, self.out)
        self.before = run.priority()
        self.peaks, self.theirs = {}, None
        self.times = {name: [] for name in self.commands}

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)
        os.sync()
        time.sleep(0.2)

    def check(self):
        """Runs everyone once, for the peak of memory; what was written that OLMo did not say."""
        wrong = []
        for name, command in self.commands.items():
            self.clear()
            self.peaks[name] = max(sum(living.values()) for living in run.samples(command))
            if name.startswith("OLMo") and not self.theirs:
                self.theirs = self.checkpoint.with_name("theirs")
                self.out.rename(self.theirs)
            elif self.theirs and name.startswith(("OLMo", "`unshard", "`explode")):
                said = self.differences([] if name.startswith("OLMo") else OURS)
                wrong += [f"{name}: {said}"] if said else []
        return wrong

    def differences(self, options):
        both = self.out / "g"  # of two phases
        command = [self.binary, "diff", self.theirs, both if both.exists() else self.out]
        command += options
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def round(self):
        """One row more for each, two for those that say what they took without their imports."""
        now = {}
        for name in random.sample(list(self.commands), len(self.commands)):
            self.clear()
            said, *now[name] = run.told(self.before + self.commands[name])
            if name.startswith(("OLMo", "`torch")):
                now[f"{name}{BARE}"] = [float(word) for word in said.split()]
        for name, (wall, cpu) in now.items():
            self.times.setdefault(name, []).append((wall, cpu, wall / now["`cp -r`"][0]))

    def table(self):
        yield HEAD
        for name in self.commands:
            for row in (name, name + BARE):
                if self.times.get(row):
                    walls, cpus, ratios = zip(*self.times[row])
                    peak = f"{self.peaks[row] / 2**20:.0f}" if row in self.peaks else ""
                    cpu = statistics.median(cpus)
                    yield f"| {row} | {spread(walls)} | {spread(ratios)} | {cpu:.2f} | {peak} |"


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/ckptflow", type=os.path.abspath)
    parser.add_argument("--python", default=PYTHON, type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=generate.size_of, default="1GiB", help="of all files (default 1GiB)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where to work (default: the temporary folder)")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckptflow-bench-", dir=a.folder) as folder:
        bench = Bench(a, pathlib.Path(folder))
        wrong = bench.check()
        for _ in range(a.rounds):
            bench.round()
    print("\n".join(bench.table()))
    print(
        f"\n{a.ranks} ranks, {bench.bytes / 2**30:.2f} GiB, {a.rounds} rounds, warm, "
        f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, "
        f"{'real-time' if bench.before else 'normal'} priority"
    )
    print("\n".join(wrong) or "All say what OLMo's says." if bench.theirs else "OLMo did not say anything.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
