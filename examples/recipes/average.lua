--- The mean of the weights of several checkpoints, of whatever formats and shardings: model soups,
--- the last steps of a run. Computed in F64 and rounded once to the dtype of the first checkpoint.
local names = require("ckptflow.names")
local views = require("ckptflow.views")

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Average the weights of several checkpoints",
  options = {
    with = { type = "checkpoint", many = true, about = "another checkpoint; may be given again" },
    max_shard_size = { type = "string", about = "split the file, as 5GB or 512MiB" },
  },

  plan = function(cat, plan, opt)
    if #opt.with == 0 then
      plan:refuse("there is nothing to average with", "--with CKPT", "E_USAGE")
    end
    local model, others, out = cat:role("model"):rename(names.unwrap):tensors(), {}, {}
    for i, other in ipairs(opt.with) do
      others[i] = other:role("model"):rename(names.unwrap):tensors()
      for name in pairs(others[i]) do
        if not model:find(name) then
          plan:refuse(name .. " is not in the first checkpoint", nil, "E_META_CONFLICT")
        end
      end
    end
    for name, row in pairs(model) do
      local list = { row.view }
      for i, other in ipairs(others) do
        local found = other:find(name)
        if not found then
          plan:refuse(name .. " is not in all checkpoints", nil, "E_META_CONFLICT")
        end
        list[i + 1] = found.view
      end
      if row.dtype:match("^B?F%d") then
        out[name] = views.mean(plan, list)
      else
        plan:note(("%s is %s: it is the first checkpoint's"):format(name, row.dtype))
        out[name] = row
      end
    end
    plan:write("model.safetensors", out, { max_shard_size = opt.max_shard_size })
    plan:drop(cat, "only weights are averaged")
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
