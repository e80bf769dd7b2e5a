"""Megatron-LM's `torch` files, laid out here as its checkpointing does, over grids of tensor,
pipeline, virtual pipeline and expert parallel ranks. What is held against is the tensors that were
cut."""

import argparse
import io

import torch

import common

HIDDEN, FFN, HEADS, GROUPS, VOCAB, LAYERS = 8, 12, 4, 2, 13, 8


def model(experts, core=True):
    """Global names, tensors, and how tensor parallel ranks cut them: a dimension, "gate", or not."""
    stem, fused = ("decoder.", "linear_") if core else ("encoder.", "")
    embedding = "embedding.word_embeddings.weight"
    state = {embedding: (torch.randn(VOCAB, HIDDEN), 0)}
    for n in range(LAYERS):
        at = f"{stem}layers.{n}."
        heads = HEADS + 2 * GROUPS if core else 3 * HEADS
        qkv = "qkv" if core else "query_key_value"
        state[f"{at}self_attention.{fused}{qkv}.weight"] = torch.randn(heads * 2, HIDDEN), 0
        state[f"{at}self_attention.{fused}{qkv}.bias"] = torch.randn(heads * 2), 0
        proj = f"{at}self_attention.linear_proj" if core else f"{at}self_attention.dense"
        state[f"{proj}.weight"] = torch.randn(HIDDEN, HEADS * 2), 1
        state[f"{proj}.bias"] = torch.randn(HIDDEN), None
        one, two = ("linear_fc1", "linear_fc2") if core else ("dense_h_to_4h", "dense_4h_to_h")
        mlps = [f"{at}mlp."]
        if experts:
            state[f"{at}mlp.router.weight"] = torch.randn(experts, HIDDEN), None
            mlps = [f"{at}mlp.experts.local_experts.{e}." for e in range(experts)]
        for mlp in mlps:
            state[f"{mlp}{one}.weight"] = torch.randn(2 * FFN, HIDDEN), "gate"
            state[f"{mlp}{two}.weight"] = torch.randn(HIDDEN, FFN), 1
    state[f"{stem}final_layernorm.weight"] = torch.randn(HIDDEN), None
    state["output_layer.weight"] = torch.randn(VOCAB, HIDDEN), 0
    return state


def slab(name, tensor, cut, tp, rank):
    if tp == 1 or cut is None:
        return tensor
    if "word_embeddings" in name or "output_layer" in name:  # padded to a multiple
        rows = -(-VOCAB // (4 * tp)) * 4 * tp
        tensor = torch.cat([tensor, tensor.new_full((rows - VOCAB, HIDDEN), -999.0)])
    if cut == "gate":
        w, v = tensor.chunk(2)
        return torch.cat([w.chunk(tp)[rank], v.chunk(tp)[rank]])
    return tensor.chunk(tp, cut)[rank].clone()


def local(name, pp, vp, stages, virtual, ep, ways, experts, stem):
    """A parameter's name on a rank, and the number of its virtual stage; nothing if it is not there."""
    parts = name.split(".")
    if name.startswith("embedding"):
        return (name, 0) if pp == 0 and vp == 0 else None
    if f"{stem}final" in name or name.startswith("output"):
        return (name, vp) if pp == stages - 1 and vp == virtual - 1 else None
    each = LAYERS // (stages * virtual)
    part, within = divmod(int(parts[2]), each)
    if part != vp * stages + pp:
        return None
    parts[2] = str(within)
    if "local_experts" in parts:
        at = parts.index("local_experts") + 1
        owner, own = divmod(int(parts[at]), experts // ways)
        if owner != ep:
            return None
        parts[at] = str(own)
    return ".".join(parts), vp


def write(folder, tp=1, pp=1, vp=1, ep=1, experts=0, core=True, version=3.0, optimizer=False):
    state = model(experts, core)
    args = argparse.Namespace(
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep, num_experts=experts or None, swiglu=True,
        vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=HEADS,
    )
    stem = "decoder." if core else "encoder."
    for t in range(tp):
        for p in range(pp):
            for e in range(ep):
                parts = [{} for _ in range(vp)]
                for v in range(vp):
                    for name, (tensor, cut) in state.items():
                        found = local(name, p, v, pp, vp, e, ep, experts, stem)
                        if not found:
                            continue
                        held = slab(name, tensor, cut, tp, t)
                        if version < 2 and "query_key_value" in name:
                            n, rest = HEADS // tp, held.shape[1:]
                            shape = (n, 3, -1, *rest)
                            order = (1, 0, 2) if version == 0 else (0, 2, 1)
                            held = held.view(shape).permute(*order, *range(3, 3 + len(rest)))
                            held = held.reshape(-1, *rest)
                        parts[v][found[0]] = held
                    parts[v]["extra._extra_state"] = io.BytesIO(b"state")
                name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
                (folder / name).mkdir(parents=True)
                root = {"args": args, "checkpoint_version": version, "iteration": 5}
                for v, part in enumerate(parts):
                    root["model" if vp == 1 else f"model{v}"] = part
                if optimizer:
                    root["optimizer"] = {"state": {0: {"exp_avg": torch.randn(3)}}}
                torch.save(root, folder / name / "model_optim_rng.pt")
    return {f"model.{name}": tensor for name, (tensor, _) in state.items()}


def check(options, tool, folder):
    want = write(folder / "in/iter_0000005", **options)
    (folder / "in/latest_checkpointed_iteration.txt").write_text("5")
    assert tool.format(folder / "in")[0] == "megatron"
    common.hold(want, tool.run("unshard.lua", folder / "in", folder / "out"), "model")


def check_faults(tool, folder):
    write(folder / "in/iter_0000005", tp=2, pp=2, optimizer=True)
    name, notes = tool.format(folder / "in")
    assert "have no names" in notes, notes
    write(folder / "in/iter_0000010", tp=2, pp=2)
    tool.refused(folder / "in", "E_META_CONFLICT", "iter_0000005/", "iter_0000010/")
    (folder / "in/latest_checkpointed_iteration.txt").write_text("10\n")
    (folder / "in/iter_0000010/mp_rank_01_001/model_optim_rng.pt").unlink()
    tool.refused(folder / "in", "E_MISSING_FILE", "mp_rank_01_001")
    (folder / "in/iter_0000010/mp_rank_00_000/model_optim_rng.pt").unlink()
    tool.refused(folder / "in", "E_MISSING_FILE", "mp_rank_00_000")


def checks():
    for options in (
        {},
        {"tp": 2},
        {"tp": 2, "pp": 4},
        {"pp": 2, "vp": 2},
        {"tp": 2, "pp": 2, "vp": 4},
        {"ep": 2, "experts": 4},
        {"tp": 2, "ep": 2, "experts": 2},
        {"tp": 2, "pp": 2, "ep": 2, "experts": 4},
        {"tp": 2, "core": False},
        {"tp": 2, "core": False, "version": 1.0},
        {"pp": 2, "core": False, "version": 0},
    ):
        yield f"megatron {options}", lambda *with_, options=options: check(options, *with_)
    yield "megatron with faults", check_faults
