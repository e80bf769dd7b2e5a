--- numpy: an .npz, whose members name the arrays; several, with the file's path before; .npy files,
--- each an array under its path.
--- Source: numpy/lib/_format_impl.py, numpy/lib/_npyio_impl.py.
local torch = require("ckptflow.torch")

local function files(dir)
  return dir:glob("{path**}.npz", "{path**}.npy")
end

---@type ckptflow.Format
return {
  api = 1,
  about = "numpy arrays: .npz, .npy",
  roles = { { "model", "{name}" } },

  detect = function(dir)
    local file = files(dir)[1]
    if file then
      return 20, file.name
    end
  end,

  files = files,

  read = function(file, out, dir)
    local alone = file.name:match("%.npz$") and #files(dir) == 1
    for key, node in file:walk() do
      local within = key == "" and file.path or file.path .. "." .. key
      torch.put(out, alone and key or within, node, file)
    end
  end,
}
