-- Selections, and recipes from their text to what they record.

local function recipe(body, options)
  local head = "return { api = 1, about = 'test', options = %s, plan = function(cat, plan, opt)"
  return (head .. "\n%s\nend }"):format(options or "{}", body)
end

local function names(sel)
  local list = {}
  for name, row in pairs(sel) do
    list[#list + 1] = name
    if class(row) ~= "row" then
      error("no row")
    end
  end
  return table.concat(list, " ")
end

return {
  ["selections"] = function(t)
    local cat = t.open("hf/whole")
    t.equal(names(cat), "a b")
    t.equal(names(cat:match("a*")), "a")
    t.equal(names(cat:match("!a")), "b")
    t.equal(names(cat:match("*", "!a")), "b")
    t.equal(names(cat:match("nothing")), "")
    t.equal(names(cat:rename(function(name)
      return "x." .. name
    end):match("x.b")), "x.b")
    t.equal(#cat:values(), 0)
    t.equal(cat:find("a").dtype, "F32")
    t.equal(tostring(cat:find("a").view), "F32[4]")
    t.equal(cat:find("a").value, nil)
    t.fails(function()
      cat:rename(function()
        return "same"
      end)
    end, "E_DUP_KEY", "a and b both map to same")
    t.fails(function()
      cat:role("modell")
    end, "L_ERROR", "modell")
    t.fails(function()
      return cat.wrld
    end, "L_ERROR", "did you mean 'world'?")
  end,

  ["a recipe records what it writes and drops"] = function(t)
    t.run(recipe('plan:write("m.safetensors", cat)'), "hf/whole")
    t.run(
      recipe('plan:write("m.safetensors", cat:match("a")) plan:drop(cat:find("b"), "test")'),
      "hf/whole"
    )
    t.fails(function()
      t.run(recipe('plan:write("m.safetensors", cat:match("a"))'), "hf/whole")
    end, "L_PLAN", "b is neither written nor dropped")
  end,

  ["what cannot be done is refused by name"] = function(t)
    for body, text in pairs({
      ["plan:concat({})"] = "plan:concat: no views",
      ["plan:sum({}, {})"] = "plan:sum: no views",
      ['plan:write("..", cat, { as = "dcp" })'] = "..",
      ['plan:write("m.safetensors", cat, { ranks = 2 })'] = "ranks",
      ['plan:refuse("no", "because")'] = "no",
    }) do
      t.fails(function()
        t.run(recipe(body), "hf/whole")
      end, "L_PLAN", text)
    end
    for _, ranks in ipairs({ "0", "1.5", "65537" }) do -- a number of the command line, most likely
      t.fails(function()
        t.run(recipe('plan:write("", cat, { as = "dcp", ranks = ' .. ranks .. " })"), "hf/whole")
      end, "E_USAGE", "ranks is a number from 1 to 65536")
    end
  end,

  ["elements are counted through views"] = function(t)
    local half = recipe('plan:write("m.safetensors", { x = cat:find("a").view:slice(0, 3) })'
      .. ' plan:drop(cat:find("b"), "test")')
    t.fails(function()
      t.run(half, "hf/whole")
    end, "L_PLAN", "1 of 4 elements of a are neither written nor dropped")
    t.run(recipe([[
      local a, b = cat:find("a").view, cat:find("b").view
      local x, y = a:split({ 1, 3 })
      plan:write("m.safetensors", { x = x, y = plan:concat({ y, b }) })]]), "hf/whole")
    t.fails(function()
      t.run(recipe([[
        local a, b = cat:find("a").view, cat:find("b").view:reshape({ 2, 2 })
        plan:write("m.safetensors", { x = plan:sum({ a, b }, { 1, 1 }) })]]), "hf/whole")
    end, "L_PLAN", "plan:sum: F32[4] and F32[2, 2] do not fit")
  end,

  ["options of write"] = function(t)
    t.run(
      recipe('plan:write("m.safetensors", cat, { dtype = "BF16", keep_dtype = { "a*" } })'),
      "hf/whole"
    )
    t.run(
      recipe('plan:write("m.safetensors", cat, { max_shard_size = "5GB", meta = { a = 1 } })'),
      "hf/whole"
    )
    t.fails(function()
      t.run(recipe('plan:write("m.safetensors", cat, { dtyp = "BF16" })'), "hf/whole")
    end, "L_ERROR", "did you mean 'dtype'?")
    t.fails(function()
      t.run(recipe('plan:write("m.safetensors", cat, { max_shard_size = "5 apples" })'), "hf/whole")
    end, "E_USAGE", "5 apples")
  end,

  ["dcp: ranks and policies"] = function(t)
    local options = '{ policy = { type = "policy", default = "balanced" } }'
    local both = ", ranks = 3, policy = opt.policy"
    for _, more in ipairs({ "", ", ranks = 3", ", policy = opt.policy", both }) do
      for _, path in ipairs({ "", "sub/folder" }) do
        local body = ('plan:write("%s", cat, { as = "dcp"%s })'):format(path, more)
        t.run(recipe(body, options), "hf/whole")
      end
    end
    for _, policy in ipairs({ '"balanced"', "{ choose = error }", "true" }) do
      t.fails(function()
        t.run(recipe('plan:write("", cat, { as = "dcp", policy = ' .. policy .. " })"), "hf/whole")
      end, "L_ERROR", "option of type policy")
    end
    t.fails(function()
      local body = 'plan:write("m.safetensors", cat, { policy = opt.policy })'
      t.run(recipe(body, options), "hf/whole")
    end, "L_PLAN", "policy")
  end,

  ["options of recipes"] = function(t)
    local options = '{ n = 1, flag = false, word = "x", many = { type = "string", many = true },'
      .. ' policy = { type = "policy", default = "lowest-rank" }, with = { type = "checkpoint" } }'
    local body = [[
      assert(opt.n == 2 and opt.flag == true and opt.word == "x" and #opt.many == 0)
      assert(tostring(opt.policy) == "policy" and opt.with == false)
      plan:write("m.safetensors", cat)]]
    t.run(recipe(body, options), "hf/whole", { n = "2", flag = "true" })
    for given, text in pairs({ n = "two", flag = "yes", policy = "lowest", word_ = "x" }) do
      t.fails(function()
        t.run(recipe(body, options), "hf/whole", { [given] = text })
      end, "E_USAGE", given)
    end
    t.fails(function()
      t.run(recipe(body, options), "hf/whole", { with = "other" })
    end, "E_MISSING_FILE", "other")
  end,

  ["tables are held against what their kind has"] = function(t)
    for text, message in pairs({
      ["return { api = 2, about = 'x', plan = function() end }"] = "written for plugin api 2",
      ["return { api = 1, about = 'x', plann = function() end }"] = "did you mean 'plan'?",
      ["return { api = 1, about = 'x' }"] = "the field 'plan' is missing",
      ["return { api = 1, about = 1, plan = function() end }"] = "the field 'about' is a number",
      ["return 1"] = "a recipe returns a table",
      ["return {"] = "unexpected symbol",
    }) do
      t.fails(function()
        t.run(text, "hf/whole")
      end, "L_ERROR", message)
    end
    t.fails(function()
      t.run("\27Lua", "hf/whole")
    end, "L_BYTECODE")
  end,

  ["an error names script and line"] = function(t)
    t.fails(function()
      t.run(recipe("local x = nil\nx.y = 1"), "hf/whole")
    end, "L_ERROR", ".lua:3: attempt to index a nil value (local 'x')")
  end,
}
