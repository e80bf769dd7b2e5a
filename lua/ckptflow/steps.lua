--- The folder of a run, with a folder for each step that was saved.
local torch = require("ckptflow.torch")
local steps = {}

--- How many ranks saved a file: what it says itself, or a ShardedTensor in it.
local function world_of(file)
  if file.root.world_size then
    return file.root.world_size
  end
  for _, node in file:walk() do
    local _, world = torch.process(node)
    if world then
      return world
    end
  end
end

--- Steps that the patterns find, newest first: { step, job, files }. A pattern has {step} and
--- {rank}; of jobs ({job}) that saved the same step the latest is first.
function steps.list(dir, ...)
  local by, list = {}, {}
  local jobs = table.concat({ ... }):find("{job", 1, true)
  for _, file in ipairs(dir:glob(...)) do
    local job = jobs and file.job or 0
    local key = ("%d %d"):format(file.step, job)
    if not by[key] then
      by[key] = { step = file.step, job = job, files = {} }
      list[#list + 1] = by[key]
    end
    local files = by[key].files
    files[#files + 1] = file
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then
      return a.step > b.step
    end
    return a.job > b.job
  end)
  return list
end

local function name(one)
  return "step " .. one.step .. (one.job == 0 and "" or " of job " .. one.job)
end

--- The newest step that has as many files as its own ranks say there were; of several a note says
--- which. Refuses, with the counts, if none has.
function steps.whole(dir, ...)
  local list, said = steps.list(dir, ...), {}
  for _, one in ipairs(list) do
    local world = world_of(one.files[1])
    if #one.files == world then
      if #list > 1 then
        local why = #said > 0 and table.concat(said, ", ") or "it is the newest"
        dir:note(("%s is taken, of %d: %s"):format(name(one), #list, why))
      end
      return one
    end
    said[#said + 1] = ("%s has %d of %s files"):format(name(one), #one.files, tostring(world))
  end
  dir:refuse(
    "no step is whole" .. (#said > 0 and ": " .. table.concat(said, ", ") or ""),
    "name the folder of one step to see what it lacks"
  )
end

return steps
