--- Arrangements of views, exact and lazy like the steps that they are made of: nothing is read, and
--- what comes out is moves. `plan` is the recipe's.
local views = {}

--- The shape with dimension `dim` put in, or replaced.
local function with(shape, dim, n, replace)
  local out = {}
  for d, size in ipairs(shape) do
    out[d] = size
  end
  if replace then
    out[dim + 1] = n
  else
    table.insert(out, dim + 1, n)
  end
  return out
end

--- Views of one shape along a new dimension.
function views.stack(plan, list, dim)
  local flat = {}
  for i, view in ipairs(list) do
    flat[i] = view:reshape(with(view.shape, dim or 0, 1))
  end
  return plan:concat(flat, dim or 0)
end

--- Views of one shape, taken in turn: of {a0, a1} and {b0, b1} comes {a0, b0, a1, b1}.
function views.interleave(plan, list, dim)
  dim = dim or 0
  local shape = list[1].shape
  return views.stack(plan, list, dim + 1):reshape(with(shape, dim, shape[dim + 1] * #list, true))
end

--- The other way: `n` views, of which the first has every n-th element from the first on.
function views.deinterleave(view, n, dim)
  dim = dim or 0
  local shape, list = view.shape, {}
  local split = view:reshape(with(with(shape, dim, shape[dim + 1] // n, true), dim + 1, n))
  for i = 1, n do
    list[i] = split:slice(i - 1, i, dim + 1):reshape(with(shape, dim, shape[dim + 1] // n, true))
  end
  return list
end

--- The corner at the origin that has this shape, as a vocabulary without its padding.
function views.crop(view, shape)
  for d, size in ipairs(view.shape) do
    if shape[d] < size then
      view = view:slice(0, shape[d], d - 1)
    end
  end
  return view
end

--- A view of this shape with the given one at its origin, and zeros behind it.
function views.pad(plan, view, shape)
  for d, size in ipairs(view.shape) do
    if shape[d] > size then
      local zeros = plan:zeros(view.dtype, with(view.shape, d - 1, shape[d] - size, true))
      view = plan:concat({ view, zeros }, d - 1)
    end
  end
  return view
end

--- Weighted equally: their mean, computed in F64, in the dtype of the first.
function views.mean(plan, list)
  local weights = {}
  for i in ipairs(list) do
    weights[i] = 1 / #list
  end
  return plan:sum(list, weights)
end

--- name -> view of a selection's tensors, floating point ones in `dtype` but those that a glob of
--- `keep` fits.
function views.cast(sel, dtype, keep)
  local out, kept = {}, {}
  for name in pairs(#(keep or {}) > 0 and sel:match(table.unpack(keep)) or {}) do
    kept[name] = true
  end
  for name, row in pairs(sel:tensors()) do
    local floating = row.dtype:match("^B?F%d")
    out[name] = floating and not kept[name] and row.view:cast(dtype) or row.view
  end
  return out
end

return views
