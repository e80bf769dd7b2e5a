--- numpy: an .npz, whose members name the arrays; several, with the file's path before; .npy files,
--- each an array under its path.
--- Source: numpy/lib/_format_impl.py, numpy/lib/_npyio_impl.py.
local lone = require("ckptflow.lone")
local torch = require("ckptflow.torch")

local function files(dir)
  return lone.files(dir, { "{path**}.npz", "{path**}.npy" }, "npz", "npy")
end

---@type ckptflow.Format
return {
  api = 1,
  about = "numpy arrays: .npz, .npy",
  roles = { { "model", "{name}" } },

  detect = function(dir)
    local file = files(dir)[1]
    if file and file.path then
      return 20, file.name
    elseif file then
      return 45, ("%s holds %s"):format(file.name, file.kind)
    end
  end,

  files = files,

  read = function(file, out, dir)
    local alone = class(file.root) == "dict" and #files(dir) == 1
    local path = file.path or file.name
    for key, node in file:walk() do
      local within = key == "" and path or path .. "." .. key
      torch.put(out, alone and key or within, node, file)
    end
  end,
}
