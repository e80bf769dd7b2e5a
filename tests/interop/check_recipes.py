"""Recipes that lay a model out anew, against the same done here with torch; and the way back."""

import json

import torch

import common

CONFIG = """run_name: made
model:
  d_model: {d}
  n_heads: {heads}
  n_kv_heads: {kv_text}
  n_layers: {layers}
  block_group_size: {group}
  layer_norm_eps: 1.0e-06  # a note
  max_sequence_length: 64
  rope_theta: 500000
  vocab_size: 50
  embedding_size: {vocab}
  weight_tying: {tied}
  eos_token_id: 3
  pad_token_id: 1
  norm_after: {after}
optimizer:
  name: adamw
"""


def olmo(d=16, heads=4, kv=4, layers=3, vocab=52, tied=False, after=True, norms=True, group=1):
    """OLMo's names and what Hugging Face calls the same tensors."""
    h = 3 * d
    state = {"transformer.wte.weight": torch.randn(vocab, d)}
    want = {"model.embed_tokens.weight": state["transformer.wte.weight"]}
    if norms:
        state["transformer.ln_f.weight"] = want["model.norm.weight"] = torch.randn(d)
    if not tied:
        state["transformer.ff_out.weight"] = want["lm_head.weight"] = torch.randn(vocab, d)
    for i in range(layers):
        to = f"model.layers.{i}."
        at = f"transformer.blocks.{i}."
        if group > 1:
            at = f"transformer.block_groups.{i // group}.{i % group}."
        q, k, v = (torch.randn(d, d), *torch.randn(2, d // heads * kv, d))
        up, gate, down, out = *torch.randn(2, h, d), torch.randn(d, h), torch.randn(d, d)
        state[at + "att_proj.weight"] = torch.cat([q, k, v])
        state[at + "ff_proj.weight"] = torch.cat([up, gate])
        state[at + "attn_out.weight"], state[at + "ff_out.weight"] = out, down
        for name, part in zip("qkvo", (q, k, v, out)):
            want[f"{to}self_attn.{name}_proj.weight"] = part
        for name, part in (("up", up), ("gate", gate), ("down", down)):
            want[f"{to}mlp.{name}_proj.weight"] = part
        if norms:
            places = ("post_attention", "post_feedforward") if after else ("input", "post_attention")
            for name, place in zip(("attn_norm", "ff_norm"), places):
                state[f"{at}{name}.weight"] = want[f"{to}{place}_layernorm.weight"] = torch.randn(d)
        if norms and after:
            for name, size in (("q_norm", d), ("k_norm", d // heads * kv)):
                state[f"{at}{name}.weight"] = want[f"{to}self_attn.{name}.weight"] = torch.randn(size)
    text = CONFIG.format(
        d=d, heads=heads, kv_text="null" if kv == heads else kv, layers=layers, group=group,
        vocab=vocab, tied=str(tied).lower(), after=str(after).lower(),
    )
    return state, want, text


def check_olmo(options, tool, folder):
    state, want, text = olmo(**options)
    (folder / "in").mkdir()
    torch.save(state, folder / "in/model.pt")
    (folder / "in/config.yaml").write_text(text)
    out = tool.run("olmo_to_hf", folder / "in", folder / "hf")
    got, _ = common.read_safetensors(out / "model.safetensors")
    common.hold_tensors({key: common.described(tensor) for key, tensor in want.items()}, got)
    config = json.loads((out / "config.json").read_text())
    kind = "olmo2" if options.get("after", True) else "olmo"
    assert config["model_type"] == kind and config["num_hidden_layers"] == 3
    assert config["num_key_value_heads"] == options.get("kv", 4), config
    assert config["tie_word_embeddings"] == options.get("tied", False)
    assert config["intermediate_size"] == 48 and config["rope_theta"] == 500000
    (out / "ckptflow-manifest.json").unlink()
    back = tool.run("hf_to_olmo", out, folder / "olmo")
    got, _ = common.read_safetensors(back / "model.safetensors")
    if options.get("group", 1) == 1:
        common.hold_tensors({key: common.described(t) for key, t in state.items()}, got)


def check_llama(tool, folder):
    """Two shards; q and k as Hugging Face's converter permutes them."""
    dim, heads, kv, hidden, vocab = 16, 4, 2, 24, 30
    shapes = {
        "attention.wq": ((dim, dim), 0, "self_attn.q_proj"),
        "attention.wk": ((dim // heads * kv, dim), 0, "self_attn.k_proj"),
        "attention.wv": ((dim // heads * kv, dim), 0, "self_attn.v_proj"),
        "attention.wo": ((dim, dim), 1, "self_attn.o_proj"),
        "feed_forward.w1": ((hidden, dim), 0, "mlp.gate_proj"),
        "feed_forward.w2": ((dim, hidden), 1, "mlp.down_proj"),
        "feed_forward.w3": ((hidden, dim), 0, "mlp.up_proj"),
        "attention_norm": ((dim,), None, "input_layernorm"),
        "ffn_norm": ((dim,), None, "post_attention_layernorm"),
    }
    want, parts = {}, [{}, {}]

    def put(name, tensor, cut, to):
        want[to + ".weight"] = tensor
        for i, part in enumerate(parts):
            part[name + ".weight"] = tensor if cut is None else tensor.chunk(2, cut)[i].clone()

    put("tok_embeddings", torch.randn(vocab, dim), 1, "model.embed_tokens")
    put("norm", torch.randn(dim), None, "model.norm")
    put("output", torch.randn(vocab, dim), 0, "lm_head")
    for i in range(2):
        for name, (shape, cut, to) in shapes.items():
            put(f"layers.{i}.{name}", torch.randn(shape), cut, f"model.layers.{i}.{to}")
    for key, tensor in want.items():
        if "q_proj" in key or "k_proj" in key:
            n = heads if "q_proj" in key else kv
            size = tensor.shape[0]
            want[key] = tensor.view(n, size // n // 2, 2, dim).transpose(1, 2).reshape(size, dim)
    (folder / "in").mkdir()
    for i, part in enumerate(parts):
        part["rope.freqs"] = torch.arange(2.0)
        torch.save(part, folder / f"in/consolidated.0{i}.pth")
    params = {"dim": dim, "n_heads": heads, "n_kv_heads": kv, "n_layers": 2, "norm_eps": 1e-5}
    (folder / "in/params.json").write_text(json.dumps(params))
    out = tool.run("llama_to_hf", folder / "in", folder / "hf")
    got, _ = common.read_safetensors(out / "model.safetensors")
    common.hold_tensors({key: common.described(tensor) for key, tensor in want.items()}, got)
    config = json.loads((out / "config.json").read_text())
    assert config["num_key_value_heads"] == kv and config["vocab_size"] == vocab, config


# ---- Composer ----------------------------------------------------------------------------------


def composer(step, wrapped=True):
    model = {"transformer.wte.weight": torch.randn(5, 3), "lm_head.weight": torch.randn(5, 3)}
    state = {f"model.{k}" if wrapped else k: v for k, v in model.items()}
    adam = {i: {"step": torch.tensor(4.0), "exp_avg": torch.randn(5, 3)} for i in range(2)}
    content = {"model_type": "mpt", "n_layers": 2, "attn_config": {"alibi": True}, "names": ["a"]}
    inside = {"model": {"config": {"file_extension": ".json", "content": content}}}
    return model, {
        "state": {
            "model": state,
            "optimizers": {"DecoupledAdamW": {"state": adam, "param_groups": [{"params": [0, 1]}]}},
            "integrations": {"huggingface": inside},
            "timestamp": {"Timestamp": {"batch": step}},
        },
        "rng": [{"torch": torch.zeros(3, dtype=torch.uint8)}],
    }, content


def check_composer(tool, folder):
    """Whole files of two steps, `latest` as a link and as the file of an object store."""
    want = {}
    for step in (5, 10):
        model, state, content = composer(step)
        want[step] = {key: common.described(tensor) for key, tensor in model.items()}
        save = folder / f"in/ep0-ba{step}"
        save.mkdir(parents=True)
        torch.save(state, save / f"ep0-ba{step}-rank0.pt")
    tool.refused(folder / "in", "E_META_CONFLICT", "ep0-ba5", "ep0-ba10")
    for step, make in (
        (5, lambda: (folder / "in/latest-rank0.pt").symlink_to("ep0-ba5/ep0-ba5-rank0.pt")),
        (10, lambda: (folder / "in/latest-rank0.pt.symlink").write_text("run/ep0-ba10/ep0-ba10-rank0.pt")),
    ):
        make()
        name, notes = tool.format(folder / "in")
        assert name == "composer-ranks" and "no param_names" in notes, (name, notes)
        out = tool.run("composer_to_hf", folder / "in", folder / f"hf{step}")
        got, _ = common.read_safetensors(out / "model.safetensors")
        common.hold_tensors(want[step], got)
        assert json.loads((out / "config.json").read_text()) == content
        for link in (folder / "in").glob("latest*"):
            link.unlink()
    model, state, _ = composer(1)
    torch.save(state, folder / "ba1.pt")
    assert tool.format(folder / "ba1.pt")[0] == "composer-ranks"


def checks():
    for options in (
        {},
        {"kv": 2},
        {"kv": 1, "tied": True},
        {"group": 2},
        {"after": False, "norms": False},
        {"after": False, "norms": False, "tied": True, "kv": 2},
    ):
        name = "olmo_to_hf and back, " + (str(options) if options else "plain")
        yield name, lambda *with_, options=options: check_olmo(options, *with_)
    yield "llama_to_hf", check_llama
    yield "composer, whole files and latest", check_composer
