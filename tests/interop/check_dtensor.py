"""One torch.save of DTensors per rank, by real processes over gloo: meshes that cover all ranks,
some ranks, slices of several dimensions, and every placement torch can cut by. What is held
against is full_tensor(), which every rank that has the tensor must agree on."""

import contextlib
import io
import os
import random

import torch
import torch.multiprocessing

import common


def meshes(world):
    """Names and meshes; all ranks make all of them, in this order."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    found = {"line": init_device_mesh("cpu", (world,))}
    plane = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    found.update(plane=plane, tp=plane["tp"], dp=plane["dp"])
    found["thin"] = init_device_mesh("cpu", (1, world), mesh_dim_names=("pp", "dp"))
    found["one"] = found["thin"]["pp"]
    found["some"] = DeviceMesh("cpu", torch.tensor([1, world - 1]))
    # columns first; meshes whose groups are not sorted torch itself gathers in another order
    found["turned"] = DeviceMesh("cpu", torch.arange(world).view(2, -1).T)
    # of its own: full_tensor gathers over an axis made of two wrongly if the cuts are uneven
    found["flat"] = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))._flatten("all")
    if world == 8:
        cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        found.update(cube=cube, slab=cube["dp", "tp"], edge=cube["cp"])
        other = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        found["folded"] = other["dp", "tp"]._flatten("dp_tp")
    return found


def placements(rnd, mesh, dims):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    found = []
    for _ in range(mesh.ndim):
        kind = rnd.choice(("shard", "shard", "strided", "replicate")) if dims else "replicate"
        dim = rnd.randrange(dims) if dims else 0
        if kind == "shard":
            found.append(Shard(dim))
        elif kind == "strided" and "_StridedShard" not in str(found):
            found.append(_StridedShard(dim, split_factor=rnd.choice((2, 2, 3, 4))))
        else:
            found.append(Replicate())
    return found


def ordered(full, mesh):
    """Cut along the last axis of the mesh first, as the spec itself says."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta

    place, (row, column) = [Shard(0)] * 2, mesh.get_coordinate()
    local = full.chunk(mesh.size(1))[column].chunk(mesh.size(0))[row].clone()
    meta = TensorMeta(full.shape, full.stride(), full.dtype)
    spec = DTensorSpec(mesh, tuple(place), meta, (ShardOrderEntry(0, (1, 0)),))
    return DTensor(local, spec, requires_grad=False)


def sharded(plane, hybrid):
    """FSDP2 over tensor parallel layers, or replicated, as its state_dict has it."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = torch.nn.Sequential(torch.nn.Linear(7, 24), torch.nn.BatchNorm1d(24), torch.nn.Linear(24, 5))
    if not hybrid:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, plane["tp"], plan)
    fully_shard(model, mesh=plane if hybrid else plane["dp"])
    return model.state_dict()


def work(rank, world, folder, seed, count):
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", USE_LIBUV="0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    rnd, whole, state = random.Random(seed), {}, {}
    every = meshes(world)
    torch.manual_seed(seed)
    for n in range(count):
        name, mesh = list(every.items())[n % len(every)]
        sizes = (0, 1, 2, 3, 5, 7, 8, 12, 16)
        dims = rnd.choice((0, 1, 1, 2, 2, 3))
        places = placements(rnd, mesh, dims)
        if mesh.ndim > 1 and "_StridedShard" in str(places):
            sizes = (0, 12 * mesh.size(), 24 * mesh.size())  # uneven ones torch does not gather
        shape = [rnd.choice(sizes[: 9 if d < 2 else 3]) for d in range(dims)]
        full = torch.randn(shape).to(rnd.choice((torch.float32, torch.bfloat16)))
        key = f"{name}.{n}"
        here = mesh.get_coordinate() is not None
        state[key] = distribute_tensor(full, mesh, places, src_data_rank=None)
        whole[key] = state[key].full_tensor() if here else full
        assert whole[key].equal(full), f"torch itself: {key} {shape} {places}"
    # what a fully sharded model over tensor parallel layers has
    state["buffer"] = whole["buffer"] = torch.arange(5)
    whole["ordered"] = torch.arange(28.0).view(14, 2)
    state["ordered"] = ordered(whole["ordered"], every["plane"])
    assert state["ordered"].full_tensor().equal(whole["ordered"])
    for name, hybrid in (("fsdp_tp", False), ("hsdp", True)):
        torch.manual_seed(seed)
        for key, tensor in sharded(every["plane"], hybrid).items():
            state[f"{name}.{key}"] = tensor
            whole[f"{name}.{key}"] = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    torch.save(state, f"{folder}/in/model_world_size_{world}_rank_{rank}.pt")
    if seed == 1:
        local = torch.ones(3)
        sums = {"ok": local, "sum": DTensor.from_local(local, every["line"], [Partial()])}
        torch.save(sums, f"{folder}/partial/model_world_size_{world}_rank_{rank}.pt")
    if rank == 1:  # it is in every mesh
        torch.save(whole, f"{folder}/whole.pt")
    dist.barrier()
    dist.destroy_process_group()


def make(folder, world, seed, count):
    (folder / "in").mkdir()
    (folder / "partial").mkdir()
    with contextlib.redirect_stderr(io.StringIO()):
        torch.multiprocessing.start_processes(
            work, (world, str(folder), seed, count), nprocs=world, start_method="fork"
        )
    return torch.load(folder / "whole.pt")


def check(world, seed, count, tool, folder):
    want = make(folder, world, seed, count)
    assert tool.format(folder / "in")[0] == "torch-ranks"
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold({f"model.{key}": tensor for key, tensor in want.items()}, out, "model")
    if seed == 1:
        tool.refused(folder / "partial", "E_LAYOUT", "sum", "Partial")
    (folder / f"in/model_world_size_{world}_rank_1.pt").unlink()
    tool.refused(folder / "in", "E_MISSING_FILE", f"rank 1 of world {world}")


def older(mesh, layout):
    """A mesh as older versions of torch pickle it: with sizes, or with the tensor of ranks."""
    from torch.distributed._mesh_layout import _MeshLayout

    state = mesh.__dict__
    if layout is None:
        state["mesh"] = torch.arange(mesh.size()).view(mesh.shape)
        del state["_layout"]
        return
    state["_layout"] = object.__new__(_MeshLayout)
    state["_layout"].__dict__.update(shape=layout, stride=layout)


def check_older(tool, folder):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    whole = {name: torch.randn(7, 3) for name in ("sizes", "nested", "number", "ranks")}
    (folder / "in").mkdir()
    for rank in range(4):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        state = {}
        for name, layout in (("sizes", (2, 2)), ("nested", ((2,), (2,))), ("number", 4), ("ranks", None)):
            shape = (4,) if name == "number" else (2, 2)
            mesh = init_device_mesh("cpu", shape)
            places = [Shard(0), Shard(1)][: len(shape)]
            state[name] = distribute_tensor(whole[name], mesh, places, src_data_rank=None)
            older(mesh, layout)
        torch.save({"model": state}, folder / f"in/rank{rank}.pt")
        dist.destroy_process_group()
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold({f"model.{key}": tensor for key, tensor in whole.items()}, out, "model")


def checks():
    yield "dtensors of older torch", check_older
    for world, seed, count in ((4, 1, 90), (8, 2, 120), (6, 3, 80)):
        yield (
            f"dtensors of {world} ranks",
            lambda *with_, case=(world, seed, count): check(*case, *with_),
        )
