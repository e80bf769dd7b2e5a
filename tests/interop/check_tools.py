"""The frameworks' own merge tools on the same checkpoints, made here: both must say the same.
A framework that is not installed is skipped, by name."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import types

import torch

import check_deepspeed
import check_olmo_kinds
import check_recipes
import common

BENCH = common.FIXTURES.parent / "bench"
sys.path.append(str(BENCH))
import olmo_unshard

os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # OLMo's and DeepSpeed's tools expect it


def quietly(call, *arguments, **options):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return call(*arguments, **options)


def model_of(out):
    return {key[6:]: t for key, t in common.written(out, "model").items()}


def described(tensors):
    return {key: common.described(tensor.detach()) for key, tensor in tensors.items()}


# ---- DeepSpeed ---------------------------------------------------------------------------------


def check_zero_to_fp32(options, tool, folder):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as merge

    check_deepspeed.write(folder / "in/global_step7", **options)
    (folder / "in/latest").write_text("global_step7")
    theirs = quietly(merge, str(folder / "in"))
    ours = model_of(tool.run("unshard.lua", folder / "in", folder / "out"))
    common.hold_tensors(described(theirs), ours)


def check_universal(options, tool, folder):
    """A grid through ds_to_universal: what it wrote against what we read in its input, and ours of
    its output."""
    from deepspeed.checkpoint import ds_to_universal

    where = folder / "in/global_step7"
    check_deepspeed.write(where, adam=True, **options)
    (folder / "in/latest").write_text("global_step7")
    arguments = types.SimpleNamespace(
        input_folder=str(where), output_folder=str(folder / "universal"), num_extract_workers=1,
        num_merge_workers=1, keep_temp_folder=False, strict=False, inject_missing_state=False,
    )
    quietly(ds_to_universal.main, arguments)
    ours = common.written(tool.run("unshard.lua", folder / "in", folder / "out"))
    for key, (dtype, shape, data) in ours.items():
        if key.endswith(".step"):
            continue
        role, name = key.split(".", 1)
        name, state = (name, "fp32") if role == "model" else name.rsplit(".", 1)
        theirs = torch.load(folder / "universal/zero" / name / f"{state}.pt", weights_only=False)
        assert (dtype, shape, data) == common.described(theirs["param"].contiguous()), key
    again = common.written(tool.run("unshard.lua", folder / "universal", folder / "again"))
    for key, tensor in again.items():
        if key in ours and not key.endswith(".step"):
            assert tensor == ours[key], key
    assert {k for k in ours if k.startswith("model.")} <= set(again), "a parameter is lost"


# ---- accelerate, Lightning ---------------------------------------------------------------------


def check_accelerate(tool, folder):
    import torch.distributed.checkpoint as dcp
    from accelerate.utils.fsdp_utils import merge_fsdp_weights

    state = {"a.weight": torch.randn(5, 3), "b.bias": torch.randn(7).bfloat16(), "n": torch.tensor(3)}
    quietly(dcp.save, {"model": state}, checkpoint_id=str(folder / "in/pytorch_model_fsdp_0"))
    quietly(merge_fsdp_weights, str(folder / "in/pytorch_model_fsdp_0"), str(folder / "theirs"))
    theirs, _ = common.read_safetensors(folder / "theirs/model.safetensors")
    common.hold_tensors(theirs, model_of(tool.run("unshard.lua", folder / "in", folder / "out")))
    common.hold_tensors(described(state), theirs)


def check_lightning(tool, folder):
    import torch.distributed.checkpoint as dcp
    from lightning.fabric.utilities.load import _load_distributed_checkpoint

    state = {"layer.weight": torch.randn(4, 3), "layer.bias": torch.randn(4)}
    quietly(dcp.save, {"model": state}, checkpoint_id=str(folder / "in"))
    torch.save({"epoch": 3, "hyper_parameters": {"lr": 0.1}}, folder / "in/meta.pt")
    theirs = quietly(_load_distributed_checkpoint, folder / "in")
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold_tensors(described(theirs["model"]), model_of(out))
    values = json.loads((out / "train.json").read_text())
    assert values["epoch"] == theirs["epoch"] == 3 and values["hyper_parameters.lr"] == 0.1, values


# ---- fairscale ---------------------------------------------------------------------------------


def check_fairscale(tool, folder):
    """Two instances over three shards, the last of them padded."""
    from fairscale.nn.data_parallel import FullyShardedDataParallel as FSDP

    whole = {"": {"emb.weight": torch.randn(5, 3)}, "layer": {"w": torch.randn(4, 2), "b": torch.randn(3)}}
    weights, metadata = [{} for _ in range(3)], [{"param_metadata": [], "buffer_names": []} for _ in range(3)]
    for path, tensors in whole.items():
        flat = torch.cat([t.reshape(-1) for t in tensors.values()])
        each = -(-len(flat) // 3)
        for rank in range(3):
            part = flat[rank * each : rank * each + each]
            padding = each - len(part)
            prefix = path + "." if path else ""
            weights[rank][prefix + "flat_param_0"] = torch.cat([part, part.new_zeros(padding)])
            params = {
                "names": list(tensors), "shapes": [t.shape for t in tensors.values()],
                "numels": [t.numel() for t in tensors.values()], "padding": padding,
            }
            metadata[rank]["param_metadata"].append(
                {"fsdp_path": path, "params": {"flat_param_0": params},
                 "no_broadcast_optim_state": False, "shared_param_info": []}
            )
    (folder / "in").mkdir()
    for rank in range(3):
        torch.save({"model": weights[rank], "shard_metadata": metadata[rank]},
                   folder / f"in/checkpoint_last-model_part-0-shard{rank}.pt")
    theirs = FSDP.consolidate_shard_weights(weights, metadata, with_module_buffers=False)
    common.hold_tensors(described(theirs), model_of(tool.run("unshard.lua", folder / "in", folder / "out")))


# ---- OLMo, transformers ------------------------------------------------------------------------


def check_unsharder(world, old, tool, folder):
    """OLMo's LocalShardedCheckpointer on both layouts of torch."""
    olmo_unshard.import_olmo()
    from olmo.checkpoint import LocalShardedCheckpointer

    check_olmo_kinds.write_local(folder / "in", world, old)
    for path in (folder / "in/optim").iterdir():  # OLMo has no state for what a rank does not hold
        optim = torch.load(path, weights_only=False)
        for states in optim["state"].values():
            if states["exp_avg"].numel() == 0:
                del states["exp_avg"]
        torch.save(optim, path)
    reader = LocalShardedCheckpointer.__new__(LocalShardedCheckpointer)
    reader.thread_count = 1
    reader._load_metadata = lambda *_, **__: types.SimpleNamespace(world_size=world)
    model, optim, _ = reader.unshard_checkpoint(str(folder / "in"))
    want = {f"model.{key}": tensor for key, tensor in model.items()}
    for group in optim["param_groups"]:
        for id_, name in zip(group["params"], group["param_names"]):
            for state, tensor in optim["state"][id_].items():
                want[f"optim.{name}.{state}"] = tensor
    common.hold(want, tool.run("unshard.lua", folder / "in", folder / "out"))


def check_legacy_unsharder(tool, folder):
    """OLMo's TorchLegacyShardedCheckpointer on what tests/bench/generate.py writes."""
    ranks = [sys.executable, BENCH / "generate.py", folder / "in", "--ranks", "3", "--size", "2MiB"]
    subprocess.run(ranks, check=True)
    olmo_unshard.import_olmo()
    olmo_unshard.unshard(folder / "in", folder / "theirs", "torch")
    for to in ("torch", "safetensors"):
        out = tool.run("unshard.lua", folder / "in", folder / to, "--to", to)
        # the random states are left out by OLMo, and what is in train.pt has that in its keys
        tool.same(folder / "theirs", out, "--rename", "train.*=*", "--exclude", "rng.*")


def check_transformers(recipe, tool, folder):
    """transformers loads what the recipe wrote, every weight in its place."""
    import transformers

    if recipe == "llama_to_hf":
        check_recipes.check_llama(tool, folder)
    else:
        check_recipes.check_olmo({"kv": 2} if recipe == "olmo2" else {"after": False, "norms": False}, tool, folder)
    model, told = quietly(
        transformers.AutoModelForCausalLM.from_pretrained, folder / "hf", output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"], told
    file, _ = common.read_safetensors(folder / "hf/model.safetensors")
    common.hold_tensors(file, {k: t for k, t in described(model.state_dict()).items() if k in file})


def check_olmo_forward(tool, folder):
    """The same logits from OLMo's own model and from transformers', of a random OLMo 2."""
    import transformers

    olmo = olmo_unshard.import_olmo()
    config = olmo.ModelConfig(
        d_model=32, n_heads=4, n_kv_heads=2, n_layers=2, mlp_hidden_size=128, vocab_size=50,
        embedding_size=52, max_sequence_length=16, rope=True, rope_theta=10000, activation_type="swiglu",
        block_type="sequential", layer_norm_type="rms", layer_norm_with_affine=True, norm_after=True,
        attention_layer_norm=True, attention_layer_norm_with_affine=True, bias_for_layer_norm=False,
        include_bias=False, weight_tying=False, attention_dropout=0.0, residual_dropout=0.0,
        embedding_dropout=0.0, init_device="cpu", layer_norm_eps=1e-6, eos_token_id=3, pad_token_id=1,
    )
    model = olmo.OLMo(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "ln_f" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    (folder / "in").mkdir()
    torch.save(model.state_dict(), folder / "in/model.pt")
    text = ["model:"]
    for key, value in config.asdict().items():
        plain = json.dumps(value) if value is None or isinstance(value, bool) else value
        text.append(f"  {key}: {plain}")
    (folder / "in/config.yaml").write_text("\n".join(text) + "\n")
    out = tool.run("olmo_to_hf", folder / "in", folder / "hf")
    theirs = quietly(transformers.AutoModelForCausalLM.from_pretrained, out).eval()
    tokens = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        want, got = model(tokens).logits, theirs(tokens).logits
    assert torch.allclose(want, got, atol=1e-5), (want - got).abs().max()


CHECKS = [
    ("deepspeed", "zero_to_fp32", check_zero_to_fp32, {"stage": 2, "world": 3}),
    ("deepspeed", "zero_to_fp32", check_zero_to_fp32, {"stage": 2, "world": 5, "aligned": True}),
    ("deepspeed", "zero_to_fp32", check_zero_to_fp32, {"stage": 3, "world": 3}),
    ("deepspeed", "ds_to_universal", check_universal, {"stage": 1, "world": 2, "tp": 2}),
    ("deepspeed", "ds_to_universal", check_universal, {"stage": 1, "world": 3, "tp": 2, "pp": 2}),
    ("accelerate", "merge-weights", check_accelerate),
    ("lightning", "fabric's loader", check_lightning),
    ("fairscale", "consolidate_shard_weights", check_fairscale),
    ("olmo", "unsharder of torch_legacy", check_legacy_unsharder),
    ("olmo", "unsharder of local, torch 2.1", check_unsharder, 3, False),
    ("olmo", "unsharder of local, torch 2.0", check_unsharder, 3, True),
    ("transformers", "loads olmo2", check_transformers, "olmo2"),
    ("transformers", "loads olmo", check_transformers, "olmo"),
    ("transformers", "loads llama_to_hf", check_transformers, "llama_to_hf"),
    ("olmo", "the same logits as transformers", check_olmo_forward),
]


def checks():
    for package, name, check, *options in CHECKS:
        if importlib.util.find_spec(package) is None:
            print(f"skip  {package}: {name} (not installed)", flush=True)
            continue
        yield (
            f"{package}: {name} {' '.join(map(str, options))}".rstrip(),
            lambda *with_, check=check, options=options: check(*options, *with_),
        )
