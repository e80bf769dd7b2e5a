"""DeepSpeed's files, laid out here as its engine does, over worlds, grids of tensor and pipeline
parallel ranks and shapes that the fixtures do not have. What is held against is the tensors that
were cut."""

import collections
import math
import types

import torch

import common

INFO = {
    "universal_checkpoint_version": 0.2,
    "tp_replicated_parameter_patterns": [r"\d+\.norm\.weight", r".*\.bias$"],
    "parameter_with_row_parallelism_patterns": [r"\d+.dense.weight"],
    "vocabulary_parameter_patterns": [r"tied_modules\.embed\.weight"],
    "pipeline_replicated_parameter_patterns": [r"tied_modules\.embed\.weight"],
    "parameter_with_2_sub_params_cat_dim_0": [r"\d+\.gate\.weight"],
    "parameter_with_sub_params": [
        {"patterns": [r"\d+\.qkv\.weight"], "shape": (3, -1), "partition_dim": 0}
    ],
    "original_vocab_size": 13,
}


def slabs(name, whole, tp):
    """What each tensor parallel rank holds of a parameter."""
    if tp == 1:
        return [whole]
    if name.endswith(("norm.weight", "bias")):
        return [whole] * tp
    if name.endswith("dense.weight"):
        return list(whole.chunk(tp, 1))
    parts = 2 if name.endswith("gate.weight") else 3 if name.endswith("qkv.weight") else 1
    pieces = [part.chunk(tp) for part in whole.chunk(parts)]
    return [torch.cat([part[r] for part in pieces]) for r in range(tp)]


def model(tp, pp):
    """Names and tensors of each pipeline stage; the embedding is in the first and in the last."""
    stages = [collections.OrderedDict() for _ in range(pp)]
    vocab = -(-13 // (4 * tp)) * 4 * tp if tp > 1 else 13
    embed = torch.randn(vocab, 6)
    embed[13:] = -999
    stages[0]["tied_modules.embed.weight"] = embed
    for layer in range(4):
        stage = stages[layer * pp // 4]
        stage[f"{layer}.norm.weight"] = torch.randn(6)
        stage[f"{layer}.qkv.weight"] = torch.randn(3 * 2 * tp, 6)
        stage[f"{layer}.dense.weight"] = torch.randn(6, 3 * tp)
        stage[f"{layer}.gate.weight"] = torch.randn(2 * 4 * tp, 6)
        stage[f"{layer}.gate.bias"] = torch.randn(5)
    if pp > 1:
        stages[-1]["tied_modules.embed.weight"] = embed
    return stages


def flat_of(tensors, world, pads):
    """Stages 1 and 2: one vector, padded to a multiple of 2 * world; the fp32 one is saved bare."""
    pieces = []
    for tensor, pad in zip(tensors, pads):
        pieces += [tensor.reshape(-1), tensor.new_full((pad,), -999.0)]
    flat = torch.cat(pieces)
    size = -(-len(flat) // (2 * world)) * 2 * world
    padded = torch.cat([flat, flat.new_full((size - len(flat),), -999.0)])
    each = size // world
    return [
        (padded[d * each : min(d * each + each, len(flat))].clone(), padded[d * each : d * each + each])
        for d in range(world)
    ]


def slices(tensors, names, world, rank, pads):
    """What a rank holds of each parameter, as DeepSpeed's fragment_address says it."""
    size = sum(t.numel() + pad for t, pad in zip(tensors, pads))
    each = -(-size // (2 * world)) * 2
    found, at = collections.OrderedDict(), 0
    for name, tensor, pad in zip(names, tensors, pads):
        first, last = max(at, rank * each), min(at + tensor.numel(), rank * each + each)
        if first < last:
            found[name] = types.SimpleNamespace(numel=last - first, start=first - rank * each)
        at += tensor.numel() + pad
    return found


def write(folder, stage, world, tp=1, pp=1, aligned=False, prefix="bf16_", info=INFO, adam=False):
    """Gives the tensors that were cut. adam: a second moment too, which ds_to_universal asks for."""
    folder.mkdir(parents=True)
    want = {}
    stages = model(tp, pp)
    for index, tensors in enumerate(stages):
        moments = {name: torch.randn_like(tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if index and name == "tied_modules.embed.weight":
                continue
            rows = 13 if "embed" in name else None
            want[f"model.{name}"] = tensor[:rows]
            want[f"optim.{name}.exp_avg"] = moments[name][:rows]
        for rank in range(tp):
            mp = index * tp + rank
            mine = collections.OrderedDict(
                (name, slabs(name, tensor, tp)[rank]) for name, tensor in tensors.items()
            )
            mine_moments = {name: slabs(name, moments[name], tp)[rank] for name in mine}
            names = list(mine)
            groups = [names[: len(names) // 2], names[len(names) // 2 :]]
            shapes = [collections.OrderedDict((n, mine[n].shape) for n in g) for g in groups]
            pads = [[(-mine[n].numel()) % 8 if aligned else 0 for n in g] for g in groups]
            state = {
                "module": {n: mine[n].bfloat16() for n in names} if pp == 1 else None,
                "buffer_names": [],
                "param_shapes": shapes,
                "frozen_param_shapes": None,
                "frozen_param_fragments": None,
                "shared_params": {},
                "global_steps": 7,
                "universal_checkpoint_info": info,
                "checkpoint_parallel_dimensions": {"tp_degree": tp, "pp_degree": pp},
            }
            for d in range(world):
                optim = {"zero_stage": stage, "partition_count": [world] * 2, "ds_version": "0.19.8"}
                if stage == 3:
                    optim["partition_count"] = world
                    optim["fp32_flat_groups"], states = [], {}
                    for g, group in enumerate(groups):
                        cut = []
                        for of in (mine, mine_moments):
                            vectors = []
                            for n in group:
                                flat = of[n].reshape(-1)
                                each = math.ceil(len(flat) / world)
                                part = flat[d * each : d * each + each]
                                vectors += [part, flat.new_full((each - len(part),), -999.0)]
                            cut.append(torch.cat(vectors))
                        optim["fp32_flat_groups"].append(cut[0])
                        states[g] = {"step": torch.tensor(7.0), "exp_avg": cut[1]}
                    optim["optimizer_state_dict"] = {"state": states, "param_groups": []}
                    empty = dict(state, module={n: torch.empty(0) for n in names})
                    name = f"zero_pp_rank_{d}_mp_rank_{mp:02d}_model_states.pt"
                    torch.save(empty, folder / name)
                else:
                    weights, states = [], {}
                    for g, group in enumerate(groups):
                        bare = flat_of([mine[n] for n in group], world, pads[g])[d][0]
                        moment = flat_of([mine_moments[n] for n in group], world, pads[g])[d][1]
                        weights.append(bare)
                        states[g] = {"step": 7, "exp_avg": moment.clone()}
                        if adam:
                            states[g]["exp_avg_sq"] = moment * 2
                    optim["single_partition_of_fp32_groups"] = weights
                    optim["param_slice_mappings"] = [
                        slices([mine[n] for n in group], group, world, d, pads[g])
                        for g, group in enumerate(groups)
                    ]
                    optim["base_optimizer_state"] = {"state": states, "param_groups": []}
                    if aligned:
                        optim["param_alignment_paddings"] = pads
                name = f"{prefix}zero_pp_rank_{d}_mp_rank_{mp:02d}_optim_states.pt"
                torch.save({"optimizer_state_dict": optim}, folder / name)
            if stage < 3:
                torch.save(state, folder / f"mp_rank_{mp:02d}_model_states.pt")
    return want


def check(options, tool, folder):
    want = write(folder / "in/global_step7", **options)
    (folder / "in/latest").write_text("global_step7")
    assert tool.format(folder / "in")[0] == "deepspeed"
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    got = {key: t for key, t in common.written(out).items() if not key.endswith(".step")}
    common.hold_tensors({key: common.described(tensor) for key, tensor in want.items()}, got)


def check_faults(tool, folder):
    one = folder / "in/global_step7"
    write(one, 2, 3)
    write(folder / "in/global_step20", 2, 3)
    tool.refused(folder / "in", "E_META_CONFLICT", "global_step7/", "global_step20/")
    (folder / "in/latest").write_text("global_step8\n")
    tool.refused(folder / "in", "E_MISSING_FILE", "latest says global_step8", "global_step20/")
    (folder / "in/latest").write_text("global_step7\n")
    (one / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt").rename(folder / "kept")
    tool.refused(folder / "in", "E_MISSING_FILE", "rank 2 of world 3")
    (folder / "kept").rename(one / "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt")
    tool.refused(folder / "in", "E_META_CONFLICT", "rank 3 in a world of 3")
    (one / "mp_rank_00_model_states.pt").unlink()
    tool.refused(folder / "in", "E_MISSING_FILE", "mp_rank_00_model_states.pt")
    write(folder / "bare", 1, 2, tp=2, info=None)
    tool.refused(folder / "bare", "E_LAYOUT", "universal_checkpoint_info")
    write(folder / "grid", 1, 2, tp=2, pp=2)
    (folder / "grid/bf16_zero_pp_rank_1_mp_rank_03_optim_states.pt").unlink()
    tool.refused(folder / "grid", "E_MISSING_FILE", "rank 7 of world 8")


def checks():
    for options in (
        {"stage": 1, "world": 1},
        {"stage": 2, "world": 3, "prefix": ""},
        {"stage": 2, "world": 5, "aligned": True},
        {"stage": 3, "world": 3},
        {"stage": 3, "world": 7, "prefix": ""},
        {"stage": 1, "world": 2, "tp": 2},
        {"stage": 1, "world": 3, "tp": 2, "pp": 2},
        {"stage": 2, "world": 1, "tp": 4, "aligned": True},
        {"stage": 1, "world": 2, "pp": 2},
        {"stage": 1, "world": 2, "tp": 2, "pp": 4},
        {"stage": 3, "world": 2, "tp": 2},
    ):
        yield f"deepspeed {options}", lambda *with_, options=options: check(options, *with_)
    yield "deepspeed with faults", check_faults
