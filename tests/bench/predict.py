#!/usr/bin/env python3
"""Does `plan` foretell what `run` takes? Bytes, requests and memory, held against each other.

Checkpoints are generated: rows, columns, tiny tensors, compressed members; recipes transpose, add
up and cast. Bytes and requests are what `plan --json` and `run --json` say, and must agree within
--within. Memory is the peak of the largest process: as the kernel counts it (VmHWM, by polling),
as `run --json` says, and as `plan --json` says.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import generate
import run

TRANSPOSE = """
return { api = 1, about = "transposed", plan = function(cat, plan)
  local all = {}
  for key, row in pairs(cat:tensors()) do
    if #row.shape == 2 then all[key] = row.view:permute({ 1, 0 }) else all[key] = row.view end
  end
  plan:write("all.safetensors", all)
  plan:write("values.json", cat:values())
end }
"""
SUM = """
return { api = 1, about = "sums", plan = function(cat, plan)
  local all = {}
  for key, row in pairs(cat:tensors()) do
    if row.dtype == "F32" then
      all[key] = plan:sum({ row.view, row.view }, { 0.25, 0.75 })
    else
      all[key] = row.view
    end
  end
  plan:write("all.safetensors", all)
  plan:write("values.json", cat:values())
end }
"""


def deflate(source, target):
    target.mkdir()
    for file in source.iterdir():
        if file.suffix != ".pt":
            shutil.copy(file, target)
            continue
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(target / file.name, "w") as new:
            for item in old.infolist():
                how = zipfile.ZIP_DEFLATED if "/data/" in item.filename else zipfile.ZIP_STORED
                new.writestr(item.filename, old.read(item), how, 1)


def cases(folder, size):
    """name, arguments of plan and run, more arguments."""
    for layout in ("rows", "columns", "tiny"):
        generate.generate(folder / layout, 4, size, layout)
    generate.generate(folder / "small", 2, 1 << 20, "rows")
    deflate(folder / "rows", folder / "deflated")
    for name, text in (("transpose", TRANSPOSE), ("sum", SUM)):
        (folder / f"{name}.lua").write_text(text)
    rows, columns, tiny = (str(folder / n) for n in ("rows", "columns", "tiny"))
    transpose, add = (str(folder / n) for n in ("transpose.lua", "sum.lua"))
    yield "rows", ["unshard", rows], []
    yield "rows -j 1", ["unshard", rows], ["-j", "1"]
    yield "rows 1 MiB", ["unshard", rows], ["--max-mem", "1MiB", "-j", "4"]
    yield "rows mmap", ["unshard", rows], ["--io", "mmap"]
    yield "rows direct", ["unshard", rows], ["--io", "direct"]
    yield "columns", ["unshard", columns], []
    yield "columns bf16", ["unshard", columns], ["--dtype", "bf16"]
    yield "tiny", ["unshard", tiny], []
    yield "small", ["unshard", str(folder / "small")], []
    yield "transposed rows", [transpose, rows], []
    yield "transposed columns", [transpose, columns], []
    yield "transposed columns bf16", [transpose, columns], ["--dtype", "bf16"]
    yield "transposed 2 MiB", [transpose, columns], ["--max-mem", "2MiB"]
    yield "sums", [add, columns], []
    yield "deflated", ["unshard", str(folder / "deflated")], []
    yield "deflated columns", ["convert", str(folder / "deflated")], []


def say(binary, verb, recipe, more):
    done = subprocess.run(
        [binary, verb, *recipe, *more, "--json", "-q"], capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"{verb} {recipe}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/ckptflow")
    parser.add_argument("--size", type=generate.size_of, default="64MiB")
    parser.add_argument("--within", type=float, default=0.1)
    parser.add_argument("--slack", type=generate.size_of, default="1MiB", help="of memory")
    parser.add_argument("--no-memory", action="store_true", help="a build with sanitizers")
    parser.add_argument("--folder", help="where to work (default: the temporary folder)")
    a = parser.parse_args()
    binary = os.path.abspath(a.binary)
    faults = 0
    print("| | read MiB: plan, run | requests: plan, run | peak MiB: plan, run, seen |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ckptflow-predict-", dir=a.folder) as folder:
        folder = pathlib.Path(folder)
        for name, recipe, more in cases(folder, a.size):
            out = ["-o", str(folder / "out")]
            plan = say(binary, "plan", recipe, more)
            done = say(binary, "run", recipe, more + out)
            shutil.rmtree(folder / "out")
            seen = max(run.memory([binary, "run", *recipe, *more, *out, "-q"]))
            shutil.rmtree(folder / "out")
            wrong = [
                what
                for what in ("read", "requests", "written")
                if abs(plan[what] - done[what]) > a.within * done[what]
            ]
            few = "--io" in more and a.size < 32 << 20  # how many windows a thread fills is chance
            if not a.no_memory and not few:
                slack = 3 * a.slack if "--io" in more else a.slack
                off = abs(plan["memory"] - done["memory"]) > max(a.within * done["memory"], slack)
                # who looks now and then may miss a peak, but never sees a higher one
                if off or seen > max((1 + a.within) * plan["memory"], plan["memory"] + slack):
                    wrong.append("memory")
            faults += len(wrong)
            mib = [f"{n / 2**20:.1f}" for n in (plan["memory"], done["memory"], seen)]
            print(
                f"| {name} | {plan['read'] / 2**20:.1f}, {done['read'] / 2**20:.1f} |"
                f" {plan['requests']}, {done['requests']} | {', '.join(mib)} |"
                f"{' WRONG: ' + ' '.join(wrong) if wrong else ''}",
                flush=True,
            )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
