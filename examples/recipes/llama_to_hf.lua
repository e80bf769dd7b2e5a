--- Meta's Llama as Hugging Face names it, with its config.json. Rows of q and k are permuted: Meta
--- rotates neighbours, Hugging Face the two halves of a head.
--- Source: huggingface/transformers models/llama/convert_llama_weights_to_hf.py.
local TOP = {
  ["tok_embeddings.weight"] = "model.embed_tokens.weight",
  ["norm.weight"] = "model.norm.weight",
  ["output.weight"] = "lm_head.weight",
}
local LAYER = {
  ["attention.wq.weight"] = "self_attn.q_proj.weight",
  ["attention.wk.weight"] = "self_attn.k_proj.weight",
  ["attention.wv.weight"] = "self_attn.v_proj.weight",
  ["attention.wo.weight"] = "self_attn.o_proj.weight",
  ["feed_forward.w1.weight"] = "mlp.gate_proj.weight",
  ["feed_forward.w2.weight"] = "mlp.down_proj.weight",
  ["feed_forward.w3.weight"] = "mlp.up_proj.weight",
  ["attention_norm.weight"] = "input_layernorm.weight",
  ["ffn_norm.weight"] = "post_attention_layernorm.weight",
}

local function halves(view, heads)
  local rows, cols = view.shape[1], view.shape[2]
  local neighbours = view:reshape({ heads, rows // heads // 2, 2, cols })
  return neighbours:permute({ 0, 2, 1, 3 }):reshape({ rows, cols })
end

local function config_of(out, params)
  local embed = out["model.embed_tokens.weight"]
  local theta = params.rope_theta or 10000.0
  return {
    architectures = { "LlamaForCausalLM" },
    model_type = "llama",
    hidden_act = "silu",
    hidden_size = params.dim,
    intermediate_size = out["model.layers.0.mlp.up_proj.weight"].shape[1],
    num_attention_heads = params.n_heads,
    num_hidden_layers = params.n_layers,
    num_key_value_heads = params.n_kv_heads or params.n_heads,
    rms_norm_eps = params.norm_eps,
    rope_theta = theta,
    rope_scaling = params.use_scaled_rope -- Llama 3.1's
        and {
          rope_type = "llama3",
          factor = params.rope_scale_factor or 8.0,
          low_freq_factor = 1.0,
          high_freq_factor = 4.0,
          original_max_position_embeddings = 8192,
        }
      or nil,
    -- what a generation could see: params.json does not say it
    max_position_embeddings = params.use_scaled_rope and 131072
      or theta >= 500000 and 8192
      or theta >= 1000000 and 16384
      or 4096,
    tie_word_embeddings = out["lm_head.weight"] == nil,
    torch_dtype = ({ F32 = "float32", BF16 = "bfloat16", F16 = "float16" })[embed.dtype],
    vocab_size = embed.shape[1],
  }
end

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Write a Llama checkpoint as a Hugging Face model",
  options = { max_shard_size = "5GB" },

  plan = function(cat, plan, opt)
    local row_of_params = cat:find("params") or plan:refuse("there is no params.json")
    local out, params = {}, row_of_params.value
    for name, row in pairs(cat:role("model"):match("*", "!rope.freqs")) do
      local layer, leaf = name:match("^layers%.(%d+)%.(.+)$")
      local within = LAYER[leaf] and ("model.layers.%s.%s"):format(layer, LAYER[leaf])
      local to = TOP[name] or within or plan:refuse(name .. " has no Hugging Face name")
      local view = row.view
      if leaf == "attention.wq.weight" then
        view = halves(view, params.n_heads)
      elseif leaf == "attention.wk.weight" then
        view = halves(view, params.n_kv_heads or params.n_heads)
      end
      out[to] = view
    end
    plan:write("model.safetensors", out, { max_shard_size = opt.max_shard_size })
    plan:write("config.json", config_of(out, params))
    plan:copy("tokenizer*")
    plan:drop(cat:match("rope.freqs", "params"), "computed, or not a weight")
  end,
}
