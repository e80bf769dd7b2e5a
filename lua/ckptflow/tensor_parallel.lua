--- Where the slab of one tensor parallel rank lies in the whole tensor.
local tp = {}

local function box(shape, dim, at, size)
  local place, sizes = {}, {}
  for d in ipairs(shape) do
    place[d], sizes[d] = 0, shape[d]
  end
  if dim then
    place[dim + 1], sizes[dim + 1] = at, size
  end
  return place, sizes
end

--- `shapes`: of the slabs of all ranks, from rank 0 on; `rank`: whose is asked for.
--- `rule`: { dim } for slabs side by side along a dimension (nil: every rank has all of it);
--- { dim = 0, widths } where each slab is made of parts that lie together in the whole, as the two
--- halves of a gated MLP: widths[i][r + 1] rows of rank r belong to part i; { limit } rows are
--- tensor, the rest padding of a vocabulary.
--- Gives the whole shape, and parts as flat.cut takes them (nil: the slab is the whole).
function tp.place(shapes, rank, rule)
  local own, whole, dim = shapes[rank + 1], {}, rule.dim
  for d, n in ipairs(own) do
    whole[d] = n
  end
  if not dim then
    return whole, nil
  end
  local widths = rule.widths
  if not widths then
    widths = { {} }
    for r, shape in ipairs(shapes) do
      widths[1][r] = shape[dim + 1]
    end
  end
  local parts, base, at, row = {}, 0, 0, numel(own) // math.max(own[dim + 1], 1)
  for _, width in ipairs(widths) do
    local before, total = 0, 0
    for r, n in ipairs(width) do
      before = r <= rank and before + n or before
      total = total + n
    end
    local n = width[rank + 1]
    if rule.limit then
      n = math.max(0, math.min(n, rule.limit - before))
      before, total = math.min(before, rule.limit), math.min(total, rule.limit)
    end
    local place, size = box(own, dim, base + before, n)
    -- along another dimension than 0 the slab is one box, rows of it all through
    parts[#parts + 1] = { from = at, count = numel(size), place = place, size = size }
    at = at + width[rank + 1] * row
    base = base + total
  end
  whole[dim + 1] = base
  return whole, parts
end

return tp
