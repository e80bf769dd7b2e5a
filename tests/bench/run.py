#!/usr/bin/env python3
"""How fast is `ckptflow run unshard`, held against `cp` of the same files?

Only pairs are compared: each round runs every contender once, in random order, cp among them, and
the figure is the median over the rounds of (cp's time / contender's time). Before each run the last
output is removed and the disk is synced; the input is in the page cache. As root, all run with
real-time priority (chrt -f 10), so that other work on the machine disturbs them less. CPU seconds
are those of the process and all it waited for. Memory is measured apart, in a run that is not
timed: VmHWM of each of its processes (what runs scripts has processes of its own), looked at every
half millisecond.

  CPU ratio: threads * (cp's CPU seconds / contender's): what the wall ratio would be if every
  thread had a core for itself. The gate needs one of the two, as a busy machine may spoil the
  other, and adds up the memory of all processes. It is meant for large tensors, not for tiny ones.
"""

import argparse
import json
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

GATE_RATIO = 1.2  # at 2 threads
GATE_MEMORY = 64 << 20

RANGES = str(pathlib.Path(__file__).with_name("ranges.lua"))
# --cases: what is generated, options of ckptflow, and whether cp is followed by sync
CASES = {
    "rows": {"layout": "rows"},
    "columns-512": {"layout": "columns", "row": 512},
    "columns-2048": {"layout": "columns", "row": 2048},
    "columns-8192": {"layout": "columns", "row": 8192},
    "ranges": {"layout": "ranges", "options": ["--plugin", RANGES]},
    "bf16": {"layout": "rows", "options": ["--dtype", "bf16"]},
    "fsync": {"layout": "rows", "options": ["--fsync"], "sync": True},
    "mmap": {"layout": "rows", "options": ["--io", "mmap"]},
    "columns-mmap": {"layout": "columns", "row": 2048, "options": ["--io", "mmap"]},
    "4GiB": {"layout": "rows", "size": 4 << 30},
}


def told(command):
    """What it wrote to stdout, wall and CPU seconds."""
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            words = " ".join(map(str, command))
            sys.exit(f"{words}: exit {child.returncode}\n{errors.read().decode()}")
    return said.decode(), wall, usage.ru_utime + usage.ru_stime


def timed(command):
    """Wall and CPU seconds."""
    return told(command)[1:]


def tree(pid):
    """pid, its children, theirs."""
    yield pid
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
    except OSError:
        return
    for child in children:
        yield from tree(int(child))


def peak(pid):
    """Peak memory of a living process since its exec; 0 if it has gone."""
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def samples(command):
    """{pid: peak} of the processes that live, again and again while the command runs."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        yield {pid: peak(pid) for pid in tree(child.pid)}
        time.sleep(0.0005)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}")


def memory(command):
    """Peaks of the processes, in order of their birth."""
    peaks = {}
    for living in samples(command):
        for pid, most in living.items():
            peaks[pid] = max(most, peaks.get(pid, 0))
    return list(peaks.values())


def priority():
    """What to put before commands."""
    words = ["chrt", "-f", "10"]
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True)
        return words
    except (OSError, subprocess.CalledProcessError):
        return []


class Bench:
    def __init__(self, binary, folder, contenders, options=(), sync=False):
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"
        self.before = priority()
        files = sorted(str(f) for f in self.checkpoint.iterdir())
        self.bytes = sum(os.path.getsize(f) for f in files)
        self.commands = {"cp": ["cp", *files, str(self.out)]}
        if sync:  # the files and their folder
            line = 'o=$1; shift; cp "$@" "$o" && sync "$o"/* "$o"'
            self.commands = {"cp": ["sh", "-c", line, "sh", str(self.out), *files]}
        for threads in contenders:
            self.commands[f"-j {threads}"] = [
                *[binary, "run", "unshard.lua", str(self.checkpoint)],
                *["-o", str(self.out), "-j", str(threads), "-q", *options],
            ]

    def clear(self, contender):
        shutil.rmtree(self.out, ignore_errors=True)
        if contender == "cp":
            self.out.mkdir()
        os.sync()
        time.sleep(0.2)

    def warm(self):
        for file in self.checkpoint.iterdir():
            with open(file, "rb", buffering=0) as f:
                while f.read(1 << 20):
                    pass

    def round(self):
        """{contender: (wall, cpu)}"""
        times = {}
        for contender in random.sample(list(self.commands), len(self.commands)):
            self.clear(contender)
            times[contender] = timed(self.before + self.commands[contender])
        return times

    def memory(self, contender):
        self.clear(contender)
        return memory(self.commands[contender])


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(bench, contender, rounds):
    threads = 1 if contender == "cp" else int(contender.split()[1])
    walls = [r[contender][0] for r in rounds]
    cpus = [r[contender][1] for r in rounds]
    row = {
        "wall": spread(walls),
        "cpu": spread(cpus),
        "gb_per_s": bench.bytes / statistics.median(walls) / 1e9,
        "wall_ratio": spread([r["cp"][0] / r[contender][0] for r in rounds]),
        "cpu_ratio": spread([threads * r["cp"][1] / r[contender][1] for r in rounds]),
    }
    if contender != "cp":
        row["memory"] = bench.memory(contender)
    return row


HEAD = [
    "| | | wall s | GB/s | CPU s | cp wall / wall (min-max) | CPU ratio | peak memory MiB |",
    "|---|---|---|---|---|---|---|---|",
]


def table(name, result):
    for contender, row in result["contenders"].items():
        wall, cpu = row["wall_ratio"], row["cpu_ratio"]
        memory = " + ".join(f"{m / 2**20:.0f}" for m in row.get("memory", []))
        yield (
            f"| {name} | {contender} | {row['wall']['median']:.3f} | {row['gb_per_s']:.2f}"
            f" | {row['cpu']['median']:.3f} | {wall['median']:.2f} ({wall['min']:.2f}-"
            f"{wall['max']:.2f}) | {cpu['median']:.2f} | {memory} |"
        )


def gate(result):
    """What fails."""
    row = result["contenders"]["-j 2"]
    wall, cpu = row["wall_ratio"]["median"], row["cpu_ratio"]["median"]
    if wall < GATE_RATIO and cpu < GATE_RATIO:
        yield f"-j 2: wall ratio {wall:.2f} and CPU ratio {cpu:.2f}, both below {GATE_RATIO}"
    if sum(row["memory"]) > GATE_MEMORY:
        yield f"-j 2: {sum(row['memory']) / 2**20:.0f} MiB of memory, more than 64 MiB"


def measure(a, binary, case):
    with tempfile.TemporaryDirectory(prefix="ckptflow-bench-", dir=a.folder) as folder:
        folder = pathlib.Path(folder)
        size = case.get("size", a.size)
        generate.generate(
            folder / "checkpoint", a.ranks, size, case["layout"], a.seed, case.get("row")
        )
        bench = Bench(binary, folder, a.threads, case.get("options", ()), case.get("sync", False))
        bench.warm()
        load = os.getloadavg()[0]
        rounds = [bench.round() for _ in range(a.rounds)]
        return {
            "schema": "ckptflow.bench/1",
            "layout": case["layout"],
            "ranks": a.ranks,
            "bytes": bench.bytes,
            "rounds": a.rounds,
            "cores": len(os.sched_getaffinity(0)),
            "load": [load, os.getloadavg()[0]],
            "realtime": bool(bench.before),
            "contenders": {c: summary(bench, c, rounds) for c in bench.commands},
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    generate.options(parser)
    parser.add_argument("--binary", default="build/ckptflow")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--cases", nargs="+", choices=[*CASES, "all"], metavar="CASE", help=" ".join(CASES) + ", or all"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--folder", help="where to work (default: the temporary folder)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--gate", action="store_true", help="exit 1 if it is too slow or too large")
    a = parser.parse_args()
    if a.gate and 2 not in a.threads:
        parser.error("--gate judges 2 threads")
    binary = os.path.abspath(a.binary)

    names = list(CASES) if a.cases == ["all"] else a.cases
    results = {}
    print("\n".join(HEAD))
    for name in names or [a.layout]:
        case = CASES[name] if names else {"layout": a.layout, "row": a.row}
        if a.layout == "ranges" and not names:
            case = CASES["ranges"]
        results[name] = measure(a, binary, case)
        print("\n".join(table(name, results[name])), flush=True)
    first = next(iter(results.values()))
    how = "real-time priority" if first["realtime"] else "normal priority"
    loads = [load for result in results.values() for load in result["load"]]
    print(
        f"\n{a.ranks} ranks, {first['bytes'] / 2**30:.2f} GiB, {a.rounds} rounds, warm, "
        f"{first['cores']} cores, load {min(loads):.1f}-{max(loads):.1f}, {how}"
    )
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1) + "\n")
    faults = list(gate(first)) if a.gate else []
    print("".join(f"\ngate: {fault}" for fault in faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
