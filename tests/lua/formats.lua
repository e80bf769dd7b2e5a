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

  ["torch-file: a dict of tensors is a model, a list of nothing is refused"] = function(t)
    t.equal(t.open("torch/plain.pt").format, "torch-file")
    t.fails(function()
      t.open("list/top_is_list.pt")
    end, "E_TYPE", "a list, not a state dict")
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
