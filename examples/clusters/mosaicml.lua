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
--- Does: finds rank files in the folders of all nodes; whose they are is known by what is inside;
--- lists of local paths are rank 0's alone (what a node's disk held is of no use elsewhere), so
--- that they are no difference that hides others; random states stay per rank.
local ranks = require("formats.rank-files")
local torch = require("ckptflow.torch")

local PLACES = {
  "rank{rank}.pt",
  "{node*}/rank{rank}.pt",
  "step{step}/rank{rank}.pt",
  "{node*}/step{step}/rank{rank}.pt",
}
local LOCAL = { checkpoints = true, unsharded_checkpoints = true, ephemeral_checkpoints = true }

local function found(dir)
  return dir:glob(table.unpack(PLACES))
end

---@type ckptflow.Format
return {
  api = 1,
  about = "MosaicML: rank files in a folder for each node",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    local nodes, n = {}, 0
    for _, file in ipairs(found(dir)) do
      if file.node and not file.node:find("^step%d+$") and not nodes[file.node] then
        nodes[file.node] = true
        n = n + 1
      end
    end
    if n > 1 then
      return 70, ("rank files of %d nodes"):format(n)
    end
  end,

  files = found,

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
