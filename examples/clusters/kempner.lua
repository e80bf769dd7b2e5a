--- Kempner: checkpoints on scratch whose files are purged by age, saved by HYBRID_SHARD runs, where
--- each replica group holds the whole model.
---
--- Seen in public sources: allenai/OLMo scripts/kempner/*.sh (16 nodes of 4 ranks, Slurm,
--- save_folder=/n/holyscratch01/.../checkpoints/<job>/); --fsdp.sharding_strategy=HYBRID_SHARD with
--- one replica a node in scripts of the same trainer. Assumed: that HYBRID_SHARD was used there,
--- that scratch is purged by age, and what a purge takes. No file from there was seen.
---
--- Does: a missing rank is no fault as long as every tensor is whole without it: then another
--- replica has what it held. What only it had (its random state) is gone, and nobody asks for it.
--- Coverage is proved for every element all the same, replicas are compared, steps must agree.
local ranks = require("formats.rank-files")
local torch = require("ckptflow.torch")

local PLACES = { "rank{rank}.pt", "step{step}/rank{rank}.pt", "{job}/step{step}/rank{rank}.pt" }

--- How many ranks there were, and those whose files are gone.
local function gone(list)
  local world, here, lost = list[1] and list[1].root.world_size, {}, {}
  for _, file in ipairs(list) do
    here[file.rank] = true
  end
  for rank = 0, (world or 0) - 1 do
    lost[#lost + 1] = not here[rank] and rank or nil
  end
  return world, lost
end

---@type ckptflow.Format
return {
  api = 1,
  about = "Kempner: rank files of HYBRID_SHARD runs, some purged",
  roles = ranks.roles,
  apart = true,

  -- lenient where others are strict: only where it was named, and for a folder that lacks ranks
  detect = function(dir)
    local list = dir:glob(table.unpack(PLACES))
    local world, lost = gone(list)
    if #lost > 0 then
      return 72, ("%d of %d ranks, what they held may be in a replica"):format(#list, world)
    end
  end,

  files = function(dir)
    local list = dir:glob(table.unpack(PLACES))
    for _, file in ipairs(list) do
      if file.folder ~= list[1].folder then
        dir:refuse(
          ("several steps are here: %s and %s"):format(list[1].folder, file.folder),
          "name the folder of one of them"
        )
      end
    end
    local world, lost = gone(list)
    if #lost > 0 then
      local which = table.concat(lost, ",", 1, math.min(#lost, 16)) .. (#lost > 16 and ",..." or "")
      dir:note(("%d of %d ranks are gone: %s; replicas must have it"):format(#lost, world, which))
    end
    return list
  end,

  read = function(file, out)
    local root = file.root
    out:same("global_step", root.global_step)
    out:same("world_size", root.world_size)
    torch.read(file, out)
  end,
}
