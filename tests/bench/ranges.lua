--- The bench's own layout: rank<N>.pt with one flat vector a rank and what lies in it, as FSDP's
--- flat parameters are, without FSDP's bookkeeping. For --plugin.
local flat = require("ckptflow.flat")

---@type ckptflow.Format
return {
  api = 1,
  about = "flat vectors of the benchmarks",
  roles = { { "model", "model.{name}" } },

  detect = function(dir)
    local file = dir:glob("rank{rank}.pt")[1]
    if file and file.root.flat and file.root.params then
      return 90, "rank<N>.pt with flat and params"
    end
  end,

  files = function(dir)
    return dir:glob("rank{rank}.pt")
  end,

  read = function(file, out)
    local params = {}
    for _, p in pairs(file.root.params) do
      params[#params + 1] = { key = p.key, shape = p.shape, at = p.at }
    end
    out:world(file.root.world_size)
    flat.cut(out, file.root.flat, file.root.start, params, "model.%s")
  end,
}
