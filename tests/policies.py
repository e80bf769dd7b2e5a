#!/usr/bin/env python3
"""Policies against what torch did: each real checkpoint asked who keeps what, held against its files.

policies.py CKPTFLOW. A policy that is torch's rule of a version must name, for every item, the rank
in whose file torch put it: `balanced` for 2.3 and later, `lowest-rank` before, and where
dedup_save_to_lowest_rank was given. torch 2.3 left values on rank 0: there only tensors count.
"""
import json
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent / "fixtures"
# every rank wrote all it had: nothing was placed
APART = {"rank_local_2"}


def reads(program, folder, *args):
    done = subprocess.run([program, "reads", str(folder), "--json", "--pieces", *args],
                          capture_output=True, text=True)
    assert done.returncode == 0, (folder, done.stderr)
    return json.loads(done.stdout)


def items(table):
    return {(i["key"], tuple(i.get("at", ()))): i for i in table["items"]}


def check_case(program, folder, policy, tensors_only):
    table = reads(program, folder, "--policy", policy)
    assert table["inferred"], folder
    wrong = [f"{key[0]}{list(key[1])}: torch {i['keepers'][0]}, {policy} {i['keepers'][1]}"
             for key, i in items(table).items()
             if i["keepers"][0] != i["keepers"][1] and not (tensors_only and i["kind"] == "value")]
    assert not wrong, (folder.parent.name, wrong[:5])
    return len(table["items"])


def main():
    program = sys.argv[1]
    n = cases = 0
    for case in sorted((FIXTURES / "dcp").iterdir()):
        folder = case / "ckpt" if (case / "ckpt").is_dir() else case
        if not (folder / ".metadata").is_file() or case.name in APART:
            continue
        old = case.name.startswith(("torch212", "torch222"))
        policy = "lowest-rank" if old or case.name.endswith("_lowest") else "balanced"
        n += check_case(program, folder, policy, case.name.startswith("torch2"))
        cases += 1
    assert cases >= 20, cases

    # one state saved twice: from either, `balanced` and `lowest-rank` say what torch made of it
    twins = {}
    for name in ("mixed_dedup_4", "mixed_dedup_4_lowest"):
        folder = FIXTURES / "dcp" / name
        folder = folder / "ckpt" if (folder / "ckpt").is_dir() else folder
        twins[name] = items(reads(program, folder, "--policy", "balanced", "--policy",
                                  "lowest-rank"))
    even, low = twins["mixed_dedup_4"], twins["mixed_dedup_4_lowest"]
    assert even.keys() == low.keys() and len(even) == 35, len(even)
    for key in even:
        kept = [even[key]["keepers"][0], low[key]["keepers"][0]]
        assert low[key]["keepers"][1:] == kept, (key, low[key], kept)
        assert even[key]["keepers"][1:] == kept, (key, even[key], kept)
    print(f"{n} items of {cases} checkpoints where torch put them")


main()
