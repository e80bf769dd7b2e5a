--- The same checkpoint for another number of ranks, as DCP: what was cut is cut anew, what was
--- whole on several ranks stays whole; one rank's checkpoint is cut as FSDP2 would.

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Re-cut a checkpoint for another number of ranks",
  options = {
    ranks = { type = "number", about = "how many will load it" },
    like = { type = "checkpoint", about = "as many as wrote this one" },
    drop = { type = "string", many = true, about = "globs of keys that no longer fit" },
    policy = { type = "policy", default = "lowest-rank", about = "who keeps duplicates" },
  },

  plan = function(cat, plan, opt)
    if (opt.ranks ~= nil) == (opt.like ~= false) then
      plan:refuse("for how many ranks?", "--ranks N or --like CKPT, one of them", "E_USAGE")
    end
    local ranks = opt.ranks or opt.like.world
    local kept = cat
    for _, glob in ipairs(opt.drop) do
      plan:drop(cat:match(glob), "--drop")
      kept = kept:match("!" .. glob)
    end
    plan:write("", kept, { as = "dcp", ranks = ranks, policy = opt.policy })
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
