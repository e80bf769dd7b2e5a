--- What torch.distributed leaves in the file of one rank: ShardedTensor, DTensor, plain tensors,
--- plain values.
local torch = {}

--- Ranks along one axis of a DeviceMesh: newer torch keeps a layout, older the tensor of ranks.
local function ways(mesh, axis)
  return mesh._layout and mesh._layout.axes[axis].shape[1] or mesh.mesh.shape[axis]
end

--- The box of a DTensor that its rank holds: offsets, sizes. Nil and a reason for a layout that is
--- no box. torch cuts a dimension as torch.chunk does, mesh axis after mesh axis; a _StridedShard
--- is cut after the axes to its right.
local function box(spec, shape)
  local at, size, order = {}, {}, {}
  for d, n in pairs(shape) do
    at[d], size[d] = 0, n
  end
  for axis, place in pairs(spec.placements) do
    if class(place) == "Shard" then
      order[#order + 1] = axis
    end
  end
  for axis = #spec.placements, 1, -1 do
    local kind = class(spec.placements[axis])
    if kind == "_StridedShard" then
      order[#order + 1] = axis
    elseif kind ~= "Shard" and kind ~= "Replicate" then
      return nil, "a DTensor placed as " .. kind
    end
  end
  for _, axis in ipairs(order) do
    local d = spec.placements[axis].dim + 1
    local n = ways(spec.mesh, axis)
    local each = (size[d] + n - 1) // n
    local from = math.min(spec.mesh._coordinate_on_dim[axis] * each, size[d])
    at[d], size[d] = at[d] + from, math.min(each, size[d] - from)
  end
  return at, size
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
    local shape = node._spec.tensor_meta[1]
    local at, size = box(node._spec, shape)
    if not at then
      file:refuse(key .. ": " .. size .. " is not supported")
    end
    out:piece(key, shape, at, node._local_tensor)
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

--- Reads a whole rank file: every leaf, under the path it has in the file. The file is that of the
--- rank that a ShardedTensor in it was saved by, whatever its name says. Gives that rank and the
--- number of ranks, or nil.
function torch.read(file, out)
  local rank, world
  for key, node in file:walk() do
    if not rank then
      rank, world = torch.process(node)
      out:rank(rank)
    end
    torch.put(out, key, node, file)
  end
  return rank, world
end

return torch
