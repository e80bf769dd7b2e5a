"""GPT models of megatron-core itself, over grids of real processes. Each rank saves what
state_dict_for_save_checkpoint gives it, under the name get_checkpoint_name has for it. What is held
against is put together from sharded_state_dict, which says for `torch_dist` where every piece lies.
"""

import argparse
import contextlib
import importlib.util
import io
import re

import torch
import torch.multiprocessing

import common

VOCAB, WHOLE = 20, 24  # with padding


def config(tp, pp, vp, ep, etp, options):
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        num_layers=8, hidden_size=16, num_attention_heads=4, use_cpu_initialization=True,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, pipeline_dtype=torch.float32,
        virtual_pipeline_model_parallel_size=vp if vp > 1 else None, expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp, **options,
    )


def stage(config, vp, index):
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    where = {"ignore_virtual": False, "vp_stage": index if vp > 1 else None}
    number = where["vp_stage"]
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=number)
    return GPTModel(
        config, spec, vocab_size=WHOLE, max_sequence_length=8, vp_stage=number,
        pre_process=parallel_state.is_pipeline_first_stage(**where),
        post_process=parallel_state.is_pipeline_last_stage(**where),
        share_embeddings_and_output_weights=False,
    )


def parts_of(item):
    """A factory makes the pieces of a fused tensor."""
    if hasattr(item, "build"):
        item = item.build()
    if not isinstance(item, (dict, list)):
        return [item]
    inside = item.values() if isinstance(item, dict) else item
    return [part for one in inside for part in parts_of(one)]


def pieces(sharded):
    """Name of the whole tensor, its shape, and what a rank holds of it."""
    for name, item in sharded.items():
        for part in parts_of(item):
            if part.data is None or not hasattr(part, "global_offset") or not hasattr(part, "local_shape"):
                continue
            # numbers of layers and experts are in the key, or lie before the tensor's own axes
            layer = re.search(r"layers\.(\d+)\.", part.key)
            whole = re.sub(r"layers\.\d+\.", f"layers.{layer[1]}.", name) if layer else name
            axes = part.prepend_axis_num
            expert = re.search(r"local_experts\.\d+", whole)
            own = part.global_offset[axes - 1] if axes else re.search(r"experts\.(\d+)\.", part.key)
            if expert:
                number = own if isinstance(own, int) else own[1]
                whole = whole.replace(expert[0], f"local_experts.{number}")
            yield whole, part.global_shape[axes:], part.global_offset[axes:], part.data.clone()


def work(rank, world, folder, grid, options):
    import torch.distributed as dist

    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    from megatron.core import parallel_state as state

    from megatron.core.transformer.moe import experts

    experts.gg.assert_grouped_gemm_is_available = lambda: None  # nothing is computed
    tp, pp, vp, ep, etp = grid
    state.initialize_model_parallel(
        tp, pp, vp if vp > 1 else None, expert_model_parallel_size=ep, expert_tensor_parallel_size=etp
    )
    made, found = config(*grid, options), []
    args = argparse.Namespace(
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp, virtual_pipeline_model_parallel_size=vp if vp > 1 else None,
        num_experts=made.num_moe_experts, swiglu=made.gated_linear_unit, num_attention_heads=4,
        hidden_size=16, vocab_size=VOCAB, padded_vocab_size=WHOLE, ckpt_format="torch",
    )
    root = {"args": args, "checkpoint_version": 3.0, "iteration": 5}
    torch.manual_seed(rank)
    for index in range(vp):
        model = stage(made, vp, index)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            # what several ranks hold must be alike: the seed has what it is cut over, and no more
            expert = re.search(r"local_experts|experts\.weight", name)
            cut = getattr(tensor, "tensor_model_parallel", False)
            where = state.get_tensor_model_parallel_rank() if cut else 0
            if expert:
                where = state.get_expert_model_parallel_rank(), state.get_expert_tensor_parallel_rank()
            where = where, state.get_pipeline_model_parallel_rank() + pp * index
            torch.manual_seed(hash((name, where)) % 2**31)
            tensor.data.copy_(torch.randn(tensor.shape))
        found += pieces(model.sharded_state_dict(metadata={"non_homogeneous_layers": True}))
        root["model" if vp == 1 else f"model{index}"] = model.state_dict_for_save_checkpoint()
    name = f"mp_rank_{state.get_tensor_model_parallel_rank():02d}"
    name += f"_{state.get_pipeline_model_parallel_rank():03d}" if pp > 1 else ""
    name += f"_{state.get_expert_model_parallel_rank():03d}" if ep > 1 else ""
    if state.get_data_parallel_rank() == 0 or state.get_expert_data_parallel_rank() == 0:
        import pathlib

        path = pathlib.Path(folder) / "in/iter_0000005" / name
        path.mkdir(parents=True)
        torch.save(root, path / "model_optim_rng.pt")
    torch.save(found, f"{folder}/found{rank}.pt")
    dist.barrier()


def check(grid, options, tool, folder):
    tp, pp, _, ep, etp = grid
    world = max(tp, ep * (etp or tp)) * pp
    import megatron.core.models.gpt.gpt_layer_specs  # before the processes are made

    with contextlib.redirect_stderr(io.StringIO()):
        torch.multiprocessing.start_processes(
            work, (world, str(folder), grid, options), nprocs=world, start_method="fork"
        )
    want = {}
    for rank in range(world):
        for name, shape, at, data in torch.load(folder / f"found{rank}.pt", weights_only=False):
            whole = want.setdefault(name, torch.full(shape, float("nan")))
            box = tuple(slice(a, a + n) for a, n in zip(at, data.shape))
            assert whole[box].isnan().all() or whole[box].equal(data), f"megatron itself: {name}"
            whole[box] = data
    for name, tensor in want.items():
        assert not tensor.isnan().any(), f"megatron itself: a hole in {name}"
        if "word_embeddings" in name or "output_layer" in name:
            want[name] = tensor[:VOCAB].clone()
        if re.search(r"experts\.weight\d$", name):  # the model's own is (expert, in, out)
            want[name] = tensor.transpose(1, 2).contiguous()
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    common.hold({f"model.{name}": tensor for name, tensor in want.items()}, out, "model")


GATED = {"gated_linear_unit": True}
MOE = {"num_moe_experts": 4, "moe_router_topk": 2, "add_bias_linear": False}
CASES = (
    ((2, 1, 1, 1, None), {}),
    ((2, 2, 1, 1, None), {**GATED, "num_query_groups": 2, "qk_layernorm": True}),
    ((2, 2, 2, 1, None), {**GATED, "add_bias_linear": False, "add_qkv_bias": True}),
    ((1, 2, 4, 1, None), {}),
    ((1, 1, 1, 2, None), {**MOE}),
    ((2, 1, 1, 2, None), {**MOE, **GATED}),
    ((2, 2, 1, 2, 1), {**MOE, **GATED}),
    ((1, 2, 2, 2, None), {**MOE, "moe_grouped_gemm": True}),
    ((2, 1, 1, 2, None), {**MOE, **GATED, "moe_grouped_gemm": True}),
    ((2, 1, 1, 4, 1), {**MOE}),
    ((4, 1, 1, 2, 1), {**MOE, **GATED}),
    ((2, 1, 1, 2, 1), {**MOE, "moe_layer_freq": [0, 1] * 4, "moe_shared_expert_intermediate_size": 8, **GATED}),
)


def checks():
    if importlib.util.find_spec("megatron") is None:
        print("skip  megatron-core (not installed)", flush=True)
        return
    for grid, options in CASES:
        name = "tp {} pp {} vp {} ep {} etp {}".format(*grid)
        yield (
            f"megatron-core: {name} {' '.join(options)}".rstrip(),
            lambda *with_, case=(grid, options): check(*case, *with_),
        )
