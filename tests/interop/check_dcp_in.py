"""DCP in: what torch itself writes in every way that it has (FSDP2, tensor parallel, ShardedTensor,
uneven and empty cuts, all dtypes, views, optimizers, bytes, threads, extensions, planners, async,
no_dist, without collectives, Hugging Face storage) is converted, and held against torch's own load:
tensors bit-equal, values equal, and the same nested dict in a torch file."""

import contextlib
import dataclasses
import datetime
import io
import json
import pathlib
import shutil
import subprocess

import numpy
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed._shard.sharded_tensor import Shard as OldShard, ShardedTensor
from torch.distributed.checkpoint import (
    DefaultSavePlanner,
    FileSystemReader,
    FileSystemWriter,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import common
from check_dcp import bits, hold_same, on_ranks, plain_load, whole

try:
    from torch.distributed.checkpoint._extension import ZStandard
    import zstandard  # noqa: F401
except ImportError:
    ZStandard = None


# ---- what is saved -----------------------------------------------------------------------------


def filled(shape, dtype, seed=0):
    """Every bit pattern may come, NaNs with payloads too."""
    g = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).element_size()
    n = 1
    for s in shape:
        n *= s
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    raw = torch.randint(0, 256, (max(n * size, 1),), dtype=torch.uint8, generator=g)[: n * size]
    return raw.view(dtype).reshape(shape)


PLAIN = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
         torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
         torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
         torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def dtypes():
    state = {}
    for dtype in PLAIN + [torch.complex128, torch.complex32]:
        name = str(dtype).split(".")[1]
        state[f"d.{name}"] = filled((3, 5), dtype, 1)
        state[f"d.{name}.none"] = filled((0, 2), dtype)
        state[f"d.{name}.one"] = filled((), dtype, 2)
        state[f"d.{name}.turned"] = filled((4, 6), dtype, 3).t()
    return state


def views():
    base = torch.arange(4 * 5 * 6, dtype=torch.float32).reshape(4, 5, 6)
    spin = torch.complex(torch.rand(4, 3), torch.rand(4, 3))
    tied = torch.rand(7, 3)
    return {
        "turned": base.permute(2, 0, 1),
        "part": base[1:3, ::2, 3:],
        "last": base.reshape(-1)[100:],
        "column": base[:, 2, 3],
        "spread": torch.arange(5.0).expand(3, 5),
        "channels": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "deep": torch.rand(2, 1, 3, 1, 2, 2).permute(5, 0, 3, 2, 1, 4),
        "conj": spin.conj(),
        "conj_turned": spin.t().conj(),
        "negative": spin.conj().imag,
        "parameter": torch.nn.Parameter(torch.rand(3, 2)),
        "tied": {"a": tied, "b": tied, "c": tied[2:5]},
        "scalar": base[3, 4, 5],
        "bits": filled((9, 2), torch.bfloat16, 5)[::4],
    }


@dataclasses.dataclass
class Progress:
    step: int
    loss: float


def values():
    return {
        "epoch": 3,
        "big": 2**70,
        "negative": -(2**63),
        "nan": float("nan"),
        "zero": -0.0,
        "text": "na\u00efve \u2028 \U0001f600",
        "none": None,
        "bytes": b"\x00\xff",
        "complex": 1 - 2j,
        "set": {1, 2, 3},
        "tuple": (1, (2.5, "x"), [None, True]),
        "empty": {"list": [], "tuple": ()},
        "in_tuple": (torch.arange(3), {"deep": torch.ones(2, dtype=torch.bfloat16)}),
        "list": [torch.zeros(2), {"lr": 0.1, "w": torch.arange(4)}, 7],
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "array": numpy.arange(6, dtype=numpy.int16).reshape(2, 3),
        "number": numpy.float32(0.25),
        "when": datetime.datetime(2026, 12, 1, 4, 30),
        "path": pathlib.PurePosixPath("/scratch/run"),
        "rng": torch.get_rng_state(),
        "keys": {1: {"a": 1}, 2: {"a": 2}},
        "odd": {"with space": torch.ones(1), "with/slash": 1, "\u00fc": torch.ones(2),
                "long" * 80: torch.arange(2)},
    }


def optimized(flat, kind):
    """A model on FSDP2 that has taken steps, and its optimizer."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.LayerNorm(11),
                                torch.nn.Linear(11, 5, bias=False))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    ranges = [{"params": list(model[0].parameters()), "lr": 0.1}, {"params": [
        *model[1].parameters(), *model[2].parameters()], "lr": 0.01}]
    optim = {
        "adamw": lambda: torch.optim.AdamW(ranges, amsgrad=True),
        "sgd": lambda: torch.optim.SGD(ranges, momentum=0.9, nesterov=True),
        "adagrad": lambda: torch.optim.Adagrad(ranges),
    }[kind]()
    for _ in range(2):
        model(torch.rand(4, 7)).sum().backward()
        optim.step()
        optim.zero_grad()
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    states = get_state_dict(model, optim, options=options)
    return {"model": states[0], "optim": states[1], "scheduler": {"last_epoch": 2, "_step": 3}}


def tensor_parallel():
    """TP inside FSDP2: strided shards, and sizes that neither divides."""
    torch.manual_seed(4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 7))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return {"model": model.state_dict()}


def cut(full, mesh, places):
    """What each rank has of a tensor; scatter knows neither float8 nor int16."""
    shape, at = compute_local_shape_and_global_offset(full.shape, mesh, places)
    local = full
    for d, (begin, size) in enumerate(zip(at, shape)):
        local = local.narrow(d, min(begin, full.shape[d]), size)
    return DTensor.from_local(local.clone(), mesh, places, run_check=False, shape=full.shape,
                              stride=full.stride())


def cuts(cut=cut):
    """Shards on every dimension, grids, replicas, ranks that have nothing, submeshes."""
    world = dist.get_world_size()
    line = init_device_mesh("cpu", (world,))
    grid = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    state = {}
    for i, (shape, dim) in enumerate([((13, 3), 0), ((3, 13), 1), ((2, 5), 0), ((1,), 0), ((0, 4), 0),
                                      ((2, 3, 9), 2), ((4, 2, 2, 3), 1), ((9,), 0)]):
        for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
            name = f"cut{i}.{str(dtype).split('.')[1]}"
            state[name] = cut(filled(shape, dtype, i), line, [Shard(dim)])
    for i, (shape, places) in enumerate([((7, 6), [Shard(0), Shard(1)]), ((9, 5), [Shard(1), Shard(0)]),
                                         ((11, 2), [Shard(0), Shard(0)]), ((6, 6), [Replicate(), Shard(1)]),
                                         ((5, 4), [Shard(0), Replicate()]), ((3,), [Replicate(), Replicate()])]):
        state[f"grid{i}"] = cut(filled(shape, torch.int32, 9 + i), grid, places)
    state["turned"] = cut(filled((8, 6), torch.int16, 3).t(), line, [Shard(0)])
    state["turned_deep"] = cut(filled((8, 6, 5), torch.int16, 3).permute(2, 0, 1), line, [Shard(1)])
    state["whole"] = filled((3, 3), torch.float64, 8)
    state["steps"] = {f"{i}": torch.tensor(float(i)) for i in range(9)}
    state[f"rank{dist.get_rank()}"] = {"rng": filled((4,), torch.uint8, dist.get_rank()), "at": dist.get_rank()}
    pair = DeviceMesh("cpu", list(range(world // 2)))
    if dist.get_rank() < world // 2:
        state["half"] = cut(filled((5, 2), torch.float64, 4), pair, [Shard(0)])
    return state


def sharded():
    """ShardedTensors: rows, a grid, and several shards a rank."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def tensor(size, boxes):
        full = filled(size, torch.int32, sum(size))
        mine = []
        for i, (at, shape) in enumerate(boxes):
            if i % world == rank:
                part = full
                for d, (a, n) in enumerate(zip(at, shape)):
                    part = part.narrow(d, a, n)
                mine.append(OldShard.from_tensor_and_offsets(part.contiguous().clone(), list(at), rank))
        return ShardedTensor._init_from_local_shards(mine, *size)

    return {
        "rows": tensor((10, 3), [((0, 0), (3, 3)), ((3, 0), (3, 3)), ((6, 0), (3, 3)), ((9, 0), (1, 3))]),
        "grid": tensor((6, 7), [((0, 0), (4, 3)), ((0, 3), (4, 4)), ((4, 0), (2, 3)), ((4, 3), (2, 4))]),
        "many": tensor((9,), [((i,), (1,)) for i in range(9)]),
        "note": "three",
    }


class Unflattened(DefaultSavePlanner):
    def __init__(self):
        super().__init__(flatten_state_dict=False)


# ---- saving ------------------------------------------------------------------------------------


def state_of(name):
    return {
        "dtypes": dtypes,
        "views": views,
        "values": values,
        "cuts": cuts,
        "sharded": sharded,
        "tensor_parallel": tensor_parallel,
        "adamw": lambda: optimized(False, "adamw"),
        "adamw_flat": lambda: optimized(True, "adamw"),
        "sgd": lambda: optimized(False, "sgd"),
        "adagrad": lambda: optimized(True, "adagrad"),
        "mixed": lambda: {**cuts(), "train": {"step": 7, "lr": [0.1, 0.2]}},
    }[name]()


def save(rank, world, folder, jobs):
    torch.manual_seed(1)
    for name, state, writer, more in jobs:
        with contextlib.redirect_stderr(io.StringIO()):
            more = dict(more)
            if more.pop("unflattened", False):
                more["planner"] = Unflattened()
            if more.pop("lowest", False):
                more["planner"] = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
            made = state_of(state)
            storage = FileSystemWriter(folder / name, **writer)
            if more.pop("wait", False):
                dcp.async_save(made, storage_writer=storage, **more).result()
            else:
                dcp.save(made, storage_writer=storage, **more)
        dist.barrier()


SAVES = [ # name, state, FileSystemWriter's arguments, dcp.save's
    ("cuts", "cuts", {}, {}),
    ("cuts_threads", "cuts", {"thread_count": 3}, {}),
    ("cuts_files", "cuts", {"single_file_per_rank": False}, {}),
    ("cuts_lowest", "cuts", {"sync_files": False}, {"lowest": True}),
    ("cuts_async", "cuts", {}, {"wait": True}),
    ("cuts_over", "cuts", {}, {}),
    ("sharded", "sharded", {}, {}),
    ("adamw", "adamw", {}, {}),
    ("adamw_flat", "adamw_flat", {"thread_count": 2}, {}),
    ("sgd", "sgd", {}, {}),
    ("adagrad", "adagrad", {}, {}),
    ("mixed", "mixed", {}, {}),
    ("cuts_unflattened", "cuts", {}, {"unflattened": True}),
]


def hold(tool, source, folder):
    """Tensors and values of `convert`, and the nested dict of its torch file, against torch's."""
    tensors = plain_load(source)
    out = tool.run("convert", source, folder / f"{source.name}-flat", "--replicas", "compare")
    got = common.read_safetensors(out / "tensors.safetensors")[0] if tensors else {}
    common.hold_tensors({key: common.described(t) for key, t in tensors.items()}, got)
    nested = whole(source, folder)
    out = tool.run("convert", source, folder / f"{source.name}-nested", "--to", "torch")
    mine = torch.load(out / "checkpoint.pt", weights_only=True)
    said = json.loads((out / "values.json").read_text()) if (out / "values.json").exists() else {}
    hold_nested(nested, mine, source.name)
    return nested, said


def hold_nested(want, got, where):
    """What weights_only=True takes is the same; what it does not is missing or in values.json."""
    for key in got:
        assert key in want, f"{where}: {key!r} is new"
        if isinstance(want[key], dict):
            hold_nested(want[key], got[key], f"{where}.{key}")
        elif isinstance(want[key], torch.Tensor):
            hold_same(want[key].detach(), got[key].detach(), f"{where}.{key}")
    for key, value in want.items():
        assert key in got or not isinstance(value, torch.Tensor), f"{where}: {key!r} is missing"


# ---- checks ------------------------------------------------------------------------------------


def check_alone(tool, folder):
    for name in ("dtypes", "views", "values"):
        for more in ({}, {"planner": Unflattened()}):
            source = folder / f"{name}{len(more)}"
            dcp.save(state_of(name), checkpoint_id=str(source), no_dist=True, **more)
            hold(tool, source, folder)


def check_values(tool, folder):
    source = folder / "values"
    dcp.save(values(), checkpoint_id=str(source), no_dist=True)
    out = tool.run("convert", source, folder / "out")
    said = json.loads((out / "values.json").read_text())
    inside = common.read_safetensors(out / "values.safetensors")[0]
    reader = FileSystemReader(source)
    flat = {key: io.BytesIO() for key, entry in reader.read_metadata().state_dict_metadata.items()
            if not hasattr(entry, "size")}
    keys = list(flat)
    dcp.load(flat, storage_reader=reader, no_dist=True)
    used = common.hold_values({key: flat[key] for key in keys}, said, inside)
    assert used == inside.keys()


def check_ranks(tool, folder):
    on_ranks(4, save, folder, SAVES)
    on_ranks(2, save, folder, [("cuts_over", "cuts", {}, {})]) # a narrower save over a wider one
    for name, _, _, _ in SAVES:
        hold(tool, folder / name, folder)


def check_tensor_parallel(tool, folder):
    on_ranks(4, save, folder, [("tp", "tensor_parallel", {}, {})])
    hold(tool, folder / "tp", folder)


def check_torchtitan(tool, folder):
    """The model at the top, its optimizer flattened, the trainer's own beside them; step-<N> or the
    folder that it is in."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    states = get_state_dict(model, optimizer, options=flat)[1]
    step = {"step": torch.tensor(7), "global_avg_losses": io.BytesIO(b"losses")}
    dcp.save({**model.state_dict(), "optimizer": states, "train_state": step,
              "lr_scheduler": {"last_epoch": 7}, "dataloader": {"world_size": 1, "dp_rank_0": b"at 9"}},
             checkpoint_id=str(folder / "checkpoint" / "step-7"), no_dist=True)
    want = {name: common.described(t) for name, t in model.state_dict().items()}
    states = {name.removeprefix("state."): common.described(t) for name, t in states.items()
              if name.startswith("state.")}
    for source in (folder / "checkpoint" / "step-7", folder / "checkpoint"):
        assert tool.format(source)[0] == "torchtitan"
        out = tool.run("unshard", source, folder / f"out-{source.name}")
        common.hold_tensors(want, common.read_safetensors(out / "model.safetensors")[0])
        common.hold_tensors(states, common.read_safetensors(out / "optim.safetensors")[0])


def check_zstd(tool, folder):
    if ZStandard is None:
        return # the module that torch needs for it is not installed
    jobs = [(f"z{i}", "cuts", {"_extensions": [ZStandard()], "thread_count": 1 + i}, {}) for i in (0, 1)]
    on_ranks(4, save, folder, jobs)
    for name, _, _, _ in jobs:
        hold(tool, folder / name, folder)


def save_alone(rank, world, folder):
    dcp.save(cuts(), storage_writer=FileSystemWriter(folder), use_collectives=False)


def full(rank, world, path, make):
    """What all ranks together have, written by the first."""
    state = make(lambda full, mesh, places: full)
    if rank == 0:
        torch.save({key: t.clone() for key, t in state.items() if isinstance(t, torch.Tensor)}, path)


def check_without_collectives(tool, folder):
    on_ranks(4, save_alone, folder / "in")
    on_ranks(4, full, folder / "full.pt", cuts)
    want = torch.load(folder / "full.pt")
    out = tool.run("convert", folder / "in", folder / "out")
    got = common.read_safetensors(out / "tensors.safetensors")[0]
    common.hold_tensors({key: common.described(t) for key, t in want.items()},
                        {key: got[key] for key in want})


def hugging_face(cut=cut):
    return {key: t for key, t in cuts(cut).items() if key.startswith(("cut", "grid", "half"))}


def save_hugging_face(rank, world, folder):
    made = hugging_face()
    names = {key: 1 + i % 2 for i, key in enumerate(sorted(made)) if key != "half"}
    names["half"] = 3 # of which two ranks have nothing
    for name, index, more in (("one", None, {}), ("two", names, {})):
        dcp.save(made, storage_writer=HuggingFaceStorageWriter(
            str(folder / name), fqn_to_index_mapping=index, save_distributed=True, **more))


def check_hugging_face(tool, folder):
    on_ranks(4, save_hugging_face, folder)
    on_ranks(4, full, folder / "full.pt", hugging_face)
    want = torch.load(folder / "full.pt")
    for name in ("one", "two"):
        out = tool.run("convert", folder / name, folder / f"{name}-out")
        got = common.read_safetensors(out / "tensors.safetensors")[0]
        common.hold_tensors({key: common.described(t) for key, t in want.items()}, got)
        assert "a rank behind them would not be missed" in tool.format(folder / name)[1]
        parts = sorted((folder / name).glob("shard-00002-*"))
        for part in parts:
            part.unlink()
            tool.refused(folder / name, "E_COVERAGE")
    for part in (folder / "two").glob("*-00003-of-00003.safetensors"):
        part.unlink()
    tool.refused(folder / "two", "E_MISSING_FILE", "part 3 of 3")


def check_one_row(tool, folder):
    """A row of a tensor is read as that row, beside what opening its item takes."""
    source = folder / "in"
    dcp.save({"w": filled((1000, 256), torch.float32, 1)}, checkpoint_id=str(source), no_dist=True)
    recipe = folder / "row.lua"
    recipe.write_text("""
return {
  api = 1,
  about = "one row",
  plan = function(cat, plan)
    plan:write("row.safetensors", { row = cat:find("w").view:slice(700, 701) })
    plan:drop(cat, "a row is enough")
  end,
}
""")
    done = subprocess.run([tool.binary, "plan", recipe, source, "--json"], capture_output=True,
                          text=True, check=True)
    plan = json.loads(done.stdout)
    out = tool.run(recipe, source, folder / "out")
    got = common.read_safetensors(out / "row.safetensors")[0]
    assert got["row"][2] == bits(plain_load(source)["w"][700:701]).numpy().tobytes()
    assert (plan["read"], plan["requests"]) == (1024, 1), plan
    trace = folder / "trace"
    if shutil.which("strace"):
        command = ["strace", "-f", "-e", "trace=pread64,preadv,read", "-yy", "-o", trace, tool.binary, "run",
                   recipe, source, "-o", folder / "traced", "-q"]
        subprocess.run(command, check=True, capture_output=True)
        sizes = [int(line.rsplit("= ", 1)[1]) for line in trace.read_text().splitlines()
                 if ".distcp" in line and "= " in line and not line.endswith("resumed>")]
        assert sum(sizes) < 16384, sizes


def checks():
    yield "DCP in: dtypes, views, values", check_alone
    yield "DCP in: every value, by key", check_values
    yield "DCP in: four ranks, every writer and planner", check_ranks
    yield "DCP in: TP x FSDP, strided shards that do not divide", check_tensor_parallel
    yield "DCP in: torchtitan", check_torchtitan
    yield "DCP in: zstd", check_zstd
    yield "DCP in: without collectives", check_without_collectives
    yield "DCP in: Hugging Face storage with sharding info", check_hugging_face
    yield "DCP in: one row is read as one row", check_one_row
