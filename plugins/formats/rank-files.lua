--- Files of torch.save, one a rank: rank<N>.pt, at the top or in model/. Each is a dict of
--- anything, with ShardedTensors or DTensors where a tensor is cut. Without a `model` or `optim` in
--- it the dict itself is the model.
local torch = require("ckptflow.torch")

--- What every rank of one save says alike.
local identity = { "global_step", "step", "iteration", "epoch" }

local function files(dir)
  local list = dir:glob("rank{rank}.pt")
  return #list > 0 and list or dir:glob("model/rank{rank}.pt")
end

---@type ckptflow.Format
return {
  api = 1,
  about = "rank files of torch.save, one a rank",
  roles = { { "model", "model.{name}" }, { "optim", "optim.state.{name}" } },
  apart = true,

  detect = function(dir)
    if dir:has("rank{rank}.pt") then
      return 55, "rank<N>.pt" -- also when rank 0 is the one that is missing
    elseif dir:has("model/rank{rank}.pt") and not dir:has("optim/rank{rank}.pt") then
      return 55, "model/rank<N>.pt"
    end
  end,

  files = files,

  read = function(file, out, dir)
    local root = file.root
    if class(root) ~= "dict" then
      file:refuse("a " .. class(root) .. ", not a state dict", nil, "E_TYPE")
    end
    for _, key in ipairs(identity) do
      if type(root[key]) == "number" then
        out:same(key, root[key])
      end
    end
    local _, world = torch.read(file, out, root.world_size)
    world = root.world_size or world
    if not world then
      local list = files(dir)
      world = list[#list].rank + 1
    end
    out:world(world)
    if root.model == nil and root.optim == nil then
      for name in file:walk() do
        out:name(name, "model", name)
      end
    end
  end,
}
