#!/usr/bin/env python3
"""Every real checkpoint of a family in tests/fixtures against its right values.

usage: values.py CKPTFLOW FAMILY

A case is a folder with ckpt/ and expected.safetensors, written and computed by the real frameworks (README.txt
of each). `unshard` is held against names as the framework has them; the DCP family, whose values are under the
keys of the checkpoint, against `convert`. -j 1 and -j 3 must leave the same bytes."""
import filecmp
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(ckptflow, recipe, case, out, jobs):
    command = [ckptflow, "run", recipe, case / "ckpt", "-o", out, "-j", str(jobs), "-q", "--progress", "none"]
    return subprocess.run(command, capture_output=True, text=True)


def differing(a, b):
    """Files of two folders that are not the same, by name."""
    names = sorted({p.relative_to(d) for d in (a, b) for p in d.rglob("*") if p.is_file()})
    same, other, missing = filecmp.cmpfiles(a, b, names, shallow=False)
    return other + missing


def check(ckptflow, recipe, case, folder):
    one, three = folder / "one", folder / "three"
    for out, jobs in ((one, 1), (three, 3)):
        done = run(ckptflow, recipe, case, out, jobs)
        if done.returncode:
            return done.stderr.strip()
    if differing(one, three):
        return f"-j 1 and -j 3 differ: {differing(one, three)}"
    compare = [sys.executable, HERE / "compare.py", case / "expected.safetensors", one]
    held = subprocess.run(compare, capture_output=True, text=True)
    return held.stdout.strip() if held.returncode else None


def main():
    ckptflow, family = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    recipe = "convert.lua" if family == "dcp" else "unshard.lua"
    cases = sorted(p.parent for p in (HERE / "fixtures" / family).glob("*/expected.safetensors"))
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            why = check(ckptflow, recipe, case, pathlib.Path(folder))
        if why:
            failed += 1
            print(f"FAIL {case.name}: {why}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(failed > 0 or not cases)


main()
