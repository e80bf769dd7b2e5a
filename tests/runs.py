"""Runs of ckptflow as a test sees them: started, disturbed, and what they leave.

Imported by tests whose first arguments are CKPTFLOW and LIBFAULT (fault/fault.c).
"""

import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CKPTFLOW, LIBFAULT = (os.path.abspath(path) for path in sys.argv[1:3])
out = pathlib.Path("out")
partial = pathlib.Path("out.ckptflow-partial")


def environment(fault=None):
    env = dict(os.environ)
    if fault:
        env.update(FAULT=fault, LD_PRELOAD=LIBFAULT)
        env["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
    return env


def command(recipe, *arguments, name=out):
    return [CKPTFLOW, "run", recipe, *arguments, "-o", str(name), "--progress", "none"]


def run(recipe, *arguments, fault=None, name=out):
    """Exit status, stdout, stderr."""
    done = subprocess.run(
        command(recipe, *arguments, name=name), env=environment(fault), capture_output=True,
        text=True, check=False,
    )
    return done.returncode, done.stdout, done.stderr


def digest(folder):
    """Of all files of a folder, by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def clear(folder):
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def check(what, why):
    assert what, why


def generate(layout, size, ranks=4):
    subprocess.run(
        [sys.executable, HERE / "bench" / "generate.py", "--layout", layout, "--size", size,
         "--ranks", str(ranks), layout],
        check=True, stdout=subprocess.DEVNULL,
    )
