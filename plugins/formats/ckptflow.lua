--- What ckptflow wrote: ckptflow-manifest.json says which files there are, and for each tensor and
--- value the key, role and name that the checkpoint had. Values come back as they were.
local json = require("ckptflow.json")

local MANIFEST = "ckptflow-manifest.json"

local function entries(dir)
  local file = dir:file(MANIFEST)
  local root = file.root
  if class(root) ~= "dict" or root.schema ~= "ckptflow.manifest/1" then
    file:refuse("this manifest is of another kind", nil, "E_JSON")
  end
  return root.files
end

--- The tensors inside the values of stem.json lie in stem.safetensors, or in its parts.
local function beside(path, stem)
  local rest = path:sub(1, #stem) == stem and path:sub(#stem + 1) or ""
  return rest == ".safetensors" or rest:find("^%-%d+%-of%-%d+%.safetensors$") ~= nil
end

--- Names the row of an entry, and gives its key. Of copies that one rank each had, only the name
--- tells them apart.
local function put_name(out, entry)
  local name = entry.name
  local key, role_name = entry.key or name, entry.role_name or name
  if name:match("^rank%d+%.(.+)$") == key then
    key, role_name = name, name
  end
  out:name(key, entry.role or "rest", role_name)
  return key
end

local function read_values(file, entry, out, dir)
  local stem, where, names = file.name:match("^(.*)%.json$"), {}, {}
  for _, other in pairs(entries(dir)) do
    for _, tensor in pairs(stem and beside(other.path, stem) and other.tensors or {}) do
      where[tensor.name] = other.path
    end
  end
  for _, value in pairs(entry.values) do
    names[value.name] = value
  end
  local function find(name)
    return where[name] and dir:file(where[name]).root[name]
  end
  for name, value in json.values(file, find) do
    out:value(names[name] and put_name(out, names[name]) or name, value)
  end
end

local function read_tensors(file, entry, out, dir)
  local values, root = {}, file.root
  for _, other in pairs(entries(dir)) do
    local stem = other.values and other.path:match("^(.*)%.json$")
    for _, value in pairs(stem and beside(file.name, stem) and other.values or {}) do
      values[value.name] = true
    end
  end
  for _, tensor in pairs(entry.tensors) do
    local name = tensor.name
    if not root[name] then
      file:refuse("there is no " .. name .. " in it, " .. MANIFEST .. " says there is")
    elseif not values[name:match("^(.*)#%d+$")] then
      out:tensor(put_name(out, tensor), root[name])
    end
  end
end

---@type ckptflow.Format
return {
  api = 1,
  about = "what ckptflow wrote, by its manifest",

  detect = function(dir)
    if dir:has(MANIFEST) then
      return 90, MANIFEST
    end
  end,

  files = function(dir)
    local list = {}
    for _, entry in pairs(entries(dir)) do
      if not dir:has(entry.path) then
        dir:refuse(
          entry.path .. " is missing, " .. MANIFEST .. " lists it",
          "--format safetensors reads what is there"
        )
      end
      local file = dir:file(entry.path)
      if file.size ~= entry.size then
        file:refuse(
          ("%d bytes, %s says %d"):format(file.size, MANIFEST, entry.size),
          "it was changed since"
        )
      end
      if entry.values or #entry.tensors > 0 then
        list[#list + 1] = file
      end
    end
    return list
  end,

  read = function(file, out, dir)
    for _, entry in pairs(entries(dir)) do
      if entry.path == file.name and entry.values then
        read_values(file, entry, out, dir)
      elseif entry.path == file.name then
        read_tensors(file, entry, out, dir)
      end
    end
  end,
}
