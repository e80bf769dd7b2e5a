--- OLMo `torch_legacy`: rank<N>.pt, one pickle per rank, tensors inside as ShardedTensor, the model
--- and the optimizer beside the state of the trainer.
--- Source: allenai/OLMo olmo/checkpoint.py, TorchLegacyShardedCheckpointer.
local olmo = require("ckptflow.olmo")
local ranks = require("formats.rank-files")

---@type ckptflow.Format
return {
  api = 1,
  about = "OLMo torch_legacy: rank<N>.pt with ShardedTensors",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    local file = dir:glob("rank{rank}.pt")[1]
    if file and file.root.model and file.root.optim then
      return 60, "rank<N>.pt with model and optim"
    end
  end,

  files = function(dir)
    olmo.agree(dir, "torch_legacy")
    return ranks.files(dir)
  end,

  read = ranks.read,
}
