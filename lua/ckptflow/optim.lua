--- An optimizer as torch.optim has it: `state`, by parameter, and `param_groups`.
local names = require("ckptflow.names")

local optim = {}

local GROUPS = { "param_groups", "*.param_groups", "param_groups.*", "*.param_groups.*" }

--- The rows of `sel` that are param_groups or lie in them, and the others.
function optim.groups(sel)
  local others = {}
  for i, glob in ipairs(GROUPS) do
    others[i] = "!" .. glob
  end
  return sel:match(table.unpack(GROUPS)), sel:match(table.unpack(others))
end

--- Ids count: what is a number stays one.
local function parameter(name)
  return math.tointeger(tonumber(name:match("^state%.(%d+)$") or name:match("^(%d+)$"))) or name
end

--- The path { "state", parameter, state ... } of an optimizer state called "<parameter>.<state>". A
--- state may be a tree of its own: where the file tells, row.path has it.
function optim.state_path(name, row)
  local path, from = row.path or {}, nil
  for i = 1, #path - 2 do
    from = path[i] == "state" and i + 2 or from
  end
  local states, tail = {}, ""
  for i = from or 1, from and #path or 0 do
    states[#states + 1] = path[i]
    tail = tail .. "." .. tostring(type(path[i]) == "table" and path[i][1] or path[i])
  end
  if #states == 0 or #tail >= #name or name:sub(-#tail) ~= tail then
    local state = name:match("%.([^.]+)$")
    states, tail = { state }, state and "." .. state or ""
  end
  return { "state", parameter(name:sub(1, #name - #tail)), table.unpack(states) }
end

--- The same for what `groups` gave, by its key: what leads to param_groups is left out.
function optim.groups_path(row)
  local path, steps = row.path or {}, {}
  for _, step in ipairs(path) do
    if step == "param_groups" or #steps > 0 then
      steps[#steps + 1] = step
    end
  end
  if #steps == 0 then
    local tail = row.key:match("%.?param_groups%.(.+)$")
    local number, field = (tail or ""):match("^(%d+)%.(.+)$")
    steps = { "param_groups", number and { math.tointeger(number) } or tail, field }
  end
  return steps
end

--- The value of param_groups with names in place of ids in `params`, where `param_names` tell, and
--- without wrappers: what the keys of `state` are.
function optim.name_params(plan, groups, unwrap)
  local name_of = names.of_ids(groups) or {}
  for i, group in pairs(class(groups) == "list" and groups or {}) do
    local ids, params = class(group) == "dict" and group.params, {}
    for k, id in pairs(class(ids) == "list" and ids or {}) do
      local name = name_of[id] or id
      params[k] = type(name) == "string" and unwrap(name) or name
    end
    if #params > 0 then
      groups = plan:replace(groups, { { i - 1 }, "params" }, params)
    end
  end
  return groups
end

return optim
