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
    local function write(key, row, rank, n, kind, at, view)
      local path = ("pieces/%s/%d-%d.safetensors"):format(folder(key, number), rank, n)
      paths[rank] = paths[rank] or {}
      table.insert(paths[rank], path)
      plan:write(path, { data = view }, {
        dtype = "keep",
        meta = {
          key = key,
          role = row.role,
          name = row.name,
          kind = kind,
          at = at,
          -- not known to one rank where the boxes of all are the whole
          shape = row.shape and table.concat(row.shape, ","),
        },
      })
    end
    for key, row in pairs(cat:tensors()) do
      number = number + 1
      local n = 0
      for piece in row:pieces() do
        n = n + 1
        local at = type(piece.at) == "table" and table.concat(piece.at, ",") or tostring(piece.at)
        write(key, row, math.max(piece.rank, 0), n, piece.kind, at, piece.view)
      end
      if n == 0 then -- it has no elements
        write(key, row, cat.rank or 0, 1, "box", ("0,"):rep(#row.shape), row.view)
      end
    end
    for rank = cat.rank or 0, cat.rank or (cat.world or 1) - 1 do
      plan:write(("ranks/%d.json"):format(rank), {
        world = cat.world,
        format = cat.format,
        pieces = paths[rank] or {},
      })
    end
    plan:write(("values/%d.json"):format(cat.rank or 0), cat:values())
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
