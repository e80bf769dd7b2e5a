"""Hugging Face layouts as their own libraries write them."""

import json

import safetensors.torch
import torch

import common


def model():
    torch.manual_seed(2)
    return {
        "model.embed_tokens.weight": torch.randn(50, 8, dtype=torch.bfloat16),
        "model.layers.0.mlp.weight": torch.randn(16, 8),
        "model.layers.0.norm.bias": torch.randn(8, dtype=torch.float16),
        "model.layers.1.scale": torch.randint(0, 256, (4, 4), dtype=torch.uint8).view(
            torch.float8_e4m3fn
        ),
        "model.steps": torch.tensor(3),
        "model.mask": torch.tensor([True, False, True]),
        "model.empty": torch.empty(0, 4),
        "lm_head.weight": torch.randn(50, 8, dtype=torch.bfloat16),
    }


def save_sharded(tensors, folder, stem, suffix, save):
    """In three files, with an index."""
    folder.mkdir()
    names = list(tensors)
    parts = [names[0::3], names[1::3], names[2::3]]
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": {}}
    for i, part in enumerate(parts):
        file = f"{stem}-{i + 1:05}-of-{len(parts):05}.{suffix}"
        save({name: tensors[name] for name in part}, folder / file)
        index["weight_map"].update(dict.fromkeys(part, file))
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")


def hold(tensors, tool, folder):
    want = {key: common.described(tensor) for key, tensor in tensors.items()}
    out = tool.run("unshard.lua", folder / "in", folder / "joined")
    got, metadata = common.read_safetensors(out / "model.safetensors")
    common.hold_tensors(want, got)
    assert metadata["format"] == "pt"
    loaded = safetensors.torch.load_file(out / "model.safetensors")
    common.hold_tensors(want, {key: common.described(tensor) for key, tensor in loaded.items()})
    out = tool.run("convert.lua", folder / "in", folder / "converted", "--to", "safetensors")
    common.hold_tensors(want, common.read_safetensors(out / "tensors.safetensors")[0])


def check_one_file(tool, folder):
    (folder / "in").mkdir()
    safetensors.torch.save_file(model(), folder / "in" / "model.safetensors", {"format": "pt"})
    hold(model(), tool, folder)


def check_sharded(tool, folder):
    def save(part, path):
        safetensors.torch.save_file(part, path, {"format": "pt"})

    save_sharded(model(), folder / "in", "model", "safetensors", save)
    hold(model(), tool, folder)


def check_bin(tool, folder):
    save_sharded(model(), folder / "in", "pytorch_model", "bin", torch.save)
    hold(model(), tool, folder)


def check_cut_again(tool, folder):
    """Joined and cut into smaller files: the index says where each tensor is."""
    (folder / "in").mkdir()
    safetensors.torch.save_file(model(), folder / "in" / "model.safetensors", {"format": "pt"})
    out = tool.run("unshard.lua", folder / "in", folder / "out", "--max-shard-size", "900")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    got = {}
    for file in set(index["weight_map"].values()):
        tensors, _ = common.read_safetensors(out / file)
        assert all(index["weight_map"][key] == file for key in tensors)
        got.update(tensors)
    common.hold_tensors({key: common.described(t) for key, t in model().items()}, got)
    assert len(set(index["weight_map"].values())) > 1
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in model().values())


def checks():
    yield "hf: one safetensors file", check_one_file
    yield "hf: sharded safetensors with an index", check_sharded
    yield "hf: sharded .bin files with an index", check_bin
    yield "hf: --max-shard-size", check_cut_again
