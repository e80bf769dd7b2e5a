--- Cirrascale: a Beaker result, or a checkpoint that was copied out of one to the shared NFS.
---
--- Seen in public sources: allenai/OLMo scripts (gantry run, save folders below
--- /net/nfs.cirrascale/... and in /results, step<N> and step<N>-unsharded folders); rank files as
--- on any cluster. NFS keeps a file that was removed while open as .nfs<hex>.
--- Assumed: that whole results were copied, with several steps in them; that rank files were
--- compressed for storage on some (rank<R>.pt.zst, .gz); that a copy went on by night and left both
--- forms, .tmp files or a step in part. No file from there was seen.
---
--- Does: takes the newest whole step wherever the copy put it (also below results/), plain files
--- before compressed ones. Where none is whole and only one is there, says what that one lacks, and
--- which file looks as if it was still being written.
local ranks = require("formats.rank-files")
local steps = require("ckptflow.steps")

local FLAT = { "rank{rank}.pt", "results/rank{rank}.pt" }
local STEPS = { "results/step{step}/rank{rank}.pt", "step{step}/rank{rank}.pt" }

---@type ckptflow.Format
return {
  api = 1,
  about = "Cirrascale: rank files of a Beaker result on NFS",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    local flat = #dir:glob(table.unpack(FLAT)) > 0
    if dir:has("results/**") and (flat or dir:has("results/step{step}/rank{rank}.pt")) then
      return 65, "rank files of a Beaker result"
    elseif dir:has("**.nfs*") and (flat or dir:has("step{step}/rank{rank}.pt")) then
      return 65, "rank files on NFS"
    end
  end,

  files = function(dir)
    for _, pattern in ipairs(FLAT) do
      local list = dir:glob(pattern)
      if #list > 0 then
        return list
      end
    end
    local list = steps.list(dir, table.unpack(STEPS))
    return #list == 1 and list[1].files or steps.whole(dir, table.unpack(STEPS)).files
  end,

  read = ranks.read,
}
