--- A checkpoint of Composer's HuggingFaceModel, as LLM-foundry trains it, as the Hugging Face model
--- inside: the wrapper's `model.` goes, config.json comes out of the state of its integration. The
--- tokenizer in there is left out.
--- Source: mosaicml/llm-foundry scripts/inference/convert_composer_to_hf.py; mosaicml/composer
--- composer/models/huggingface.py, get_metadata.
local names = require("ckptflow.names")

local INSIDE = "state.integrations.huggingface."

--- The config in `rows`, whose keys are paths.
local function config_of(rows)
  local config, prefix = {}, #(INSIDE .. "model.config.content.")
  for key, row in pairs(rows) do
    local at, path = config, {}
    for part in key:sub(prefix + 1):gmatch("[^.]+") do
      path[#path + 1] = part
    end
    for i = 1, #path - 1 do
      at[path[i]] = at[path[i]] or {}
      at = at[path[i]]
    end
    at[path[#path]] = row.value
  end
  return config
end

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Write a Composer or LLM-foundry checkpoint as the Hugging Face model inside",
  options = { max_shard_size = "5GB" },

  plan = function(cat, plan, opt)
    local model = cat:role("model"):tensors():rename(names.unwrap)
    local bare = model:rename(function(name)
      return (name:gsub("^model%.", ""))
    end)
    -- all of it or nothing: a wrapper has every weight below `model.`
    if #model:match("model.*") < #model then
      bare = model
    end
    plan:write("model.safetensors", bare, { max_shard_size = opt.max_shard_size })
    local config = cat:match(INSIDE .. "model.config.content.*"):values()
    if #config > 0 then
      plan:write("config.json", config_of(config))
    else
      plan:note("no config.json: " .. INSIDE .. "model.config is not in the checkpoint")
    end
    plan:copy("tokenizer*", "special_tokens_map.json")
    plan:drop(cat, "a Hugging Face model holds the weights and the config alone")
  end,
}
