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

--- Without an index the names say how many there are: x-00002-of-00005. A part that is missing is
--- an error; of DCP's shard-<rank + 1>-x-00002-of-00005 one that no rank has (a rank writes no part
--- of which it has nothing).
function index.complete(dir, files)
  local have, all, first = {}, {}, {}
  for _, file in ipairs(files) do
    local head, part, count = file.name:match("^(.*)%-(%d+)%-of%-(%d+)%.%a+$")
    if head then
      head = head:gsub("shard%-%d+%-", "", 1)
      local set = head .. "-of-" .. count
      have[set] = have[set] or {}
      have[set][tonumber(part)] = true
      all[set], first[set] = tonumber(count), file.name
    end
  end
  for set, count in pairs(all) do
    for part = 1, math.min(count, 100000) do
      if not have[set][part] then
        dir:refuse(
          ("part %d of %d is missing beside %s"):format(part, count, first[set]),
          "the copy or the download did not finish"
        )
      end
    end
  end
  return files
end

return index
