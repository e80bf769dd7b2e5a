"""OLMo's rank files against what torch itself reads in them."""

import contextlib
import json
import pathlib

import safetensors
import safetensors.numpy
import safetensors.torch
import torch
import torch.distributed
from torch.distributed._shard import load_with_process_group
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import common

CASES = {  # ranks, and of these so many hold one replica
    "odd_legacy_ws3_t2130": (3, 3),
    "oddhsdp_legacy_ws4_t2130": (4, 2),
    "olmo_legacy_ws1_t2130": (1, 1),
    "olmo_legacy_ws4_t210": (4, 4),
    "olmo_legacy_ws4_t2130": (4, 4),
    "olmolion_legacy_ws2_t2130": (2, 2),
    "st_legacy_ws3_t1131": (3, 3),
}


@contextlib.contextmanager
def as_rank(rank, ranks, group):
    """ShardedTensors can be unpickled only in a process group like the one they were saved in."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        first = rank - rank % group
        with load_with_process_group(torch.distributed.new_group(range(first, first + group))):
            yield
    finally:
        torch.distributed.destroy_process_group()


def load(checkpoint, rank, ranks, group):
    with as_rank(rank, ranks, group):
        return torch.load(pathlib.Path(checkpoint) / f"rank{rank}.pt", weights_only=False)


def joined(states):
    """{key: whole tensor} of model and optimizer, out of all ranks' shards."""
    whole = {}
    for state in states:
        for key, value in common.leaves({"model": state["model"], **state["optim"]["state"]}):
            if isinstance(value, ShardedTensor):
                for shard in value.local_shards():
                    place = zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes)
                    empty = torch.empty(value.size(), dtype=shard.tensor.dtype)
                    box = tuple(slice(start, start + size) for start, size in place)
                    whole.setdefault(key, empty)[box] = shard.tensor
            elif isinstance(value, torch.Tensor):
                whole.setdefault(key, value)
    return whole


def written(out):
    """Both files' tensors, under the keys of the expected ones."""
    model, _ = common.read_safetensors(out / "model.safetensors")
    optim, _ = common.read_safetensors(out / "optim.safetensors")
    return {
        **{"model." + key: tensor for key, tensor in model.items()},
        **{"optim." + key: tensor for key, tensor in optim.items()},
    }


def hold_rest(state, out):
    """Every value of rank 0 against train.json, every tensor beside them against safetensors."""
    values, tensors = {}, {}
    for key, value in common.leaves(state):
        if not isinstance(value, (torch.Tensor, ShardedTensor)):
            values[key] = value
        elif not key.startswith(("model.", "optim.state.")):
            tensors[key] = common.described(value)
    beside, _ = common.read_safetensors(out / "train.safetensors")
    used = common.hold_values(values, json.loads((out / "train.json").read_text()), beside)
    common.hold_tensors(tensors, {k: v for k, v in beside.items() if k not in used})


def check_case(name, tool, folder):
    case = common.FIXTURES / "olmo" / name
    out = tool.run("unshard.lua", case / "ckpt", folder / "out")
    expected, _ = common.read_safetensors(case / "expected.safetensors")
    common.hold_tensors(expected, written(out))
    hold_rest(load(case / "ckpt", 0, *CASES[name]), out)


def check_libraries(tool, folder):
    """The files open with the library's own loaders, and data begins at a page."""
    case = common.FIXTURES / "olmo" / "odd_legacy_ws3_t2130"
    out = tool.run("unshard.lua", case / "ckpt", folder / "out")
    for name in ("model", "optim"):
        path = out / f"{name}.safetensors"
        expected = {
            key[len(name) + 1 :]: value
            for key, value in safetensors.torch.load_file(case / "expected.safetensors").items()
            if key.startswith(name + ".")
        }
        got = safetensors.torch.load_file(path)
        assert got.keys() == expected.keys()
        for key, tensor in got.items():
            assert tensor.dtype == expected[key].dtype and torch.equal(tensor, expected[key]), key
        with safetensors.safe_open(path, "np") as file:
            assert file.metadata()["format"] == "pt"
            for key in file.keys():
                if expected[key].dtype != torch.bfloat16:  # numpy has none
                    assert (file.get_tensor(key) == expected[key].numpy()).all(), key
        with open(path, "rb") as file:
            assert (8 + int.from_bytes(file.read(8), "little")) % 4096 == 0


def checks():
    for name in CASES:
        yield f"olmo {name}", lambda *with_, name=name: check_case(name, *with_)
    yield "olmo with the safetensors library", check_libraries
