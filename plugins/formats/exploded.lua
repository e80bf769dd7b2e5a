--- What explode.lua wrote: a file a piece, its place in the safetensors header, whatever its path;
--- ranks/<N>.json for each rank that is there, values/<N>.json with the values of rank N. In one
--- folder, or in one a rank.
local json = require("ckptflow.json")

local function numbers(text)
  local list = {}
  for n in text:gmatch("%d+") do
    list[#list + 1] = math.tointeger(tonumber(n))
  end
  return list
end

local function read_piece(file, out)
  local meta, data = file.meta, file.root.data
  if not (meta.key and meta.at and data) then
    file:refuse("no piece: its header has no place in a tensor", "explode writes one")
  end
  if meta.kind == "range" then
    out:range(meta.key, numbers(meta.shape), numbers(meta.at)[1], data)
  else
    out:piece(meta.key, meta.shape and numbers(meta.shape), numbers(meta.at), data)
  end
  out:name(meta.key, meta.role, meta.name)
end

---@type ckptflow.Format
return {
  api = 1,
  about = "pieces written by explode: one file each",
  roles = { { "model", "model.{name}" }, { "optim", "optim.state.{name}" } },

  detect = function(dir)
    if dir:has("ranks/{rank}.json") and dir:has("values/{rank}.json") then
      return 95, "ranks/<N>.json beside values/<N>.json"
    end
  end,

  files = function(dir)
    local list = dir:glob("pieces/*/{rank}-{n}.safetensors")
    local here = {}
    for _, file in ipairs(list) do
      here[file.name] = true
    end
    for _, file in ipairs(dir:glob("ranks/{rank}.json")) do
      for _, name in pairs(file.root.pieces) do -- where all of a tensor's are gone
        if not here[name] then
          file:refuse("there is no " .. name, "copy the folder again", "E_MISSING_FILE")
        end
      end
    end
    for _, file in ipairs(dir:glob("values/{rank}.json", "ranks/{rank}.json")) do
      list[#list + 1] = file
    end
    return list
  end,

  read = function(file, out, dir)
    if file.folder == "ranks/" then
      out:world(file.root.world or #dir:glob("ranks/{rank}.json"))
    elseif file.folder == "values/" then
      local beside = file.name:gsub("json$", "safetensors")
      local function find(name)
        return dir:has(beside) and dir:file(beside).root[name]
      end
      for key, value in json.values(file, find) do
        out:value(key, value)
      end
    else
      read_piece(file, out)
    end
  end,
}
