"""DCP by torch itself: what `reshard`, `replan` and `convert --to dcp` wrote is loaded bit-equal, as
plain tensors, by dcp_to_torch_save and as DTensors on as many ranks and on other numbers of them;
chunks are cut as FSDP2 cuts; and examples/torch_planner.py plans real saves by three policies."""

import json
import os
import pathlib
import random
import resource
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, MetadataIndex,
                                                   TensorProperties)
from torch.distributed.checkpoint.planner import (SavePlan, TensorWriteData, WriteItem,
                                                  WriteItemType)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from safetensors.torch import save_file

from common import FIXTURES

EXAMPLES = FIXTURES.parent.parent / "examples"
CASES = ["fsdp2_4_uneven", "fsdp2_4_dim1", "mixed_dedup_4", "tp_fsdp_2x2", "plain", "noncontig",
         "dtypes", "empty_scalar", "sharded_tensor_2", "fsdp1_sharded_tensor_2", "hsdp_2x2",
         "torch231_mixed_dedup_4", "torch212_plain", "file_per_tensor_2"]


def metadata(folder):
    return FileSystemReader(folder).read_metadata()


def whole(folder, scratch):
    """The nested state dict that torch makes of a DCP folder."""
    dcp_to_torch_save(str(folder), scratch / "whole.pt")
    return torch.load(scratch / "whole.pt", weights_only=False)


def bits(tensor):
    return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def hold_same(want, got, where=""):
    assert type(want) is type(got), f"{where}: {type(want)} became {type(got)}"
    if isinstance(want, torch.Tensor):
        assert (want.dtype, want.shape) == (got.dtype, got.shape), where
        assert torch.equal(bits(want), bits(got)), f"{where}: other bytes"
    elif isinstance(want, dict):
        assert list(map(str, want)) == list(map(str, got)) or want.keys() == got.keys(), where
        for key in want:
            hold_same(want[key], got[key], f"{where}.{key}")
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got), where
        for i, (a, b) in enumerate(zip(want, got)):
            hold_same(a, b, f"{where}.{i}")
    elif hasattr(want, "getvalue"):
        assert want.getvalue() == got.getvalue(), where
    else:
        assert want == got or want != want, f"{where}: {want!r} became {got!r}"


def plain_load(folder):
    """dcp.load into tensors of its own, by the names that the metadata has."""
    found = metadata(folder)
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype)
             for key, entry in found.state_dict_metadata.items() if hasattr(entry, "size")}
    dcp.load(state, checkpoint_id=str(folder), no_dist=True)
    return state


def chunks(folder):
    return {key: sorted((tuple(c.offsets), tuple(c.sizes)) for c in entry.chunks)
            for key, entry in metadata(folder).state_dict_metadata.items()
            if hasattr(entry, "chunks")}


# ---- ranks -------------------------------------------------------------------------------------


def rank_main(rank, world, port, what, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        what(rank, world, *args)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def on_ranks(world, what, *args):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(rank_main, args=(world, port, what, args), nprocs=world,
                       start_method="fork")


def load_sharded(rank, world, folder, want, dim):
    """DTensors cut over `world` ranks: torch asks for what each needs and gets it bit-equal."""
    mesh = init_device_mesh("cpu", (world,))
    state = {}
    for key, tensor in want.items():
        cut = tensor.ndim > dim and tensor.shape[dim] > 1
        state[key] = distribute_tensor(torch.zeros_like(tensor), mesh,
                                       [Shard(dim) if cut else Replicate()])
    dcp.load(state, checkpoint_id=str(folder))
    for key, tensor in state.items():
        assert torch.equal(bits(tensor.full_tensor()), bits(want[key])), f"rank {rank}: {key}"


def made(rank, world):
    """Some of each: cut tensors, uneven and short, replicated ones of all sizes, values."""
    mesh = init_device_mesh("cpu", (world,))
    g = torch.Generator().manual_seed(7)
    state = {}
    for i, shape in enumerate([(12, 3), (5, 4), (2, 6), (9,)]):
        state[f"model.w{i}"] = distribute_tensor(torch.rand(shape, generator=g), mesh, [Shard(0)])
    for i in range(9):
        state[f"model.rep{i}"] = torch.rand(1 << i, generator=g)
    for i in range(6):
        state[f"optim.{i}.step"] = torch.tensor(float(i))
    state["groups"] = {"lr": 0.1, "betas": (0.9, 0.95)}
    state["epoch"] = 3
    return state


def save_planned(rank, world, folder, policies, program):
    sys.path.insert(0, str(EXAMPLES))
    from torch_planner import PolicySavePlanner
    for policy in policies:
        name = pathlib.Path(policy).stem
        dcp.save(made(rank, world), storage_writer=FileSystemWriter(folder / name),
                 planner=PolicySavePlanner(policy, program))
    dcp.save(made(rank, world), storage_writer=FileSystemWriter(folder / "torch"))


LAST = """
return {
  api = 1,
  about = "what is large to the largest rank, a step to the second",
  choose = function(item, holders, load)
    return item.key:find("step", 1, true) and holders[2] or holders[#holders]
  end,
}
"""


def writers(folder):
    """{(name, offset): the rank whose file it is in}."""
    return {(i.fqn, tuple(i.offset or ())): int(s.relative_path.split("_")[2])
            for i, s in metadata(folder).storage_data.items()}


# ---- checks ------------------------------------------------------------------------------------


def check_resharded(tool, folder):
    for case in CASES:
        source = FIXTURES / "dcp" / case / "ckpt"
        want, flat = whole(source, folder), plain_load(source)
        for ranks in (1, 3, 4, 7):
            out = tool.run("reshard", source, folder / f"{case}-{ranks}", "--ranks", str(ranks))
            hold_same(want, whole(out, folder), f"{case} for {ranks}")
            hold_same(flat, plain_load(out), f"{case} for {ranks}")
        for policy in ("lowest-rank", "balanced", "small-to-lowest"):
            out = tool.run("replan", source, folder / f"{case}-{policy}", "--policy", policy)
            hold_same(want, whole(out, folder), f"{case}, {policy}")


def check_chunks_are_torchs(tool, folder):
    for case in ("fsdp2_4_uneven", "fsdp2_4_dim1", "fsdp2_4"):
        source = FIXTURES / "dcp" / case / "ckpt"
        there = tool.run("reshard", source, folder / case, "--ranks", "3")
        back = tool.run("reshard", there, folder / f"{case}-4", "--ranks", "4")
        assert chunks(source) == chunks(back), case
        assert chunks(source) != chunks(there), case


def check_whole_is_cut(tool, folder):
    """What one rank had whole is cut as FSDP2 cuts: torch.chunk in dimension 0."""
    state = {f"w{rows}": torch.rand(rows, 3) for rows in (0, 1, 2, 3, 7, 8, 9, 64, 100)}
    state |= {"bias": torch.rand(5), "scale": torch.tensor(2.0), "half": torch.rand(6, 2).bfloat16()}
    save_file(state, folder / "model.safetensors")
    for ranks in (1, 2, 3, 5, 7, 8, 64):
        out = tool.run("reshard", folder / "model.safetensors", folder / str(ranks), "--ranks",
                       str(ranks))
        hold_same(dict(sorted(state.items())), dict(sorted(plain_load(out).items())))
        for key, found in chunks(out).items():
            want, at = [], 0
            for part in torch.chunk(state[key], ranks) if state[key].ndim else [state[key]]:
                rest = tuple(state[key].shape[1:])
                want.append(((at,) + (0,) * len(rest), tuple(part.shape)) if state[key].ndim
                            else ((), ()))
                at += part.shape[0] if part.ndim else 0
            if state[key].ndim and 0 < len(want) < ranks and at:  # those left with nothing
                want.append(((at,) + (0,) * len(rest), (0, *rest)))
            assert found == sorted(want) or not state[key].numel(), (key, ranks, found, want)


def check_dtensors(tool, folder):
    for case, dim in (("fsdp2_4_uneven", 0), ("fsdp2_4_dim1", 1)):
        source = FIXTURES / "dcp" / case / "ckpt"
        want = plain_load(source)
        for ranks in (4, 3):
            out = tool.run("reshard", source, folder / f"{case}-{ranks}", "--ranks", str(ranks),
                           "--policy", "balanced")
            for world in (4, 2):
                on_ranks(world, load_sharded, out, want, dim)


def check_rank_files_to_dcp(tool, folder):
    source = EXAMPLES / "checkpoints" / "olmo-4-ranks"
    out = tool.run("convert", source, folder / "dcp", "--to", "dcp", "--ranks", "4")
    flat = tool.run("convert", source, folder / "flat")
    from safetensors.torch import load_file
    want = load_file(flat / "tensors.safetensors")
    got = plain_load(out)
    assert want.keys() == got.keys()
    for key in want:
        assert torch.equal(bits(want[key]), bits(got[key])), key
    nested = whole(out, folder)
    name = next(key for key in want if key.startswith("model."))[len("model."):]
    assert torch.equal(bits(nested["model"][name]), bits(want["model." + name]))
    on_ranks(4, load_sharded, out, want, 0)


def check_live_policies(tool, folder):
    own = folder / "last.lua"
    own.write_text(LAST)
    on_ranks(4, save_planned, folder, ["lowest-rank", "balanced", str(own)], tool.binary)
    saved = {name: writers(folder / name) for name in ("lowest-rank", "balanced", "last",
                                                        "torch")}
    assert saved["balanced"] == saved["torch"], "balanced is torch's own rule"
    for (name, at), rank in saved["lowest-rank"].items():
        cut = name.startswith("model.w")
        assert rank == 0 or cut, f"lowest-rank: {name} on {rank}"
    for (name, at), rank in saved["last"].items():
        cut = name.startswith("model.w")
        assert cut or rank == (1 if name.endswith("step") else 3), f"last: {name} on {rank}"
    cuts = {k: r for k, r in saved["torch"].items() if k[0] in ("model.w0", "model.w1")}
    assert all(cuts[k] == saved["last"][k] for k in cuts)
    want = plain_load(folder / "torch")
    for name in ("lowest-rank", "balanced", "last"):
        hold_same(want, plain_load(folder / name), name)
    # afterwards, from the files alone, the same answers
    for name, policy in (("torch", "lowest-rank"), ("lowest-rank", "balanced"),
                         ("balanced", str(own))):
        out = tool.run("replan", folder / name, folder / f"re-{name}", "--policy", policy)
        told, now = saved[pathlib.Path(policy).stem], writers(out)
        # who was left with nothing of a short tensor is not to be seen from outside
        short = {k for k in told if k[0] == "model.w2" and k[1] == (2, 0)}
        assert told.keys() == now.keys() and len(short) == 1
        assert all(now[k] == told[k] for k in told.keys() - short), (name, policy)
        hold_same(want, plain_load(out), f"{name} replanned")


def random_plans(seed):
    """What ranks want to save: cut, whole, empty tensors and values, each of some of the ranks."""
    chance = random.Random(seed)
    world = chance.choice([1, 2, 3, 4, 8, 9, 16, 24, 64, 130])
    items = []
    for number in range(chance.randint(1, 60)):
        size = [chance.randint(1, 9) for _ in range(chance.randint(0, 3))]
        kind = chance.choice(["value", "empty", "cut", "whole", "whole"])
        if kind == "empty" and size:
            size[0] = 0
        cuts = [0, chance.randint(1, size[0]), size[0]] if kind == "cut" and size else None
        for begin, end in zip(cuts, cuts[1:]) if cuts else [(0, size[0] if size else 0)]:
            at, part = [0] * len(size), list(size)
            if size:
                at[0], part[0] = begin, end - begin
            data = TensorWriteData(
                ChunkStorageMetadata(torch.Size(at), torch.Size(part)),
                TensorProperties(dtype=chance.choice([torch.float32, torch.bfloat16, torch.int64])),
                torch.Size(size))
            value = kind == "value"
            item = WriteItem(
                MetadataIndex(f"k{number}", None if value else torch.Size(at)),
                WriteItemType.BYTE_IO if value else WriteItemType.SHARD, None,
                None if value else data)
            items.append((item, chance.sample(range(world), chance.randint(1, world))))
    return [SavePlan([item for item, ranks in items if rank in ranks]) for rank in range(world)]


def check_random_plans(tool, folder):
    """`place` gives what torch's own functions give: sizes, and who comes first of equals."""
    sys.path.insert(0, str(EXAMPLES))
    from torch_planner import PolicySavePlanner
    for seed in range(60):
        plans = random_plans(seed)
        for policy in ("balanced", "lowest-rank"):
            torchs = dedup_save_plans(plans, policy == "lowest-rank")
            planner = PolicySavePlanner(policy, tool.binary)
            for rank, (want, got) in enumerate(zip(torchs, planner.deduplicate(plans))):
                assert want.items == got.items, (seed, policy, rank)


def check_half_a_million_items(tool, folder):
    items = [{"key": f"layers.{t}.weight", "kind": "tensor", "bytes": 65536,
              "whole_bytes": 512 * 65536, "holders": [c % 256, c % 256 + 256]}
             for t in range(900) for c in range(512)]
    request = json.dumps({"schema": "ckptflow.place/1", "items": items})
    for policy in ("balanced", "lowest-rank"):
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([tool.binary, "place", "--policy", policy], input=request,
                              capture_output=True, text=True, check=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        keepers = json.loads(done.stdout)["keepers"]
        assert len(keepers) == 460800 and all(k in i["holders"] for k, i in zip(keepers, items))
        assert took < 3, f"{policy}: {took:.1f} s of CPU"


def checks():
    yield "DCP: resharded and replanned, torch loads the same", check_resharded
    yield "DCP: chunks are those of FSDP2", check_chunks_are_torchs
    yield "DCP: what was whole on one rank is cut", check_whole_is_cut
    yield "DCP: DTensors on as many ranks, and on others", check_dtensors
    yield "DCP: from rank files", check_rank_files_to_dcp
    yield "DCP: a Lua policy plans real saves on 4 ranks", check_live_policies
    yield "place: torch's own answers to random plans", check_random_plans
    yield "place: 460,800 items", check_half_a_million_items
