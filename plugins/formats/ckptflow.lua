--- What ckptflow wrote: ckptflow-manifest.json says which files there are, and for each tensor and
--- value the key, role and name that the checkpoint had. Values come back as they were.
local dcp = require("formats.torch-dcp")
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

--- What lies at the rest of a path in the value of its first step: as walk finds it, so that
--- nothing is lost of it; else (walk does not enter it, or enters more) by its steps.
local function below(file, whole, path)
  if not path or #path == 1 then
    return whole
  end
  local steps, node = {}, whole
  for i, step in pairs(path) do
    if i > 1 then
      local kind = class(node)
      steps[#steps + 1] = tostring(step)
      node = node[(kind == "list" or kind == "tuple") and step + 1 or step]
    end
  end
  local wanted = table.concat(steps, ".")
  for key, leaf in file:walk(whole) do
    if key == wanted then
      return leaf
    end
  end
  return node
end

local function read_values(file, entry, out, dir)
  local stem, where, names = file.name:match("^(.*)%.json$"), {}, {}
  for _, other in pairs(entries(dir)) do
    for _, tensor in pairs(stem and beside(other.path, stem) and other.tensors or {}) do
      where[tensor.name] = other.path
    end
  end
  for _, value in pairs(entry.values) do
    local top = value.path and value.path[1] or value.name
    names[top] = names[top] or {}
    table.insert(names[top], value)
  end
  local function find(name)
    return where[name] and dir:file(where[name]).root[name]
  end
  for name, whole in json.values(file, find) do
    for _, value in ipairs(names[name] or { { name = name } }) do
      out:value(names[name] and put_name(out, value) or name, below(file, whole, value.path))
    end
  end
end

local function read_tensors(file, entry, out, dir)
  local values, root = {}, file.root
  for _, other in pairs(entries(dir)) do
    local stem = other.values and other.path:match("^(.*)%.json$")
    for _, value in pairs(stem and beside(file.name, stem) and other.values or {}) do
      values[value.path and value.path[1] or value.name] = true
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

--- The key that walk gives to what the manifest says lies at a path of a torch file.
local function walked(entry)
  local steps = {}
  for i, step in pairs(entry.path or { entry.name }) do
    steps[i] = tostring(step)
  end
  return table.concat(steps, ".")
end

--- A value that walk enters, as a tensor lies in it.
local function at(file, entry)
  local node = file.root
  for _, step in pairs(entry.path or { entry.name }) do
    local kind = class(node)
    node = node[(kind == "list" or kind == "tuple") and step + 1 or step]
  end
  return node
end

--- A torch file, in its order: tensors, and values that no JSON file of ours has as they were.
local function read_torch(file, entry, out, dir)
  local told, known = {}, {}
  for _, other in pairs(entries(dir)) do
    for _, value in pairs(other.path:find("%.json$") and other.values or {}) do
      told[value.key or value.name] = true
    end
  end
  for _, value in pairs(entry.values or {}) do
    if not told[value.key or value.name] and (not value.left_out or value.left_out:find(": ")) then
      known[walked(value)] = { value = value }
    end
  end
  for _, tensor in pairs(entry.tensors) do
    known[walked(tensor)] = { tensor = tensor }
  end
  for key, leaf in file:walk() do
    local up, whole = key, known[key]
    while not whole and up:find(".", 1, true) do
      up = up:match("^(.*)%.")
      whole = known[up]
    end
    if whole and not whole.put then
      local said = whole.tensor or whole.value
      local node = up == key and leaf or at(file, said)
      if whole.tensor and class(node) ~= "tensor" then
        file:refuse("no tensor is called " .. said.name .. ", " .. MANIFEST .. " says there is one")
      end
      local put = class(node) == "tensor" and out.tensor or out.value -- arrays are tensors now
      put(out, put_name(out, said), node)
      whole.put = true
    end
  end
  for key, whole in pairs(known) do
    if not whole.put then
      file:refuse("there is no " .. key .. " in it, " .. MANIFEST .. " says there is")
    end
  end
end

--- DCP names its items itself; the manifest knows what they are to the framework.
local function read_dcp(file, out, dir)
  dcp.read(file, out, dir)
  local named = {}
  local function put(list)
    for _, entry in pairs(list or {}) do
      if not named[entry.name] then
        named[entry.name] = true
        out:name(entry.name, entry.role or "rest", entry.role_name or entry.name)
      end
    end
  end
  for _, entry in pairs(entries(dir)) do
    if entry.path:match("^(.-)[^/]*$") == file.folder and entry.path:match("%.distcp$") then
      put(entry.tensors)
      put(entry.values)
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
          "it was changed since; --format safetensors reads what is there, if cut with --salvage"
        )
      end
      local item = entry.path:match("%.distcp$") -- `.metadata` says what is in it
      if not item and (entry.values or #entry.tensors > 0 or file.name:match("%.metadata$")) then
        list[#list + 1] = file
      end
    end
    return list
  end,

  read = function(file, out, dir)
    if file.name:match("%.metadata$") then
      return read_dcp(file, out, dir)
    end
    for _, entry in pairs(entries(dir)) do
      local ours = file.name:find("%.json$") or file.name:find("%.safetensors$")
      if entry.path == file.name and file.name:find("%.npy$") then
        out:tensor(put_name(out, entry.tensors[1]), file.root)
      elseif entry.path == file.name and not ours then
        read_torch(file, entry, out, dir)
      elseif entry.path == file.name and entry.values then
        read_values(file, entry, out, dir)
      elseif entry.path == file.name then
        read_tensors(file, entry, out, dir)
      end
    end
  end,
}
