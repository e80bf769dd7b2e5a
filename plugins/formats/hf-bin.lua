--- Hugging Face .bin: pytorch_model.bin, or the pytorch_model-0000i-of-0000N.bin that
--- pytorch_model.bin.index.json names. Tied weights are two names of one storage.
local index = require("ckptflow.index")
local torch = require("ckptflow.torch")

local INDEX = "pytorch_model.bin.index.json"

---@type ckptflow.Format
return {
  api = 1,
  about = "Hugging Face pytorch_model*.bin",
  roles = { { "model", "{name}" } },

  detect = function(dir)
    local part = "pytorch_model-{part}-of-*.bin"
    if dir:has("pytorch_model.bin") or dir:has(INDEX) or dir:has(part) then
      return 35, "pytorch_model*.bin"
    end
  end,

  files = function(dir)
    return dir:has(INDEX) and index.files(dir, INDEX)
      or index.complete(dir, dir:glob("pytorch_model.bin", "pytorch_model-{part}-of-*.bin"))
  end,

  read = function(file, out, dir)
    if class(file.root) ~= "dict" then
      file:refuse("a " .. class(file.root) .. ", not a state dict", nil, "E_TYPE")
    end
    index.check(file, dir, INDEX)
    torch.read(file, out)
  end,
}
