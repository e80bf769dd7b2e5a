--- A file for every piece of every tensor, its place in the header:
--- pieces/<number>-<key>/<rank>-<n>.safetensors; values/<rank>.json, ranks/<rank>.json.
--- With --only-rank N one process reads the file of one rank, so that a job array does the whole,
--- each job on the node that has the file; gather.lua (or any recipe: the format is `exploded`)
--- takes all these folders as one checkpoint. The direct way (unshard, convert) writes each byte
--- once and needs no second run: this one is for when no process can see all files.
local MOST = 200 -- bytes of a name: file systems take 255

--- A key as the name of a folder; the number keeps the order of the checkpoint.
local function folder(key, number)
  local name = key:gsub("[^%w._-]", function(c)
    return ("%%%02X"):format(c:byte())
  end)
  return number .. "-" .. name:sub(1, MOST)
end

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Write every piece of every tensor as a file of its own",
  pieces = true,

  plan = function(cat, plan)
    local paths, number = {}, 0
    for key, row in pairs(cat:tensors()) do
      number = number + 1
      local n = 0
      for piece in row:pieces() do
        n = n + 1
        local rank = math.max(piece.rank, 0)
        local path = ("pieces/%s/%d-%d.safetensors"):format(folder(key, number), rank, n)
        paths[rank] = paths[rank] or {}
        table.insert(paths[rank], path)
        local at = piece.at
        plan:write(path, { data = piece.view }, {
          dtype = "keep",
          meta = {
            key = key,
            role = row.role,
            name = row.name,
            kind = piece.kind,
            at = type(at) == "table" and table.concat(at, ",") or tostring(at),
            -- not known to one rank where the boxes of all are the whole
            shape = row.shape and table.concat(row.shape, ","),
          },
        })
      end
    end
    local ranks = #cat.ranks > 0 and cat.ranks or { 0 }
    for _, rank in ipairs(ranks) do
      plan:write(("ranks/%d.json"):format(rank), {
        world = cat.world,
        format = cat.format,
        pieces = paths[rank] or {},
      })
    end
    plan:write(("values/%d.json"):format(ranks[1]), cat:values())
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
