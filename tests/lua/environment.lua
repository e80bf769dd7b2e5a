-- What scripts have, and what they have not.

return {
  ["withheld names are denied, also to pcall"] = function(t)
    t.fails(function() -- luacheck: ignore
      return io.open
    end, "L_DENIED", "environment.lua:6: 'io'")
    t.fails(function()
      pcall(function()
        os.exit(0)
      end)
    end, "L_DENIED", "'os'")
    t.fails(function()
      return getmetatable("")
    end, "L_DENIED", "'getmetatable'")
    t.fails(function()
      return string.dump
    end, "L_DENIED", "string.dump")
    t.fails(function()
      return math.random()
    end, "L_DENIED", "math.random")
  end,

  ["an unknown global is an error with a guess"] = function(t)
    t.fails(function()
      return ipair -- luacheck: ignore
    end, "L_ERROR", "there is no global 'ipair'; did you mean")
  end,

  ["globals cannot be assigned"] = function(t)
    t.fails(function()
      new = 1 -- luacheck: ignore
    end, "L_ERROR", "'new' needs a 'local'")
    t.fails(function()
      string = {} -- luacheck: ignore
    end, "L_ERROR", "'string' needs a 'local'")
  end,

  ["methods of strings cannot be replaced"] = function(t)
    string.upper = function() -- luacheck: ignore
      return "mine"
    end
    t.equal(("x"):upper(), "X")
  end,

  ["no text shows an address"] = function(t)
    t.equal(tostring({}), "table")
    t.equal(tostring(t.open), "function")
    t.equal(("%s %d %s"):format({}, 3, t.open), "table 3 function")
    t.equal(("%5.1f%%|%s"):format(2.25, "x"), "  2.2%|x")
    t.equal(tostring(setmetatable({}, { __name = "x" })), "table")
    t.fails(function()
      return ("%p"):format({})
    end, "L_ERROR", "%p")
  end,

  ["pcall catches ordinary errors alone"] = function(t)
    local ok, message = pcall(error, "plain", 0)
    t.equal(ok, false)
    t.equal(message, "plain")
    t.equal(select("#", pcall(function() end)), 1)
    t.fails(function()
      pcall(function()
        t.dir("hf/whole"):file("nothing")
      end)
    end, "E_MISSING_FILE", "nothing: no such file")
  end,

  ["finalisers are refused, close is not"] = function(t)
    t.fails(function()
      return setmetatable({}, { __gc = function() end })
    end, "L_DENIED", "__gc")
    local closed = false
    do
      local _ <close> = setmetatable({}, {
        __close = function()
          closed = true
        end,
      })
    end
    t.equal(closed, true)
  end,

  ["memory and time are bounded, and pcall does not help"] = function(t)
    t.fails(function()
      t.run([[local list = {}
        while true do
          pcall(function() list[#list + 1] = ("x"):rep(1 << 16) .. #list end)
        end]], "hf/whole")
    end, "L_LIMIT_MEM", "32 MiB")
    t.fails(function()
      t.run("while true do pcall(function() while true do end end) end", "hf/whole")
    end, "L_LIMIT_CPU", ".lua:1:")
  end,

  ["require gives modules and formats"] = function(t)
    local names = require("ckptflow.names")
    t.equal(names, require("ckptflow.names"))
    t.equal(names.unwrap("module._orig_mod.sub.module.w"), "sub.module.w")
    t.equal(require("formats.rank-files").api, 1)
    t.fails(function()
      require("ckptflow.name")
    end, "L_ERROR", "did you mean 'ckptflow.names'?")
    t.fails(function()
      require("./names")
    end, "L_ERROR", "there is no module")
  end,

  ["class and numel"] = function(t)
    t.equal(class(nil), "none")
    t.equal(class(1), "integer")
    t.equal(class(1.5), "float")
    t.equal(class("x"), "string")
    t.equal(numel({ 2, 3, 4 }), 24)
    t.equal(numel({}), 1)
    t.fails(function()
      numel({ 1 << 62, 4 })
    end, "E_OVERFLOW")
    t.fails(function()
      numel({ 1, "x" })
    end, "E_TYPE", "a shape holds a string")
  end,

  ["pairs goes through a table in an order of its own"] = function(t)
    local list = {}
    for key, value in pairs({ b = 1, a = 2, [10] = 3, [2] = 4, [0.5] = 5, c = 6, [true] = 7 }) do
      list[#list + 1] = tostring(key) .. "=" .. value
    end
    t.equal(table.concat(list, " "), "0.5=5 2=4 10=3 a=2 b=1 c=6 true=7")
    local left = { x = 1, y = 2, z = 3 }
    for key in pairs(left) do
      left.y = nil
      t.equal(key == "y", false)
    end
    t.equal(next({}), nil)
    for i, value in pairs({ "p", "q" }) do
      t.equal(value, i == 1 and "p" or "q")
    end
  end,
}
