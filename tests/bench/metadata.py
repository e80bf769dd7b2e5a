#!/usr/bin/env python3
"""Does the metadata of a large DCP save open within its limits?

Writes the `.metadata` of 512 ranks x 900 keys (460,800 chunks; generate_dcp.py), runs `inspect`
and `plan`, and prints what each took: CPU seconds (user and system, of all processes of the
command) and the peak memory of its largest process. Exit 1 beyond 3 s or 250 MiB.

Not a timed test: on a busy machine caches are cold and CPU seconds rise, so the least of --rounds
counts. The pages of a plan that a process maps count as its memory.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

MOST_SECONDS, MOST_MIB = 3.0, 250
HERE = pathlib.Path(__file__).parent


def measure(command):
    """CPU seconds, and the largest peak of a process, in MiB. wait4 gives those of the command
    and of what it waited for."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"metadata: {' '.join(map(str, command))}: exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/ckptflow")
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--keys", type=int, default=900)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", help="a folder that generate_dcp.py wrote; none is made")
    args = parser.parse_args()
    within = True
    with tempfile.TemporaryDirectory(prefix="ckptflow-metadata-") as folder:
        save = args.save
        if not save:
            save = os.path.join(folder, "save")
            size = ["--ranks", str(args.ranks), "--keys", str(args.keys)]
            subprocess.run([sys.executable, HERE / "generate_dcp.py", save, *size], check=True)
        for verb in (["inspect", save], ["plan", "convert", save, "--to", "safetensors"]):
            taken = [measure([args.binary, *verb]) for _ in range(args.rounds)]
            seconds, mib = min(t for t, _ in taken), max(m for _, m in taken)
            good = seconds <= MOST_SECONDS and mib <= MOST_MIB
            within = within and good
            print(f"{verb[0]:8} {seconds:5.2f} s of CPU {mib:5.0f} MiB   "
                  f"{'within' if good else 'BEYOND'} {MOST_SECONDS:g} s and {MOST_MIB} MiB")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
