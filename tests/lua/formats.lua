-- The formats that come with ckptflow, on small real and broken checkpoints.

return {
  ["olmo-legacy: roles, names and the whole of it"] = function(t)
    local cat = t.open("olmo/legacy_ws3")
    t.equal(cat.format, "olmo-legacy")
    t.equal(cat.world, 3)
    local model = cat:role("model")
    local row = model:find("transformer.wte.weight")
    t.equal(row.key, "model.transformer.wte.weight")
    t.equal(row.role, "model")
    t.equal(model:find("nothing"), nil)
    local ranks = {}
    for piece in row:pieces() do
      ranks[#ranks + 1] = piece.rank
      t.equal(piece.kind, "box")
      t.equal(#piece.at, #row.shape)
      t.equal(piece.file, "rank" .. piece.rank .. ".pt")
    end
    t.equal(table.concat(ranks, " "), "0 1 2")
    t.equal(cat:find("global_step").value, 7)
    t.equal(#cat:tensors() + #cat:values(), #cat)
  end,

  ["rank-files: without a model box all of it is the model"] = function(t)
    local cat = t.open("ranks/whole")
    t.equal(cat.format, "rank-files")
    t.equal(cat.world, 2)
    t.equal(cat:role("model"):find("w").key, "w")
  end,

  ["rank-files: ranks that disagree"] = function(t)
    t.fails(function()
      t.open("ranks/dtype_differs")
    end, "E_META_CONFLICT", "model/rank1.pt: w")
    t.fails(function()
      t.open("ranks/size_differs")
    end, "E_META_CONFLICT", "model/rank1.pt: w")
  end,

  ["safetensors: an index and its shards"] = function(t)
    local cat = t.open("hf/whole")
    t.equal(cat.format, "safetensors")
    t.equal(#cat:role("model"), 2)
    for case, code in pairs({
      missing_tensor = "E_META_CONFLICT",
      two_shards_one_name = "E_META_CONFLICT",
      dotdot = "E_PATH",
      index_twice = "E_DUP_KEY",
      missing_shard = "E_MISSING_FILE",
    }) do
      t.fails(function()
        t.open("hf/" .. case)
      end, code)
    end
  end,

  ["torchscript: a module of torch.save(model) has the names of its state dict"] = function(t)
    local cat, want = t.open("torch/module.pt"), t.open("torch/module_state.pt")
    t.equal(cat.format, "torchscript")
    t.equal(#cat, #want)
    for _, row in pairs(want:tensors()) do
      t.equal(cat:find(row.name).dtype, row.dtype)
      t.equal(cat:find(row.name).view.numel, row.view.numel)
    end
  end,

  ["torch-file: a dict of tensors is a model, a list of nothing is refused"] = function(t)
    t.equal(t.open("torch/plain.pt").format, "torch-file")
    t.fails(function()
      t.open("list/top_is_list.pt")
    end, "E_TYPE", "a list, not a state dict")
  end,

  ["ckptflow: what was written, as it was"] = function(t)
    local cat = t.open("ckptflow/objects")
    t.equal(cat.format, "ckptflow")
    t.equal(#cat:tensors() + #cat:values(), #cat)
    t.equal(cat:find("np#1"), nil) -- a part of the value np, not a row
    for key, text in pairs({
      big = "1180591620717411303424",
      neg = "-8589934592",
      tup = "(1, 2.5, 'x', True)",
      set = "{1, 2}",
      bytes = "b'\\x00\\x01'",
      epoch = "3",
    }) do
      t.equal(tostring(cat:find(key).value), text)
    end
    t.equal(class(cat:find("np").value), "tensor")
    t.equal(class(cat:find("nps").value), "float64")
    t.equal(class(cat:find("args").value), "Namespace")
    t.equal(cat:find("args").value.dtype, "BF16")
    t.equal(cat:find("optimizer.param_groups").value[1].betas[2], 0.999)
    t.equal(cat:find("model.base").role, "model")
    t.equal(cat:role("model"):find("base").key, "model.base")
  end,

  ["json.values: names and values, tensors by a function"] = function(t)
    local json = require("ckptflow.json")
    local dir = t.dir("ckptflow/objects")
    local file, list = dir:file("values.json"), {}
    local function find(name)
      return dir:file("values.safetensors").root[name]
    end
    for name, value in json.values(file, find) do
      list[#list + 1] = name
      t.equal(type(value), "userdata")
    end
    t.equal(list[1], "optimizer.param_groups")
    t.equal(list[#list], "device")
    t.fails(function()
      for _ in json.values(file, function() end) do -- luacheck: ignore
      end
    end, "E_JSON", "values.json: np: no tensor is called 'np#1'")
    t.fails(function()
      for _ in json.values(file, function() file:refuse("no") end) do -- luacheck: ignore
      end
    end, "E_LAYOUT", "values.json: no")
    t.fails(function()
      json.values(file)
    end, "L_ERROR", "function expected")
    t.fails(function() -- a list, not a table of values
      json.values(t.dir("list"):file("top_is_list.pt"), find)
    end, "E_JSON", "no table of values")
  end,

  ["a format can be named"] = function(t)
    t.equal(t.open("olmo/legacy_ws3", "rank-files").format, "rank-files")
    t.fails(function()
      t.open("olmo/legacy_ws3", "rank-file")
    end, "E_USAGE", "did you mean 'rank-files'?")
  end,

  ["nothing fits"] = function(t)
    t.fails(function()
      t.open("pickle")
    end, "E_MAGIC", "no format recognised")
  end,
}
