"""OLMo's other kinds of checkpoint, laid out here as its code does, over worlds and shapes that
the fixtures do not have. What is held against is the tensors that were cut."""

import base64
import json
import pickle

import safetensors.torch
import torch

import common

# Only what the pickles need of torch.distributed.fsdp: torch 2.1 and later keep a named tuple.
from torch.distributed.fsdp._flat_param import _ShardParamInfo

LAYERS = [  # module, names and shapes; the last has fewer elements than there are ranks
    ("", {"wte.weight": (7, 4), "ln_f.weight": (5,)}),
    ("_fsdp_wrapped_module.blocks.0", {"att.weight": (3, 4), "norm.weight": (4,), "b": ()}),
    ("_fsdp_wrapped_module.blocks.1", {"tiny": (2,)}),
]


def parameters(dtype):
    for module, shapes in LAYERS:
        within = module.replace("_fsdp_wrapped_module.", "")
        yield module, {
            (f"{within}.{name}" if within else name, name): torch.randn(shape).to(dtype)
            for name, shape in shapes.items()
        }


def cuts(tensors, rank, world):
    """name -> its first and last element on a rank, where its part begins in the shard."""
    total = sum(t.numel() for t in tensors)
    each = -(-total // world)
    begin, end, at, found = rank * each, rank * each + each - 1, 0, []
    for tensor in tensors:
        last = at + tensor.numel() - 1
        if begin <= last and end >= at:
            first = max(begin, at)
            found.append((first - at, min(last, end) - at, first - begin))
        else:
            found.append(None)
        at = last + 1
    return found, each


def handle(tensors, rank, world, old):
    """One flat parameter of a rank, as LocalShardedCheckpointer saves it."""
    found, each = cuts(tensors.values(), rank, world)
    flat = torch.cat([t.reshape(-1) for t in tensors.values()])
    flat = torch.cat([flat, flat.new_zeros(each * world - len(flat))])
    data = {
        "flat_param.data": flat[rank * each : rank * each + each].clone(),
        "flat_param._fqns": tuple(name for _, name in tensors),
        "flat_param._shapes": tuple(t.shape for t in tensors.values()),
        "flat_param._numels": tuple(t.numel() for t in tensors.values()),
        "flat_param._shard_numel_padded": max(0, (rank + 1) * each - sum(map(torch.numel, tensors.values()))),
    }
    if old:  # torch 2.0: inclusive ends, and the first and last parameter, (0, 0) if there is none
        here = [i for i, cut in enumerate(found) if cut]
        data["flat_param._shard_param_offsets"] = tuple(found[i][:2] for i in here)
        data["flat_param._shard_indices"] = (here[0], here[-1]) if here else (0, 0)
    else:
        data["flat_param._shard_param_infos"] = tuple(
            _ShardParamInfo(True, cut[2], cut[1] - cut[0] + 1, cut[0], cut[1])
            if cut
            else _ShardParamInfo(False, None, None, None, None)
            for cut in found
        )
    return data


def write_local(folder, world, old, dtype=torch.float32, whole_vectors=False, named=True):
    """Gives the tensors. whole_vectors: use_orig_params=False, one optimizer state a vector."""
    modules = list(parameters(dtype))
    want, moments = {}, {}
    for _, tensors in modules:
        for (key, _), tensor in tensors.items():
            want[f"model.{key}"] = tensor
            moments[key] = torch.randn(tensor.shape)
            want[f"optim.{key}.exp_avg"] = moments[key]
            want[f"optim.{key}.step"] = torch.tensor(9.0)
    for part in ("model", "optim", "train"):
        (folder / part).mkdir(parents=True)
    for rank in range(world):
        handles, state, names = [], {}, []
        for module, tensors in modules:
            handles.append({"name": module, "handles": [handle(tensors, rank, world, old)]})
            like = {key: moments[key[0]] for key in tensors}
            flat = handle(like, rank, world, old)["flat_param.data"]
            found, _ = cuts(tensors.values(), rank, world)
            prefix = module + "." if module else ""
            if whole_vectors:
                names.append(prefix + "_fsdp_wrapped_module._flat_param")
                state[len(names) - 1] = {"step": torch.tensor(9.0), "exp_avg": flat}
                for key, _ in tensors:
                    want.pop(f"optim.{key}.step", None)
                continue
            for (key, name), cut in zip(tensors, found):
                names.append(prefix + "_fsdp_wrapped_module." + name)
                part = flat[cut[2] : cut[2] + cut[1] - cut[0] + 1] if cut else flat[:0]
                state[len(names) - 1] = {"step": torch.tensor(9.0), "exp_avg": part.clone()}
        group = {"params": list(range(len(names))), "lr": 0.1}
        if named:
            group["param_names"] = names
        torch.save({"modules": handles}, folder / "model" / f"rank{rank}.pt")
        torch.save({"state": state, "param_groups": [group]}, folder / "optim" / f"rank{rank}.pt")
        torch.save({"global_step": 9}, folder / "train" / f"rank{rank}.pt")
    (folder / "metadata.yaml").write_text(f"world_size: {world}\n")
    return want


def check_local(world, old, dtype, whole_vectors, tool, folder):
    want = write_local(folder / "in", world, old, dtype, whole_vectors)
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    got = common.written(out)
    if whole_vectors:  # a vector has one step, under the name of the vector
        got = {key: tensor for key, tensor in got.items() if not key.endswith("_flat_param.step")}
    common.hold_tensors({key: common.described(t) for key, t in want.items()}, got)


def check_local_faults(tool, folder):
    write_local(folder / "a", 3, False)
    (folder / "a/model/rank1.pt").unlink()
    tool.refused(folder / "a", "E_MISSING_FILE", "model/rank1.pt")
    for part in ("optim", "train"):
        (folder / "a" / part / "rank1.pt").unlink()
    tool.refused(folder / "a", "E_MISSING_FILE", "rank 1 of world 3 is missing")
    write_local(folder / "b", 3, True)
    (folder / "b/optim/rank2.pt").unlink()
    tool.refused(folder / "b", "E_MISSING_FILE", "optim/rank2.pt")
    write_local(folder / "c", 2, False, named=False)
    name, notes = tool.format(folder / "c")
    assert name == "olmo-local" and "no param_names" in notes, notes


# ---- olmo_core 0.1 -----------------------------------------------------------------------------


def write_core(folder, world, spelling):
    """spelling: how metadata.json places a shard; rows of DTensors, or stretches, new or old."""
    want = {}
    for part in ("model", "optim"):
        (folder / part).mkdir(parents=True)
        tensors, files = {}, [{} for _ in range(world)]
        for _, layer in parameters(torch.float32):
            for (key, _), tensor in layer.items():
                name = key if part == "model" else f"state.{key}.__exp_avg"
                tensor = torch.randn_like(tensor)
                want[f"model.{key}" if part == "model" else f"optim.{key}.exp_avg"] = tensor
                place = {}
                columns = spelling == "boxes" and tensor.dim() == 2
                flat = tensor.t().reshape(-1) if columns else tensor.reshape(-1)
                unit = tensor.shape[0] if columns else 1
                each = -(-(len(flat) // unit) // world) * unit
                for rank in range(world):
                    begin, end = min(rank * each, len(flat)), min(rank * each + each, len(flat))
                    if begin == end:
                        continue
                    own = f"rank_{rank}.safetensors"
                    files[rank][name] = flat[begin:end].clone()
                    if columns:
                        width = (end - begin) // unit
                        files[rank][name] = files[rank][name].view(width, unit).t().reshape(-1)
                        place[own] = {
                            "local_shape": [unit, width],
                            "global_offset": [0, begin // unit],
                            "flattened_offsets": None,
                        }
                    elif spelling == "one":
                        place[own] = [begin, end]
                    elif spelling == "lists":
                        middle = (begin + end) // 2
                        place[own] = [[begin, middle], [middle, end]]
                    else:
                        place[own] = {"flattened_offsets": [[begin, end]]}
                old = spelling in ("one", "lists")
                word = "flattened_offsets_per_file" if old else "shard_spec_per_file"
                tensors[name] = {"shape": list(tensor.shape), "dtype": "F32", word: place}
        if part == "optim":
            groups = {"lr": 0.5, "params": [0, 1], "betas": (0.9, 0.95)}
            bytes_ = torch.frombuffer(bytearray(pickle.dumps(groups)), dtype=torch.uint8)
            files[0]["param_group0"] = bytes_
            tensors["param_group0"] = {
                "shape": [len(bytes_)],
                "dtype": "U8",
                "shard_spec_per_file": {
                    "rank_0.safetensors": {"flattened_offsets": [[0, len(bytes_)]]}
                },
            }
        (folder / part / "metadata.json").write_text(json.dumps({"tensors": tensors}))
        for rank, file in enumerate(files):
            file = {key: tensor.contiguous() for key, tensor in file.items()}
            safetensors.torch.save_file(file, folder / part / f"rank_{rank}.safetensors")
    return want


def check_core(world, spelling, tool, folder):
    want = write_core(folder / "in", world, spelling)
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold(want, out)
    train = json.loads((out / "train.json").read_text())
    group = train["optim.param_groups.0"]
    assert group == {"lr": 0.5, "params": [0, 1], "betas": {"$tuple": [0.9, 0.95]}}, group


def check_core_faults(tool, folder):
    write_core(folder / "a", 3, "new")
    (folder / "a/optim/rank_1.safetensors").unlink()
    tool.refused(folder / "a", "E_MISSING_FILE", "optim/rank_1.safetensors")
    write_core(folder / "b", 2, "new")
    safetensors.torch.save_file({"wte.weight": torch.ones(3)}, folder / "b/model/rank_2.safetensors")
    tool.refused(folder / "b", "E_META_CONFLICT", "rank_2.safetensors", "wte.weight")


# ---- unsharded ---------------------------------------------------------------------------------


def encoded(state, path=()):
    """olmo/safetensors_util.py: keys are pickles in base64, so are values that are no tensors."""
    flat = {}
    for key, value in state.items():
        if isinstance(value, dict):
            flat.update(encoded(value, (*path, key)))
            continue
        tensor = isinstance(value, torch.Tensor)
        if not tensor:
            value = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        name = base64.urlsafe_b64encode(pickle.dumps(((*path, key), not tensor)))
        flat[str(name, "ascii")] = value
    return flat


def states():
    model = {"wte.weight": torch.randn(5, 3), "ln.weight": torch.randn(3)}
    want = {f"model.{key}": tensor for key, tensor in model.items()}
    optim = {"state": {}, "param_groups": [{"params": [0, 1], "param_names": list(model)}]}
    for i, key in enumerate(model):
        optim["state"][i] = {"step": torch.tensor(3.0), "exp_avg": torch.randn_like(model[key])}
        want.update({f"optim.{key}.{state}": t for state, t in optim["state"][i].items()})
    return model, optim, want


def check_full(tool, folder):
    """By ids with names, by ids without, by names."""
    model, optim, want = states()
    for case in ("named", "ids", "names"):
        where = folder / case
        where.mkdir()
        if case == "ids":
            del optim["param_groups"][0]["param_names"]
        if case == "names":
            optim["state"] = dict(zip(model, optim["state"].values()))
        torch.save(model, where / "model.pt")
        torch.save(optim, where / "optim.pt")
        torch.save({"global_step": 3}, where / ("other.pt" if case == "named" else "train.pt"))
        name, notes = tool.format(where)
        assert name == "olmo-full", name
        assert ("no param_names" in notes) == (case == "ids"), notes
        out = tool.run("unshard.lua", where, folder / f"{case}-out")
        if case != "ids":
            common.hold(want, out)
        else:
            ids = {f"state.{i}." for i in (0, 1)}
            optim_keys = {k[6:] for k in common.written(out) if k.startswith("optim.")}
            assert {key[: key.rindex(".") + 1] for key in optim_keys} == ids, optim_keys


def check_safe_tensors(tool, folder):
    model, optim, want = states()
    (folder / "in").mkdir()
    safetensors.torch.save_file(encoded(model), folder / "in/model.safetensors")
    safetensors.torch.save_file(encoded(optim), folder / "in/optim.safetensors")
    torch.save({"global_step": 3}, folder / "in/train.pt")
    assert tool.format(folder / "in")[0] == "olmo-safetensors"
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold(want, out)
    train = json.loads((out / "train.json").read_text())
    assert train["optim.param_groups"] == optim["param_groups"] and train["train.global_step"] == 3
    evil = base64.urlsafe_b64encode(b"\x80\x04cos\nsystem\n(X\x04\x00\x00\x00touchtR.")
    evil = {str(evil, "ascii"): torch.ones(1)}
    (folder / "evil").mkdir()
    safetensors.torch.save_file(evil, folder / "evil/model.safetensors")
    tool.refused(folder / "evil", "E_GLOBAL_DENIED", "os.system")


def check_config(tool, folder):
    """config.yaml and the files must name the same kind; `legacy` and nothing mean torch_legacy."""
    said = {
        "a: 1\nsharded_checkpointer: local\nload_path_sharded_checkpointer: null\n": True,
        'sharded_checkpointer: "local"  # so\n': True,
        "model:\n  sharded_checkpointer: local\n": False,
        "sharded_checkpointer: torch_new\n": False,
        "sharded_checkpointer: legacy\n": False,
        "sharded_checkpointer: null\n": False,
        "run_name: old\n": False,
    }
    write_local(folder / "local", 2, False)
    legacy = folder / "legacy"
    legacy.mkdir()
    for rank in range(2):
        state = {"model": {"w": torch.ones(2)}, "optim": {"state": {}}, "world_size": 2}
        torch.save(state, legacy / f"rank{rank}.pt")
    for text, fits in said.items():
        (folder / "local/config.yaml").write_text(text)
        (legacy / "config.yaml").write_text(text)
        if fits:
            assert tool.format(folder / "local")[0] == "olmo-local"
            tool.refused(legacy, "E_META_CONFLICT", "config.yaml says local")
        else:
            tool.refused(folder / "local", "E_META_CONFLICT", "the files are of local")
            if "torch_new" not in text:
                assert tool.format(legacy)[0] == "olmo-legacy"


def checks():
    for world in (1, 2, 3, 5):
        for old in (False, True):
            for dtype, vectors in ((torch.float32, False), (torch.bfloat16, True)):
                with_ = (world, old, dtype, vectors)
                name = f"olmo local world {world} torch {'2.0' if old else '2.1'} {dtype}"
                yield name, lambda *rest, with_=with_: check_local(*with_, *rest)
    yield "olmo local with faults", check_local_faults
    for world, spelling in ((1, "new"), (3, "new"), (2, "one"), (3, "lists"), (2, "boxes"), (3, "boxes")):
        name = f"olmo_core 0.1 world {world}, {spelling}"
        yield name, lambda *rest, with_=(world, spelling): check_core(*with_, *rest)
    yield "olmo_core 0.1 with faults", check_core_faults
    yield "olmo full", check_full
    yield "olmo full, safetensors", check_safe_tensors
    yield "olmo config.yaml", check_config
