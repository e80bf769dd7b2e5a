--- Cirrascale: a checkpoint copied to the shared NFS from a Beaker result, where other files of the
--- copy lie among the rank files.
---
--- Seen in public sources: allenai/OLMo scripts (gantry run, checkpoints below
--- /net/nfs.cirrascale/... and in /results, step<N> and step<N>-unsharded folders); rank files as
--- on any cluster. NFS keeps a file that was removed while open as .nfs<hex>.
--- Assumed: that rank files were compressed for storage on some (rank<R>.pt.zst, .gz); that a copy
--- that went on by night left both forms or .tmp files. No file from there was seen.
---
--- Does: reads rank files of one step wherever the copy put them (also `results/`), plain ones
--- before compressed ones; says of what was left by a copy that it is there, and refuses only if a
--- rank is not there without it.
local ranks = require("formats.rank-files")

local PLACES = { "rank{rank}.pt", "results/rank{rank}.pt", "results/step{step}/rank{rank}.pt" }

--- The rank files of the first place that has any; of several steps there it is not ours to choose.
local function found(dir)
  for _, pattern in ipairs(PLACES) do
    local list = dir:glob(pattern)
    if #list > 0 then
      return list
    end
  end
  return {}
end

---@type ckptflow.Format
return {
  api = 1,
  about = "Cirrascale: rank files of a Beaker result on NFS",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    if #found(dir) > 0 and dir:has("results/**") then
      return 65, "rank files of a Beaker result"
    elseif #found(dir) > 0 and dir:has("**.nfs*") then
      return 65, "rank files on NFS"
    end
  end,

  files = function(dir)
    local list = found(dir)
    for _, file in ipairs(list) do
      if file.step ~= list[1].step then
        dir:refuse(
          ("steps %d and %d are both here"):format(list[1].step, file.step),
          "name the folder of one of them"
        )
      end
    end
    return list
  end,

  read = function(file, out, dir)
    local world = file.root.world_size
    if world and #found(dir) < world then
      for _, left in ipairs(dir:glob("**.tmp", "**.part", "**.nfs*")) do
        file:refuse(
          ("%d of %d rank files are here, and %s"):format(#found(dir), world, left.name),
          "the copy has not finished: copy again",
          "E_MISSING_FILE"
        )
      end
    end
    ranks.read(file, out, dir)
  end,
}
