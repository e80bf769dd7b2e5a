--- One file of torch.save, zip or legacy stream, or a plain pickle of arrays: the state dict of a
--- model or of an optimizer, or a dict with a model, an optimizer and more.
local lone = require("ckptflow.lone")
local names = require("ckptflow.names")
local torch = require("ckptflow.torch")

local MODEL = { "model", "state_dict", "module", "model_state_dict" }
local SUFFIXES = { "*.pt", "*.pth", "*.bin", "*.ckpt" }
local TENSORS = { tensor = true, ShardedTensor = true, DTensor = true }
local OPTIM = {
  "optimizer",
  "optim",
  "optimizer_state_dict",
  "optimizer_states", -- Lightning: a list
  "last_optimizer_state", -- fairseq
}

--- Which tensor a file has first; nothing if it has parts of some: then it is a rank's.
local function first_of(file)
  local first
  for key, leaf in file:walk() do
    local kind = class(leaf)
    if kind == "tensor" then
      first = first or key
    elseif TENSORS[kind] then
      return nil
    end
  end
  return first
end

--- Files that begin alike are saves of one model, not parts of it: one of them, if a name says
--- which (last.ckpt, checkpoint_last.pt, latest.pt: a copy, or a link).
local function one_save(dir, list)
  local first = first_of(list[1])
  if not first or first_of(list[2]) ~= first then
    return list
  end
  for _, file in ipairs(list) do
    if file.name:match("^last%.") or file.name:match("^latest") or file.name:match("_last%.") then
      dir:note(("%s is taken, of %d files of one model"):format(file.name, #list))
      return { file }
    end
  end
  dir:refuse(
    ("%d files of one model are here: %s, %s"):format(#list, list[1].name, list[2].name)
      .. (#list > 2 and " ..." or ""),
    "give the file that is meant",
    "E_META_CONFLICT"
  )
end

---@type ckptflow.Format
return {
  api = 1,
  about = "a file of torch.save: .pt, .pth, .bin, .ckpt",

  detect = function(dir)
    local file = dir:glob(table.unpack(SUFFIXES))[1]
    local one = not file and lone.file(dir, "torch", "pickle")
    if one then
      return 45, one.name .. " holds a " .. (one.kind == "torch" and "torch.save" or one.kind)
    elseif file then
      return 20, file.name
    end
  end,

  files = function(dir)
    local list = lone.files(dir, SUFFIXES, "torch", "pickle")
    return #list > 1 and one_save(dir, list) or list
  end,

  read = function(file, out)
    local root, boxed = file.root, false
    if class(root) ~= "dict" then
      local key, leaf = file:walk()()
      if key == "" and not TENSORS[class(leaf)] then
        file:refuse("a " .. class(root) .. ", not a state dict", nil, "E_TYPE")
      end
      return torch.read(file, out)
    end
    torch.read(file, out)
    if class(root.state) == "dict" and class(root.param_groups) == "list" then
      return names.put_ids(out, root, "") -- an optimizer alone
    end
    for _, box in ipairs(MODEL) do
      if class(root[box]) == "dict" then
        boxed = true
        for name in file:walk(root[box]) do
          out:name(box .. "." .. name, "model", name)
        end
      end
    end
    if not boxed then
      for name in file:walk() do
        out:name(name, "model", name)
      end
    end
    for _, box in ipairs(boxed and OPTIM or {}) do
      local optim = root[box]
      if class(optim) == "dict" and optim.param_groups then
        names.put_ids(out, optim, box .. ".")
      end
      for i, each in pairs(class(optim) == "list" and optim or {}) do
        names.put_ids(out, each, ("%s.%d."):format(box, i - 1), i > 1)
      end
    end
  end,
}
