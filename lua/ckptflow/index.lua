--- The index of Hugging Face's sharded files: JSON whose `weight_map` says which shard holds which
--- tensor. Source: huggingface_hub serialization/_base.py.
local index = {}

local function weight_map(dir, name)
  local file = dir:file(name)
  local map = class(file.root) == "dict" and file.root.weight_map
  if class(map) ~= "dict" then
    file:refuse("there is no weight_map in it", "it is not the index of a sharded model", "E_JSON")
  end
  return map
end

--- The shards that the index called `name` lists, each once.
function index.files(dir, name)
  local list, seen = {}, {}
  for key, shard in pairs(weight_map(dir, name)) do
    if type(shard) ~= "string" then
      dir:file(name):refuse("the shard of " .. key .. " is a " .. class(shard), nil, "E_JSON")
    end
    if not seen[shard] then
      seen[shard] = true
      list[#list + 1] = dir:file(shard)
    end
  end
  return list
end

--- Holds a shard against the index: it has what the index says, and nothing of another shard.
function index.check(file, dir, name)
  if not dir:has(name) then
    return
  end
  local function conflict(what, shard)
    file:refuse(what .. ", " .. name .. " says " .. shard, nil, "E_META_CONFLICT")
  end
  local map = weight_map(dir, name)
  for key, shard in pairs(map) do
    if shard == file.name and file.root[key] == nil then
      conflict(key .. " is not in this shard", "it is")
    end
  end
  for key in pairs(file.root) do
    if map[key] and map[key] ~= file.name then
      conflict(key .. " is in this shard", "in " .. map[key])
    end
  end
end

return index
