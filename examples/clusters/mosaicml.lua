--- MosaicML: OLMo's trainer on nodes without a shared disk; a folder for each node, as an rsync
--- or a download per node leaves it: <node>/rank<R>.pt or <node>/step<N>/rank<R>.pt, or several
--- CKPT.
---
--- Seen in public sources: allenai/OLMo configs/mcli/*.yaml (torchrun, 8 ranks a node, 216 A100 or
--- 256 H100, images mosaicml/pytorch 2.0.1 to 2.2.1, save_folder on the node's own disk and
--- remote_save_folder in a bucket); olmo/train.py: `checkpoints`, `unsharded_checkpoints` and
--- `ephemeral_checkpoints` keep the paths that are folders on that node, so they differ between
--- nodes. 216 is no power of two: shards are uneven, and some ranks hold none.
--- Assumed: the names of the folders of nodes, any text. No file from there was seen.
---
--- Does: finds rank files in the folders of all nodes, of the newest whole step where there are
--- several; whose they are is known by what is inside; lists of local paths are rank 0's alone
--- (what a node's disk held is of no use elsewhere), so that they are no difference that hides
--- others; random states stay per rank.
local ranks = require("formats.rank-files")
local steps = require("ckptflow.steps")
local torch = require("ckptflow.torch")

local STEPS = { "step{step}/rank{rank}.pt", "{node*}/step{step}/rank{rank}.pt" }
local LOCAL = { checkpoints = true, unsharded_checkpoints = true, ephemeral_checkpoints = true }

--- Rank files that lie in no folder of a step.
local function flat(dir)
  local list = {}
  for _, file in ipairs(dir:glob("rank{rank}.pt", "{node*}/rank{rank}.pt")) do
    list[#list + 1] = not (file.node or ""):find("^step%d+$") and file or nil
  end
  return list
end

---@type ckptflow.Format
return {
  api = 1,
  about = "MosaicML: rank files in a folder for each node",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    local saves = steps.list(dir, table.unpack(STEPS))
    table.insert(saves, 1, { files = flat(dir) })
    for _, save in ipairs(saves) do
      local nodes, n = {}, 0
      for _, file in ipairs(save.files) do
        if file.node and not nodes[file.node] then
          nodes[file.node] = true
          n = n + 1
        end
      end
      -- with more files than ranks the folders are those of jobs that saved the same step
      if n > 1 and #save.files <= (save.files[1].root.world_size or #save.files) then
        return 70, ("rank files of %d nodes"):format(n)
      end
    end
  end,

  files = function(dir)
    local list = flat(dir)
    if #list > 0 then
      return list
    end
    local found = steps.list(dir, table.unpack(STEPS))
    return #found == 1 and found[1].files or steps.whole(dir, table.unpack(STEPS)).files
  end,

  read = function(file, out)
    local root = file.root
    out:same("global_step", root.global_step)
    local rank, world
    for _, node in file:walk() do
      rank, world = torch.process(node)
      if rank then
        break
      end
    end
    out:rank(rank)
    rank = rank or file.rank
    for key, node in file:walk() do
      if rank == 0 or not LOCAL[key] then
        torch.put(out, key, node, file)
      end
    end
    out:world(root.world_size or world)
  end,
}
