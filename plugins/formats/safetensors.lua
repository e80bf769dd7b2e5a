--- Hugging Face safetensors: one file, or the files that model.safetensors.index.json names. DCP's
--- HF writer adds the place of each shard (DCP_SHARDING_INFO) but not the whole shape, which is
--- then the hull of the shards.
--- Sources: huggingface_hub serialization/_base.py; torch/distributed/checkpoint/hf_storage.py.
local index = require("ckptflow.index")
local json = require("ckptflow.json")

local INDEX = "model.safetensors.index.json"

---@type ckptflow.Format
return {
  api = 1,
  about = "Hugging Face safetensors, with or without an index",
  roles = { { "model", "{name}" } },

  detect = function(dir)
    if dir:has(INDEX) then
      return 60, INDEX
    elseif dir:has("*.safetensors") then
      return 40, "*.safetensors"
    end
  end,

  files = function(dir)
    return dir:has(INDEX) and index.files(dir, INDEX)
      or index.complete(dir, dir:glob("*.safetensors"))
  end,

  read = function(file, out, dir)
    index.check(file, dir, INDEX)
    local places = file.meta.DCP_SHARDING_INFO and json.decode(file.meta.DCP_SHARDING_INFO)
    for key, view in pairs(file.root) do
      if places then
        out:piece(key, nil, places[key].saved_offsets, view)
      else
        out:tensor(key, view)
      end
    end
  end,
}
