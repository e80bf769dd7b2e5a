--- Hugging Face safetensors: one file, or the files that model.safetensors.index.json names. DCP's
--- HF writer adds the place of each shard (DCP_SHARDING_INFO) but not the whole shape, which is
--- then the hull of the shards, nor how many ranks there were: shard-<rank + 1>-model-<i>-of-<n>.
--- Sources: huggingface_hub serialization/_base.py; torch/distributed/checkpoint/hf_storage.py.
local index = require("ckptflow.index")
local json = require("ckptflow.json")
local lone = require("ckptflow.lone")

local INDEX = "model.safetensors.index.json"

--- What shards do not tell: whether a rank behind the last one is missing, and whether one in
--- between had nothing to write (its part of a tensor would be a hole).
local function note_ranks(dir, out, mine)
  local seen, last = {}, 0
  for _, file in ipairs(dir:glob("shard-{number}-model-*.safetensors")) do
    seen[file.number] = true
    last = math.max(last, file.number)
  end
  for number = 1, mine - 1 do
    if seen[number] then
      return -- it notes that
    end
  end
  out:note(
    ("whole shapes are not in the files, they are as large as shards 1 to %d reach: "):format(last)
      .. "a rank behind them would not be missed"
  )
  for number = 1, last do
    if not seen[number] then
      local one = "no shard %d of %d: its rank had nothing to write, or is missing"
      out:note(one:format(number, last))
      break
    end
  end
end

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
    local one = lone.file(dir, "safetensors") -- .bin, .ckpt, or without a suffix
    if one then
      return 45, one.name .. " holds safetensors"
    end
  end,

  files = function(dir)
    return dir:has(INDEX) and index.files(dir, INDEX)
      or index.complete(dir, lone.files(dir, { "*.safetensors" }, "safetensors"))
  end,

  read = function(file, out, dir)
    index.check(file, dir, INDEX)
    local places = file.meta.DCP_SHARDING_INFO and json.decode(file.meta.DCP_SHARDING_INFO)
    local shard = places and tonumber(file.name:match("shard%-(%d+)%-model%-[^/]*$"))
    if shard then
      out:rank(shard - 1)
      note_ranks(dir, out, shard)
    end
    for key, view in pairs(file.root) do
      local place = places and places[key]
      if place and class(place.saved_offsets) == "list" then
        out:piece(key, nil, place.saved_offsets, view)
      elseif places then
        file:refuse("DCP_SHARDING_INFO has no place for " .. key, nil, "E_META_CONFLICT")
      else
        out:tensor(key, view)
      end
    end
  end,
}
