#!/usr/bin/env python3
"""recognise.py CKPTFLOW: which format a bare `inspect` takes a folder for, and why.

TABLE has every folder of tests/fixtures with a checkpoint in it: a new one that it lacks is a fault. Then
checkpoints under other names, look-alikes, and folders that are none of them, made here of the same files."""

import fnmatch
import json
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"

TABLE = {  # the first pattern that fits a folder: its format and the reason
    "dcp/hf_consolidated_*": ("safetensors", "model.safetensors.index.json"),
    "dcp/hf_sharded_*": ("safetensors", "*.safetensors"),
    "dcp/*": ("torch-dcp", ".metadata"),
    "olmo/composer_dcp_*": ("torch-dcp", ".metadata, Composer's folder"),
    "olmo/composer_rankfiles_*": ("composer-ranks", "ep<E>-ba<B>-rank<N>.pt"),
    "olmo/*_legacy_*": ("olmo-legacy", "rank<N>.pt with model and optim"),
    "olmo/legacy_ws3": ("olmo-legacy", "rank<N>.pt with model and optim"),
    "olmo/*_local_*": ("olmo-local", "handles of FSDP in model/rank<N>.pt"),
    "olmo/*_new_*": ("olmo-new", "model_and_optim/.metadata"),
    "olmo/*_full_*": ("olmo-full", "model.pt and what belongs to it"),
    "olmo/*_olmo_core_*": ("olmo-core", "model/metadata.json beside rank_<N>.safetensors"),
    "others/accelerate_ddp": ("hf-trainer", "optimizer.bin beside model.safetensors"),
    "others/accelerate_fsdp*": ("torch-dcp", ".metadata, accelerate's folders"),
    "others/ds_uni_*": ("deepspeed-universal", "zero/<parameter>/fp32.pt"),
    "others/ds_z3_*": ("deepspeed", "zero_pp_rank_0_mp_rank_00_model_states.pt"),
    "others/ds_*": ("deepspeed", "mp_rank_00_model_states.pt"),
    "others/dtensor_ranks": ("torch-ranks", "model_world_size_4_rank_0.pt"),
    "others/fairscale_fsdp": ("fairscale", "model_part-<M>-shard0.pt"),
    "others/hf_bin_sharded": ("hf-bin", "pytorch_model*.bin"),
    "others/hf_safetensors_sharded": ("safetensors", "model.safetensors.index.json"),
    "others/hf_trainer": ("hf-trainer", "optimizer.pt beside model.safetensors"),
    "others/lightning_file": ("torch-file", "*"),
    "others/lightning_fsdp": ("torch-dcp", ".metadata, Lightning's meta.pt beside it"),
    "others/llama_consolidated": ("llama", "params.json and consolidated.<N>.pth"),
    "others/megatron_torch_dist": ("megatron-dist", "metadata.json names a sharded_backend"),
    "others/megatron_tp2_pp2": ("megatron", "mp_rank_<TP>/model_optim_rng.pt"),
    "others/nanotron_tp2": ("nanotron", "checkpoint_metadata.json and model/"),
    "others/numpy_npz_deflated": ("numpy", "deflated.npz"),
    "others/numpy_npz_stored": ("numpy", "stored.npz"),
    "others/torch_legacy": ("torch-file", "ck.pt"),
    "others/torch_zip": ("torch-file", "ck.pt"),
    "others/torchscript": ("torchscript", "scripted.pt holds a module"),
    "secure/ctl-dcp": ("torch-dcp", ".metadata"),
    "secure/ctl-hf": ("safetensors", "model.safetensors.index.json"),
    "secure/ctl-rank": ("rank-files", "model/rank<N>.pt"),
    "secure/ctl-st*": ("safetensors", "*.safetensors"),
    "secure/ctl-*": ("torch-file", "m.pt"),
    "hf/whole": ("safetensors", "model.safetensors.index.json"),
    "ranks/whole": ("rank-files", "model/rank<N>.pt"),
}

failed = []


def inspect(ckptflow, *folders):
    done = subprocess.run([ckptflow, "inspect", *folders, "--json"], capture_output=True, text=True)
    return done.stdout or done.stderr


def expect(ckptflow, folder, name, why):
    said = inspect(ckptflow, folder)
    told = json.loads(said) if said.startswith("{") else {}
    if told.get("format") != name or not fnmatch.fnmatchcase(told.get("why", ""), why):
        failed.append(f"{folder}: {told.get('format')} ({told.get('why')}), not {name} ({why}): {said[:120]}")


def refuse(ckptflow, folder, *words):
    done = subprocess.run([ckptflow, "inspect", folder], capture_output=True, text=True)
    if done.returncode != 3 or not all(word in done.stderr for word in words):
        failed.append(f"{folder}: {done.returncode} {done.stderr}; expected {words}")


def fixtures(ckptflow):
    folders = [f for family in ("dcp", "olmo", "others") for f in (FIXTURES / family).iterdir()]
    folders += [*(FIXTURES / "secure").glob("ctl-*"), FIXTURES / "hf/whole", FIXTURES / "ranks/whole"]
    for folder in sorted(f for f in folders if f.is_dir()):
        name = folder.relative_to(FIXTURES).as_posix()
        row = next((row for pattern, row in TABLE.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if not row:
            failed.append(f"{name} is not in the table")
            continue
        expect(ckptflow, folder / "ckpt" if (folder / "ckpt").is_dir() else folder, *row)


def one(of):
    """The first file of a fixture that fits."""
    return sorted(FIXTURES.glob(of))[0]


def put(path, source=None, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    if source:
        shutil.copyfile(source, path)
    else:
        path.write_text(text)



def lone_files(ckptflow, at):
    torch, stream = one("torch/plain.pt"), one("others/torch_legacy/ckpt/ck.pt")
    tensors, arrays = one("hf/whole/*.safetensors"), one("others/numpy_npz_stored/ckpt/*.npz")
    script, module = one("others/torchscript/ckpt/*.pt"), one("torch/module.pt")
    for name, source, found in (
        ("weights", torch, ("torch-file", "weights holds a torch.save")),
        ("model.safetensors", torch, ("torch-file", "model.safetensors holds a torch.save")),
        ("old", stream, ("torch-file", "old holds a torch.save")),
        ("pytorch_model.bin", tensors, ("safetensors", "pytorch_model.bin holds safetensors")),
        ("model.ckpt", tensors, ("safetensors", "model.ckpt holds safetensors")),
        ("5f3a9c", tensors, ("safetensors", "5f3a9c holds safetensors")),
        ("arrays", arrays, ("numpy", "arrays holds npz")),
        ("scripted", script, ("torchscript", "scripted holds a module")),
        ("whole.model", module, ("torchscript", "whole.model holds a module")),
        ("pytorch_model.bin.d/pytorch_model.bin", torch, ("hf-bin", "pytorch_model*.bin")),
    ):
        put(at / "alone" / name, source)
        expect(ckptflow, at / "alone" / name, *found)  # the file itself
        folder = at / "beside" / name.replace("/", "-")
        put(folder / pathlib.Path(name).name, source)
        put(folder / "README.md", text="# weights\n")
        put(folder / "config.json", text="{}")
        expect(ckptflow, folder, *found)  # beside texts
    plain = at / "plain"
    plain.write_bytes(pickle.dumps({"step": 3, "names": ["a", "b"]}, 4))
    expect(ckptflow, plain, "torch-file", "plain holds a pickle")


def copy(fixture, to, *globs):
    for glob in globs:
        for file in (FIXTURES / fixture).glob(glob):
            if file.is_file():
                put(to / file.relative_to(FIXTURES / fixture), file)
    return to


def look_alikes(ckptflow, at):
    # Trainer's folder with DeepSpeed's in it: the weights at the top are a copy
    both = copy("others/ds_z2_w2_bf16/ckpt", at / "trainer-ds", "**/*")
    put(both / "model.safetensors", one("hf/whole/*.safetensors"))
    put(both / "trainer_state.json", text="{}")
    put(both / "rng_state_0.pth", one("torch/plain.pt"))
    expect(ckptflow, both, "deepspeed", "mp_rank_00_model_states.pt")
    # a Hugging Face folder with both kinds of weights
    both = copy("others/hf_safetensors_sharded/ckpt", at / "hf-both", "*")
    copy("others/hf_bin_sharded/ckpt", both, "*.bin", "*.bin.index.json")
    expect(ckptflow, both, "safetensors", "model.safetensors.index.json")
    # rank files of one rank: of others by what they hold
    expect(ckptflow, copy("olmo/legacy_ws3", at / "ranks", "rank*.pt"), "olmo-legacy", "rank<N>*")
    # universal and what it was made from
    both = copy("others/ds_uni_z2_w2_bf16/ckpt", at / "universal", "**/*")
    copy("others/ds_z2_w2_bf16/ckpt", both, "*/*")
    expect(ckptflow, both, "deepspeed-universal", "zero/<parameter>/fp32.pt")


def none_of_them(ckptflow, at):
    torch = one("torch/plain.pt")
    for rank in range(3):
        put(at / f"shards/w{rank}.shard", torch)
        put(at / f"suffix/rank{rank}.pth", torch)
    put(at / "shards/run.json", text="{}")
    refuse(
        ckptflow,
        at / "shards",
        "E_MAGIC: no format recognised among 4 files: w0.shard and 2 like it (torch.save), run.json (JSON)",
        f"hint: `ckptflow inspect {at}/shards/w0.shard` shows",
    )
    put(at / "llama/params.json", text="{}")
    put(at / "llama/part.1", torch)
    put(at / "llama/part.2", torch)
    refuse(ckptflow, at / "llama", "comes near llama (params.json is here, consolidated.")
    for rank in range(2):
        put(at / f"mp/mp_rank_0{rank}/model_optim_rng.pickle", torch)
    refuse(ckptflow, at / "mp", "near megatron (mp_rank_00/model_optim_rng.pickle would be here as")
    put(at / "texts/notes.txt", text="hello")
    refuse(ckptflow, at / "texts", "(text)", "`ckptflow plugins` lists the")
    (at / "empty").mkdir()
    refuse(ckptflow, at / "empty", "there are no files")
    copy("olmo/legacy_ws3", at / "runs/a/step9", "rank*.pt")
    refuse(ckptflow, at / "runs", "hint: a/step9 looks like olmo-legacy")


def main():
    ckptflow = pathlib.Path(sys.argv[1]).resolve()
    fixtures(ckptflow)
    with tempfile.TemporaryDirectory() as folder:
        for part in (lone_files, look_alikes, none_of_them):
            part(ckptflow, pathlib.Path(folder) / part.__name__)
    for line in failed:
        print("FAIL", line)
    print(f"{len(failed)} failed")
    sys.exit(len(failed) > 0)


main()
