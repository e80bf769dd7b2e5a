--- The whole tensors back from what explode.lua wrote, in one folder or in one for each rank
--- (several CKPT); keys unchanged. The format `exploded` reads them, so unshard and all other
--- recipes work on them too.

---@type ckptflow.Recipe
return {
  api = 1,
  about = "Put exploded pieces together, keys unchanged",

  plan = function(cat, plan)
    if cat.format ~= "exploded" then
      plan:refuse("these are no exploded pieces but " .. cat.format, "explode writes them")
    end
    plan:write("tensors.safetensors", cat:tensors())
    plan:write("values.json", cat:values())
    plan:copy("config.*", "*.yaml", "tokenizer*", "generation_config.json")
  end,
}
