"""Files of DTensors, one a rank, as verl names them: whose each is stands in the mesh of its DTensors,
whatever its name is."""

import shutil

import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import common

NAME = "model_world_size_4_rank_{}.pt"


def write(folder, mesh_shape):
    """Four ranks; gives the whole tensors."""
    folder.mkdir()
    whole = {"a.weight": torch.randn(7, 4), "b.bias": torch.randn(5)}
    ways = mesh_shape[-1]
    for rank in range(4):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        mesh = init_device_mesh("cpu", mesh_shape)
        places = [Replicate()] * (len(mesh_shape) - 1) + [Shard(0)]
        state = {}
        for key, tensor in whole.items():
            each = -(-len(tensor) // ways)
            begin = min(rank % ways * each, len(tensor))
            local = tensor[begin : begin + each].clone()
            shape = {"shape": tensor.shape, "stride": tensor.stride()}
            state[key] = DTensor.from_local(local, mesh, places, run_check=False, **shape)
        torch.save(state, folder / NAME.format(rank))
        torch.distributed.destroy_process_group()
    return whole


def check(mesh_shape, tool, folder):
    whole = write(folder / "in", mesh_shape)
    want = {f"model.{key}": tensor for key, tensor in whole.items()}
    names = [folder / "in" / NAME.format(rank) for rank in range(4)]
    common.hold(want, tool.run("unshard.lua", folder / "in", folder / "out"))
    names[1].rename(folder / "swapped")
    names[2].rename(names[1])
    (folder / "swapped").rename(names[2])
    common.hold(want, tool.run("unshard.lua", folder / "in", folder / "swapped-out"))
    shutil.copy(names[0], names[1])  # rank 2's file becomes another of rank 0
    tool.refused(folder / "in", "E_META_CONFLICT", "rank 0 is there twice", "a copy")
    names[1].unlink()
    whole_without = "whole without" if len(mesh_shape) > 1 else "only there are parts of 2 tensors"
    tool.refused(folder / "in", "E_MISSING_FILE", "rank 2 of world 4", whole_without)


def checks():
    for shape in ((4,), (2, 2)):
        yield f"ranks of DTensors, mesh {shape}", lambda *with_, shape=shape: check(shape, *with_)
