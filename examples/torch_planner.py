"""A save planner for torch.distributed.checkpoint that asks a ckptflow policy who writes what.

    dcp.save(state, storage_writer=FileSystemWriter(path),
             planner=PolicySavePlanner("lowest-rank"))

The policy is a name (lowest-rank, balanced, small-to-lowest) or a Lua file of one's own, the same
that `ckptflow reads --policy` shows and `ckptflow run replan --policy` applies afterwards. Rank 0
asks once a save; without the program or with a policy that fails, the save fails.
"""
import dataclasses
import json
import math
import subprocess

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItemType


def describe(item, holders):
    """One line of what `ckptflow place` reads."""
    if item.type == WriteItemType.BYTE_IO:
        return {"key": item.index.fqn, "kind": "value", "holders": holders}
    data = item.tensor_data
    each = data.properties.dtype.itemsize
    return {"key": item.index.fqn, "kind": "tensor", "bytes": math.prod(data.chunk.sizes) * each,
            "whole_bytes": math.prod(data.size) * each, "holders": holders}


class PolicySavePlanner(DefaultSavePlanner):
    def __init__(self, policy, program="ckptflow", **options):
        super().__init__(**options)
        self.policy, self.program = policy, program

    def place(self, items):
        request = json.dumps({"schema": "ckptflow.place/1", "items": items})
        done = subprocess.run([self.program, "place", "--policy", str(self.policy)],
                              input=request, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ckptflow place: {done.stderr.strip()}")
        return json.loads(done.stdout)["keepers"]

    def deduplicate(self, all_plans):
        holders, items = {}, {}
        for rank, plan in enumerate(all_plans):
            for item in plan.items:
                holders.setdefault(item.index, []).append(rank)
                items.setdefault(item.index, item)
        keepers = self.place([describe(items[index], ranks) for index, ranks in holders.items()])
        keeper = dict(zip(holders, keepers))
        return [dataclasses.replace(plan, items=[i for i in plan.items if keeper[i.index] == rank])
                for rank, plan in enumerate(all_plans)]

    def create_global_plan(self, all_plans):
        return super().create_global_plan(self.deduplicate(all_plans))
