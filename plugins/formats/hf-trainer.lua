--- What transformers' Trainer and accelerate's save_state leave: weights as Hugging Face has them
--- and an optimizer's file (or, with FSDP, folders of DCP for both), schedulers, scalers, and each
--- rank's random states. Of several models or optimizers the later ones are numbered: model_1.
--- Sources: huggingface/transformers trainer.py; huggingface/accelerate checkpointing.py,
--- utils/constants.py.
local dcp = require("formats.torch-dcp")
local index = require("ckptflow.index")
local names = require("ckptflow.names")
local torch = require("ckptflow.torch")

local INDICES = { "model.safetensors.index.json", "pytorch_model.bin.index.json" }
local WEIGHTS = {
  "model.safetensors",
  "model-{part}-of-*.safetensors",
  "model_{number}.safetensors",
  "pytorch_model.bin",
  "pytorch_model-{part}-of-*.bin",
  "pytorch_model_{number}.bin",
  "pytorch_model_fsdp.bin",
}
local FOLDER = "pytorch_model_fsdp_*/.metadata"
local OPTIMIZERS =
  { "optimizer.pt", "optimizer.bin", "optimizer_{number}.pt", "optimizer_{number}.bin" }
local REST = {
  "scheduler*.pt",
  "scheduler*.bin",
  "scaler.pt",
  "sampler*.bin",
  "dl_state_dict*.bin",
  "custom_checkpoint_*.pkl",
  "training_args.bin",
  "trainer_state.json",
}
local RANDOM = { "rng_state.pth", "rng_state_{rank}.pth", "random_states_{rank}.pkl" }

--- What the keys of a file begin with: "model." or, of pytorch_model_1.bin, "model_1.".
local function prefix(file, box)
  return box .. (file.number and "_" .. file.number or "") .. "."
end

local function read_weights(file, out, dir)
  for _, name in ipairs(file.part and INDICES or {}) do
    index.check(file, dir, name)
  end
  local before = prefix(file, "model")
  for key, node in file:walk() do
    torch.put(out, before .. key, node, file)
    out:name(before .. key, "model", file.number and before .. key or key)
  end
end

local function read_optimizer(file, out)
  local before = prefix(file, "optimizer")
  for key, node in file:walk() do
    torch.put(out, before .. key, node, file)
  end
  names.put_ids(out, file.root, before, file.number)
end

local function read_rest(file, out)
  local box = file.name:match("^(.*)%.%w+$")
  box = file.rank and box:gsub("_%d+$", "") or box
  for key, node in file:walk() do
    torch.put(out, key == "" and box or box .. "." .. key, node, file)
  end
end

---@type ckptflow.Format
return {
  api = 1,
  about = "transformers' Trainer, accelerate's save_state: weights, optimizer, random states",
  roles = dcp.roles,

  detect = function(dir)
    local weights = dir:glob(FOLDER, table.unpack(WEIGHTS))[1]
    local optimizer = dir:glob(table.unpack(OPTIMIZERS))[1] or dir:glob(table.unpack(RANDOM))[1]
    if weights and (optimizer or dir:has("trainer_state.json")) then
      local what = optimizer and optimizer.name or "trainer_state.json"
      return 65, what .. " beside " .. weights.name
    end
  end,

  files = function(dir)
    local list = dir:has(FOLDER) and dcp.files(dir)
      or index.complete(dir, dir:glob(table.unpack(WEIGHTS)))
    for _, name in ipairs(INDICES) do
      if dir:has(name) then
        index.files(dir, name) -- an error if one is missing
      end
    end
    for _, globs in ipairs({ OPTIMIZERS, REST, RANDOM }) do
      local more = dir:glob(table.unpack(globs))
      table.move(more, 1, #more, #list + 1, list)
    end
    return list
  end,

  read = function(file, out, dir)
    if file.name:find("%.metadata$") then
      dcp.read(file, out, dir)
    elseif file.name:find("^model") or file.name:find("^pytorch_model") then
      read_weights(file, out, dir)
    elseif file.name:find("^optimizer") then
      read_optimizer(file, out)
    else
      read_rest(file, out)
    end
  end,
}
