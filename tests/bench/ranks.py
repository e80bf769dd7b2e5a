#!/usr/bin/env python3
"""Many ranks with tiny shards: what it costs to parse their pickles and to join them.

Each ShardedTensor names the shards of all ranks, so the pickles of N ranks grow as N squared; they
are written by generate.py, opcode for opcode as torch writes them, with uneven shards and ranks that
have none. Prints wall and CPU seconds of `inspect` and `unshard` with one and more threads (medians
of --rounds), and the peak memory of all processes together, in all and for each rank. What `unshard`
wrote is held against the bytes of the rank files, taken from their archives by Python alone; exit 1
if a value is wrong, or if memory for each rank grows by half or more from the least to the most ranks
(at few ranks what does not grow with them hides it).

    ranks.py [--ranks 8 64 216 1024] [--threads 1 2]     1,024 ranks: 1.3 GB in --folder
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import sys
import tempfile
import zipfile

import generate
import run


def expected(folder, ranks):
    """{role: {name: bytes}}: shards of rows, one behind the other. Storages are in the order of the
    pickle: weights, then for each of them the step and two vectors."""
    shapes = generate.few(ranks)
    whole = {"model": {}, "optim": {}}
    for rank in range(ranks):
        with zipfile.ZipFile(folder / f"rank{rank}.pt") as archive:
            number = 0

            def take(role, name, archive=archive, rank=rank):
                nonlocal number
                data = archive.read(f"rank{rank}/data/{number}")
                number += 1
                whole[role].setdefault(name, bytearray()).extend(data)

            held = [k for k, s in shapes.items() if rank * -(-s[0] // ranks) < s[0]]
            for key in held:
                take("model", key)
            for key in shapes:
                if rank:
                    number += 1  # a step: rank 0's counts
                else:
                    take("optim", key + ".step")
                for state in ("exp_avg", "exp_avg_sq") if key in held else ():
                    take("optim", f"{key}.{state}")
    return whole


def wrong(want, out):
    """Tensors that are not as expected."""
    for role, tensors in want.items():
        data = (out / f"{role}.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        head = json.loads(data[8 : 8 + size])
        for name in tensors.keys() ^ (head.keys() - {"__metadata__"}):
            yield f"{role}: {name} is there on one side only"
        for name, bytes_ in tensors.items():
            begin, end = head.get(name, {}).get("data_offsets", (0, 0))
            if data[8 + size + begin : 8 + size + end] != bytes_:
                yield f"{role}: {name} is wrong"


def measure(a, binary, folder, ranks):
    """Rows of the table; faults."""
    generate.generate(folder / "c", ranks, 0, "ranks", a.seed)
    size = sum(f.stat().st_size for f in (folder / "c").iterdir())
    want, out, faults = expected(folder / "c", ranks), folder / "o", []

    def fresh(function, command):
        shutil.rmtree(out, ignore_errors=True)
        return function(command)

    for verb in ("inspect", "unshard"):
        for threads in a.threads:
            words = ["inspect"] if verb == "inspect" else ["run", "unshard.lua", "-o", str(out)]
            command = [binary, *words, str(folder / "c"), "-j", str(threads), "-q"]
            before = run.priority() if a.realtime else []
            times = [fresh(run.timed, before + command) for _ in range(a.rounds)]
            wall, cpu = (statistics.median(part) for part in zip(*times))
            peak = sum(fresh(run.memory, command))
            if verb == "unshard":
                faults += [f"{ranks} ranks, -j {threads}: {f}" for f in wrong(want, out)]
            print(
                f"| {ranks} | {size / 2**20:.0f} MiB | {verb} | {threads} | {wall:.2f} | {cpu:.2f}"
                f" | {peak / 2**20:.0f} MiB | {peak / ranks / 2**10:.0f} KiB |",
                flush=True,
            )
            yield verb, threads, ranks, peak
    if faults:
        sys.exit("\n".join(faults))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/ckptflow")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 216, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--realtime", action="store_true", help="chrt -f 10, where it may be used")
    parser.add_argument("--folder", help="where to work (default: the temporary folder)")
    a = parser.parse_args()
    binary = os.path.abspath(a.binary)
    print("| ranks | files | verb | threads | wall s | CPU s | peak memory | for each rank |")
    print("|---|---|---|---|---|---|---|---|")
    peaks = {}
    for ranks in a.ranks:
        with tempfile.TemporaryDirectory(prefix="ckptflow-ranks-", dir=a.folder) as folder:
            for verb, threads, n, peak in measure(a, binary, pathlib.Path(folder), ranks):
                peaks.setdefault((verb, threads), {})[n] = peak / n
    for (verb, threads), each in peaks.items():
        if each[max(each)] > 1.5 * each[min(each)]:
            sys.exit(f"{verb} -j {threads}: memory for each rank grows with their number: {each}")


if __name__ == "__main__":
    main()
