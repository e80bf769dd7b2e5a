--- What torch.distributed leaves in the file of one rank: ShardedTensor, DTensor, plain tensors,
--- plain values.
local torch = {}

--- Ranks along one axis of a DeviceMesh. Since torch 2.13 its layout has a layout an axis, from 2.9
--- sizes (of an axis made of several, a tuple); before there is the tensor of ranks.
local function ways(mesh, axis)
  local function product(size)
    local n = type(size) == "number" and size or 1
    for _, part in pairs(type(size) == "number" and {} or size) do
      n = n * product(part)
    end
    return n
  end
  local layout = mesh._layout
  if layout and layout.axes then
    return product(layout.axes[axis].shape)
  end
  local sizes = layout and layout.shape or mesh.mesh.shape
  return type(sizes) == "number" and sizes or product(sizes[axis])
end

--- Elements from..to-1 of what the stretches { at, count } hold, end to end.
local function within(stretches, from, to, into)
  for _, stretch in ipairs(stretches) do
    local low, high = math.max(from, 0), math.min(to, stretch.count)
    local last = into[#into]
    if low < high and last and last.at + last.count == stretch.at + low then
      last.count = last.count + high - low
    elseif low < high then
      into[#into + 1] = { at = stretch.at + low, count = high - low }
    end
    from, to = from - stretch.count, to - stretch.count
  end
  return into
end

local function total(stretches)
  local n = 0
  for _, stretch in ipairs(stretches) do
    n = n + stretch.count
  end
  return n
end

--- Part `i` of `n` as torch.chunk cuts: rounded up, so that the last ones may be short or empty.
local function chunk(stretches, n, i, into)
  local each = (total(stretches) + n - 1) // n
  return within(stretches, i * each, i * each + each, into)
end

--- What a _StridedShard leaves: part i of n of each of `factor` parts.
local function strided(stretches, factor, n, i)
  local into = {}
  for k = 0, math.min(factor, total(stretches)) - 1 do
    chunk(chunk(stretches, factor, k, {}), n, i, into)
  end
  return into
end

--- The axes of a mesh in the order in which they cut: that of `shard_order` if there is one (since
--- torch 2.10), else from left to right.
local function order(spec)
  local axes, seen = {}, {}
  for _, entry in pairs(spec.shard_order or {}) do
    for _, axis in pairs(entry[2]) do -- a ShardOrderEntry: dimension, axes
      axes[#axes + 1], seen[axis] = axis + 1, true
    end
  end
  for axis = 1, #spec.placements do
    axes[#axes + 1] = not seen[axis - 1] and axis or nil
  end
  return axes
end

--- What the rank of a DTensor holds of each dimension, as stretches; nil and a reason for a
--- placement that does not say. Mesh axis after mesh axis cuts what those before left.
local function held(spec, shape)
  local found = {}
  for d, n in pairs(shape) do
    found[d] = { { at = 0, count = n } }
  end
  for _, axis in ipairs(order(spec)) do
    local place = spec.placements[axis]
    local kind = class(place)
    if kind == "Shard" or kind == "_StridedShard" then
      local d = place.dim % #found + 1
      local n, i = ways(spec.mesh, axis), spec.mesh._coordinate_on_dim[axis]
      found[d] = kind == "Shard" and chunk(found[d], n, i, {})
        or strided(found[d], place.split_factor, n, i)
    elseif kind ~= "Replicate" then
      return nil, "a DTensor placed as " .. kind
    end
  end
  return found
end

--- Files a DTensor: a box for each way to choose a stretch of every dimension, mostly one. A rank
--- that is not in the mesh holds nothing and says so.
local function put_dtensor(out, key, node, file)
  local spec, view = node._spec, node._local_tensor
  local shape = spec.tensor_meta[1]
  out:declare(key, view.dtype, shape)
  if spec.mesh._coordinate_on_dim == nil and view.numel == 0 then
    return
  end
  local found, why = held(spec, shape)
  if not found then
    file:refuse(key .. ": " .. why .. " is not supported")
  end
  local function place(d, part, at)
    if d > #found then
      return out:piece(key, shape, at, part)
    end
    local from = 0
    for _, stretch in ipairs(found[d]) do
      at[d] = stretch.at
      place(d + 1, part:slice(from, from + stretch.count, d - 1), at)
      from = from + stretch.count
    end
  end
  local own = view.shape
  for d, stretches in ipairs(found) do
    if own[d] ~= total(stretches) then
      file:refuse(
        ("%s: %d along dimension %d, where its placements say %d"):format(
          key, own[d] or -1, d - 1, total(stretches)
        )
      )
    end
  end
  place(1, view, {})
end

--- Files `node` under `key`, whatever it is.
function torch.put(out, key, node, file)
  local kind = class(node)
  if kind == "tensor" then
    out:tensor(key, node)
  elseif kind == "ShardedTensor" then
    local properties = node[2].tensor_properties
    local dtype = properties and properties[1]
    if type(dtype) == "string" then -- what all ranks say, also those that hold no shard
      out:declare(key, dtype, node[2].size)
    end
    for _, shard in pairs(node[1]) do
      out:piece(key, node[2].size, shard.metadata.shard_offsets, shard.tensor)
    end
  elseif kind == "DTensor" then
    put_dtensor(out, key, node, file)
  else
    out:value(key, node)
  end
end

--- What a ShardedTensor says of the process that saved it: its rank and how many there were.
function torch.process(node)
  local group = class(node) == "ShardedTensor" and node[3]
  if class(group) == "ProcessGroupState" then
    return group.global_rank, group.global_world_size
  end
end

--- The rank of the process that saved a DTensor, if its mesh is of all `world` ranks: newer torch
--- keeps it, before it follows from the place in the mesh (ranks in order).
function torch.mesh_rank(node, world)
  local mesh = class(node) == "DTensor" and node._spec.mesh
  local place = mesh and mesh._coordinate_on_dim
  local size, rank = 1, 0
  for axis = 1, place and #place or 0 do
    local n = ways(mesh, axis)
    size, rank = size * n, rank * n + place[axis]
  end
  if not place or size ~= world then
    return nil
  end
  return mesh._rank or rank
end

--- Reads a whole rank file: every leaf, under the path it has in the file. The file is that of the
--- rank that a ShardedTensor in it was saved by, or of `world` ranks a DTensor, whatever its name
--- says. Gives that rank and the number of ranks, or nil.
function torch.read(file, out, world)
  local rank, said
  for key, node in file:walk() do
    if not rank then
      rank, said = torch.process(node)
      rank = rank or torch.mesh_rank(node, world)
      out:rank(rank)
    end
    torch.put(out, key, node, file)
  end
  return rank, said
end

return torch
