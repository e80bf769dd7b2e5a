--- OLMo's model as Hugging Face names it: fused projections are split, the rest renamed,
--- config.json from config.yaml. Names of OLMo and of OLMo-core.
--- A norm behind its sublayer makes an `olmo2`; one before it without weights an `olmo`. Other
--- mixes OLMo can train and transformers cannot run: they are written under the names of the
--- nearer one, and a note says so.
--- Sources: huggingface/transformers models/olmo{,2}/convert_olmo{,2}_weights_to_hf.py,
--- allenai/OLMo olmo/model.py, allenai/OLMo-core olmo_core/nn/hf/convert.py.
local names = require("ckptflow.names")
local olmo = require("ckptflow.olmo")

local TOP = {
  ["transformer.wte"] = "model.embed_tokens",
  ["transformer.ln_f"] = "model.norm",
  ["transformer.ff_out"] = "lm_head",
  ["embeddings"] = "model.embed_tokens", -- OLMo-core
  ["lm_head.norm"] = "model.norm",
  ["lm_head.w_out"] = "lm_head",
}
local BLOCK = { -- a list: parts of a fused projection, in order
  att_proj = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" },
  ff_proj = { "mlp.up_proj", "mlp.gate_proj" },
  q_proj = "self_attn.q_proj", -- block_type llama
  k_proj = "self_attn.k_proj",
  v_proj = "self_attn.v_proj",
  attn_out = "self_attn.o_proj",
  ff_out = "mlp.down_proj",
  q_norm = "self_attn.q_norm",
  k_norm = "self_attn.k_norm",
  ["attention.w_q"] = "self_attn.q_proj", -- OLMo-core
  ["attention.w_k"] = "self_attn.k_proj",
  ["attention.w_v"] = "self_attn.v_proj",
  ["attention.w_out"] = "self_attn.o_proj",
  ["attention.q_norm"] = "self_attn.q_norm",
  ["attention.k_norm"] = "self_attn.k_norm",
  ["feed_forward.w1"] = "mlp.gate_proj",
  ["feed_forward.w2"] = "mlp.down_proj",
  ["feed_forward.w3"] = "mlp.up_proj",
}
local NORMS = {
  olmo2 = { "post_attention_layernorm", "post_feedforward_layernorm" },
  olmo = { "input_layernorm", "post_attention_layernorm" },
}

--- Number and leaf of a block's weight; groups of blocks hold `size` each.
local function block(name, size)
  local group, within, rest = name:match("^transformer%.block_groups%.(%d+)%.(%d+)%.(.+)$")
  if group then
    return group * (size or 1) + within, rest
  end
  local layer, leaf = name:match("^transformer%.blocks%.(%d+)%.(.+)$")
  if not layer then
    layer, leaf = name:match("^blocks%.(%d+)%.(.+)$")
  end
  return layer and math.tointeger(layer), leaf
end

local function config_of(out, model, arch, layers, heads)
  local embed, first = out["model.embed_tokens.weight"], "model.layers.0."
  local q, k = out[first .. "self_attn.q_proj.weight"], out[first .. "self_attn.k_proj.weight"]
  local up = out[first .. "mlp.up_proj.weight"]
  local eos = model.eos_token_id
  return {
    architectures = { arch == "olmo" and "OlmoForCausalLM" or "Olmo2ForCausalLM" },
    model_type = arch,
    vocab_size = embed.shape[1],
    hidden_size = embed.shape[2],
    intermediate_size = up.shape[1],
    num_hidden_layers = layers,
    num_attention_heads = heads,
    num_key_value_heads = k.shape[1] // (q.shape[1] // heads),
    max_position_embeddings = model.max_sequence_length,
    rope_theta = model.rope_theta or 10000,
    rms_norm_eps = arch == "olmo2" and (model.layer_norm_eps or 1e-5) or nil,
    clip_qkv = arch == "olmo" and model.clip_qkv or nil,
    pad_token_id = model.pad_token_id,
    -- a known mistake of OLMo's configs, which transformers' own converter mends too
    eos_token_id = eos == 0 and embed.shape[1] > 50279 and 50279 or eos,
    tie_word_embeddings = out["lm_head.weight"] == nil,
    torch_dtype = ({ F32 = "float32", BF16 = "bfloat16", F16 = "float16" })[embed.dtype],
  }
end

--- What config.yaml asks for and transformers' class of this kind does not do: weights alone would
--- not tell.
local function unlike(model, arch)
  local list = {}
  local function hold(key, fits)
    if model[key] ~= nil and not fits then
      list[#list + 1] = ("%s: %s"):format(key, model[key])
    end
  end
  local norm = model.layer_norm_type
  hold("layer_norm_type", arch == "olmo2" and norm == "rms" or arch == "olmo" and norm ~= "rms")
  hold("layer_norm_eps", arch == "olmo2" or model.layer_norm_eps == 1e-5)
  hold("activation_type", model.activation_type == "swiglu")
  hold("clip_qkv", arch == "olmo")
  hold("alibi", not model.alibi)
  hold("rope", model.rope)
  hold("scale_logits", not model.scale_logits)
  return list
end

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Write an OLMo checkpoint as a Hugging Face model",
  options = {
    heads = { default = 0, about = "attention heads, where no config.yaml says it" },
    kv_heads = { default = 0, about = "heads of keys and values, to be held against the shapes" },
    max_shard_size = "5GB",
  },

  plan = function(cat, plan, opt)
    local file = cat:file("config.yaml")
    local model = file and olmo.section(file.root, "model") or {}
    local rows = cat:role("model"):rename(names.unwrap)
    local affine, inner, size, layers = false, false, model.block_group_size, 0
    for name in pairs(rows) do
      affine = affine or name:match("ln_f") or name:match("norm")
      inner = inner or name:match("q_norm")
    end
    local arch = (inner or model.norm_after) and "olmo2" or "olmo"
    local after = file and model.norm_after or not file and inner
    if arch == "olmo2" and not after or arch == "olmo" and affine then
      local text = "transformers has no %s with such norms (norm_after: %s): only names are right"
      plan:note(text:format(arch, tostring(model.norm_after or false)))
    end
    local others = unlike(model, arch)
    if #others > 0 then
      local text = "transformers' %s computes otherwise than config.yaml says (%s)"
      plan:note(text:format(arch, table.concat(others, ", ")))
    end
    local norms, out = NORMS[arch], {}
    BLOCK.attn_norm, BLOCK.ff_norm = norms[1], norms[2]
    BLOCK.attention_norm, BLOCK.feed_forward_norm = norms[1], norms[2]
    for name, row in pairs(rows) do
      local layer, leaf = block(name, size)
      local stem = (leaf or name):match("^(.*)%.weight$")
      local to = stem and (layer and BLOCK[stem] or not layer and TOP[stem])
      if not to then
        plan:refuse(name .. " has no Hugging Face name")
      elseif to == "lm_head" and model.weight_tying then
        plan:drop(row, "the same as the embedding")
      elseif not layer then
        out[to .. ".weight"] = row.view
      else
        layers = math.max(layers, layer + 1)
        local parts, within = { row.view }, ("model.layers.%d."):format(layer)
        if stem == "att_proj" then
          local width = row.shape[2]
          local kv = (row.shape[1] - width) // 2
          if opt.kv_heads > 0 and kv * opt.heads ~= width * opt.kv_heads then
            plan:refuse(("%s does not hold %d heads of keys"):format(name, opt.kv_heads))
          end
          parts = { row.view:split({ width, kv, kv }) }
        elseif stem == "ff_proj" then
          local half = row.shape[1] // 2
          local down = rows:find((name:gsub("ff_proj", "ff_out")))
          if down and down.shape[2] ~= half then
            plan:refuse(name .. " is no gate and up projection in one: not SwiGLU")
          end
          parts = { row.view:split({ half, half }) }
        end
        for i, part in ipairs(type(to) == "table" and to or { to }) do
          out[within .. part .. ".weight"] = parts[i]
        end
      end
    end
    plan:write("model.safetensors", out, { max_shard_size = opt.max_shard_size })
    local heads = opt.heads > 0 and opt.heads or model.n_heads
    if heads and out["model.embed_tokens.weight"] then
      plan:write("config.json", config_of(out, model, arch, layers, heads))
    else
      plan:note("no config.json: neither config.yaml nor --heads says how many heads there are")
    end
    plan:copy("tokenizer*", "special_tokens_map.json", "generation_config.json")
    plan:drop(cat, "a Hugging Face model holds the weights alone")
  end,
}
