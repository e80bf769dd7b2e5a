-- Nodes: inert trees of JSON and pickles.
local json = require("ckptflow.json")

local function keys(dir, node)
  local list = {}
  for key in dir:file("model.safetensors.index.json"):walk(node) do
    list[#list + 1] = key
  end
  return table.concat(list, " ")
end

return {
  ["values come out as Lua values"] = function(t)
    local root = json.decode('{"i": 7, "f": 1.5, "s": "x", "b": true, "n": null, "l": [1, [2]]}')
    t.equal(root.i, 7)
    t.equal(math.type(root.i), "integer")
    t.equal(root.f, 1.5)
    t.equal(root.s, "x")
    t.equal(root.b, true)
    t.equal(root.n, nil)
    t.equal(root.nothing, nil)
    t.equal(root.l[1], 1)
    t.equal(root.l[2][1], 2)
    t.equal(root.l[3], nil)
    t.equal(root.l[0], nil)
    t.equal(class(root), "dict")
    t.equal(class(root.l), "list")
    t.equal(#root, 6)
    t.equal(#root.l, 2)
  end,

  ["pairs keeps the file's order and next works"] = function(t)
    local list = {}
    local root = json.decode('{"z": 1, "a": 2, "m": 3}')
    for key, value in pairs(root) do
      list[#list + 1] = key .. value
    end
    t.equal(table.concat(list, " "), "z1 a2 m3")
    t.equal(next(root), "z")
    t.equal(next(root, "z"), "a")
    t.equal(next(root, "m"), nil)
    local sum = 0
    for _, value in ipairs(json.decode("[1, 2, 3]")) do
      sum = sum + value
    end
    t.equal(sum, 6)
  end,

  ["equal by value, and text is the same for equal ones"] = function(t)
    local a, b = json.decode('[1, {"x": [2]}]'), json.decode('[1, {"x": [2]}]')
    t.equal(a, b)
    t.equal(tostring(a), tostring(b))
    t.equal(a == json.decode("[1]"), false)
  end,

  ["keys that look like methods are keys"] = function(t)
    local root = json.decode('{"class": 1, "pairs": 2, "walk": 3}')
    t.equal(root.class + root.pairs + root.walk, 6)
  end,

  ["bad JSON is an error object"] = function(t)
    t.fails(function()
      json.decode('{"a": 1, "a": 2}')
    end, "E_DUP_KEY")
    t.fails(function()
      json.decode("{")
    end, "E_JSON")
  end,

  ["walk enters dicts, and lists only where a tensor is"] = function(t)
    local dir = t.dir("hf/whole")
    t.equal(keys(dir, json.decode('{"a": {"b": 1, "c": [1, 2]}, "d": {}}')), "a.b a.c d")
    t.equal(keys(dir, 5), "")
    t.equal(keys(dir, nil), "")
    t.equal(keys(dir, json.decode("[1]")), "")
    local seen = 0
    for key, leaf in dir:file("model-00001-of-00002.safetensors"):walk() do
      t.equal(key, "a")
      t.equal(class(leaf), "tensor")
      seen = seen + 1
    end
    t.equal(seen, 1)
  end,

  ["leaves are handles and lose nothing"] = function(t)
    local dir = t.dir("hf/whole")
    local root = json.decode('{"n": null, "i": 7}')
    local classes = {}
    for key, leaf in dir:file("model.safetensors.index.json"):walk(root) do
      classes[key] = class(leaf)
      t.equal(type(leaf), "userdata")
    end
    t.equal(classes.n, "none")
    t.equal(classes.i, "integer")
  end,

  ["two leaves with one key are an error"] = function(t)
    local dir = t.dir("hf/whole")
    t.fails(function()
      keys(dir, json.decode('{"a.b": 1, "a": {"b": 2}}'))
    end, "E_DUP_KEY", "a.b")
  end,

  ["a key beyond 64 KiB is refused"] = function(t)
    local dir = t.dir("hf/whole")
    t.fails(function()
      keys(dir, json.decode('{"' .. ("k"):rep(70000) .. '": 1}'))
    end, "E_LIMIT")
  end,
}
