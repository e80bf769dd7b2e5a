--- A Hugging Face OLMo model (`olmo`, `olmo2`) as OLMo names it: the way back from olmo_to_hf.lua.
--- Source: as there.
local TOP = {
  ["model.embed_tokens"] = "transformer.wte",
  ["model.norm"] = "transformer.ln_f",
  ["lm_head"] = "transformer.ff_out",
}
local BLOCK = {
  ["self_attn.o_proj"] = "attn_out",
  ["mlp.down_proj"] = "ff_out",
  ["self_attn.q_norm"] = "q_norm",
  ["self_attn.k_norm"] = "k_norm",
}
local FUSED = { -- by the first of the parts
  ["self_attn.q_proj"] = { "att_proj", "self_attn.k_proj", "self_attn.v_proj" },
  ["mlp.up_proj"] = { "ff_proj", "mlp.gate_proj" },
}

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Write a Hugging Face OLMo model under OLMo's names",
  options = { max_shard_size = { type = "string", about = "split the file, as 5GB or 512MiB" } },

  plan = function(cat, plan, opt)
    local out, model = {}, cat:role("model")
    local after = model:find("model.layers.0.post_feedforward_layernorm.weight")
    BLOCK[after and "post_attention_layernorm" or "input_layernorm"] = "attn_norm"
    BLOCK[after and "post_feedforward_layernorm" or "post_attention_layernorm"] = "ff_norm"
    for name, row in pairs(model) do
      local layer, leaf = name:match("^model%.layers%.(%d+)%.(.+)%.weight$")
      local top = TOP[name:match("^(.*)%.weight$") or name]
      if FUSED[leaf] then
        local views = { row.view }
        for i = 2, #FUSED[leaf] do
          local part = ("model.layers.%s.%s.weight"):format(layer, FUSED[leaf][i])
          views[i] = (model:find(part) or plan:refuse(part .. " is missing")).view
        end
        out[("transformer.blocks.%s.%s.weight"):format(layer, FUSED[leaf][1])] = plan:concat(views)
      elseif BLOCK[leaf] then
        out[("transformer.blocks.%s.%s.weight"):format(layer, BLOCK[leaf])] = row.view
      elseif top then
        out[top .. ".weight"] = row.view
      elseif leaf == "self_attn.rotary_emb.inv_freq" or name:match("rotary_emb%.inv_freq$") then
        plan:drop(row, "computed")
      end -- a row that found no name is an error by itself
    end
    plan:write("model.safetensors", out, { max_shard_size = opt.max_shard_size })
    plan:drop(cat:values(), "a model's weights alone")
  end,
}
