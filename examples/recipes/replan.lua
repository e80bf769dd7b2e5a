--- The same checkpoint, pieces as they are, and each duplicate in the file of the rank that the
--- policy names.

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Re-home duplicated tensors and values",
  options = {
    policy = { type = "policy", default = "lowest-rank", about = "who keeps duplicates" },
  },

  plan = function(cat, plan, opt)
    plan:write("", cat, { as = "dcp", policy = opt.policy })
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
