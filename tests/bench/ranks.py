#!/usr/bin/env python3
"""Many ranks with tiny shards: what it costs to parse their pickles and to join them.

Each ShardedTensor names the shards of all ranks, so the pickles of N ranks grow as N squared; they
are written by generate.py, opcode for opcode as torch writes them. Prints wall and CPU seconds of
`inspect` and `unshard` with one and more threads, and the peak memory of all processes, in all and
for each rank.

    ranks.py --ranks 216 [--size 4MiB] [--threads 1 2]     1024 ranks take minutes to generate
"""

import argparse
import os
import pathlib
import shutil
import tempfile

import generate
import run


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/ckptflow")
    parser.add_argument("--ranks", type=int, nargs="+", default=[216])
    parser.add_argument("--size", type=generate.size_of, default="1MiB")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", help="where to work (default: the temporary folder)")
    a = parser.parse_args()
    binary = os.path.abspath(a.binary)
    print("| ranks | pickles | verb | threads | wall s | CPU s | peak memory | per rank |")
    print("|---|---|---|---|---|---|---|---|")
    for ranks in a.ranks:
        with tempfile.TemporaryDirectory(prefix="ckptflow-ranks-", dir=a.folder) as folder:
            folder = pathlib.Path(folder)
            generate.generate(folder / "c", ranks, a.size, "rows")
            size = sum(f.stat().st_size for f in (folder / "c").iterdir())
            for verb in (["inspect"], ["run", "unshard.lua"]):
                for threads in a.threads:
                    out = [] if verb[0] == "inspect" else ["-o", str(folder / "o")]
                    command = [binary, *verb, str(folder / "c"), "-j", str(threads), "-q", *out]
                    wall, cpu = run.timed(command)
                    shutil.rmtree(folder / "o", ignore_errors=True)
                    peak = sum(run.memory(command))
                    shutil.rmtree(folder / "o", ignore_errors=True)
                    print(
                        f"| {ranks} | {size / 2**20:.0f} MiB | {verb[0]} | {threads} | {wall:.2f}"
                        f" | {cpu:.2f} | {peak / 2**20:.0f} MiB | {peak / ranks / 2**10:.0f} KiB |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
