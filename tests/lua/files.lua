-- dir, file and views of real files.

return {
  ["glob, has and file"] = function(t)
    local dir = t.dir("olmo/legacy_ws3")
    t.equal(dir:has("rank{rank}.pt"), true)
    t.equal(dir:has("rank9.pt"), false)
    local list = dir:glob("rank{rank}.pt")
    t.equal(#list, 3)
    t.equal(list[2].rank, 1)
    t.equal(list[2].name, "rank1.pt")
    t.equal(list[2].folder, "")
    t.equal(dir:file("rank1.pt").rank, nil)
    t.equal(t.dir("ranks/whole"):glob("{part*}/rank{rank}.pt")[1].part, "model")
    t.equal(t.dir("ranks/whole"):glob("**.pt")[1].folder, "model/")
  end,

  ["another pattern's placeholder is nil, a misspelling an error"] = function(t)
    local dir = t.dir("ranks/whole")
    dir:has("x{tp}")
    local file = dir:glob("model/rank{rank}.pt")[1]
    t.equal(file.tp, nil)
    t.fails(function()
      return file.rot
    end, "L_ERROR", "a file has no field 'rot'; did you mean 'root'?")
    t.fails(function()
      return dir.globb
    end, "L_ERROR", "a dir has no field 'globb'; did you mean 'glob'?")
  end,

  ["a wrong pattern is the script's fault"] = function(t)
    t.fails(function()
      t.dir("ranks/whole"):has("rank{rank.pt")
    end, "L_ERROR", "files.lua")
  end,

  ["paths stay inside"] = function(t)
    local dir = t.dir("hf/whole")
    for _, path in ipairs({ "../x", "/etc/passwd", "a/../../b", "a\0b", ".." }) do
      t.fails(function()
        dir:file(path)
      end, "E_PATH", "leads out")
    end
    t.fails(function()
      dir:file("..x")
    end, "E_MISSING_FILE")
  end,

  ["refusals"] = function(t)
    local dir = t.dir("hf/whole")
    t.fails(function()
      dir:refuse("no such thing", "try")
    end, "E_MISSING_FILE", "no such thing")
    local file = dir:file("model.safetensors.index.json")
    t.fails(function()
      file:refuse("odd")
    end, "E_LAYOUT", "model.safetensors.index.json: odd")
    t.fails(function()
      file:refuse("odd", nil, "E_TYPE")
    end, "E_TYPE", "odd")
    t.fails(function()
      dir:item("x", 0, 1, {})
    end, "L_ERROR", "in `read` alone")
  end,

  ["a ShardedTensor is an object"] = function(t)
    local root = t.dir("ranks/whole"):file("model/rank0.pt").root
    t.equal(class(root.w), "ShardedTensor")
    local shard = root.w[1][1]
    t.equal(class(shard.metadata.shard_offsets), "list")
    t.equal(tostring(shard.tensor), "F32[1, 4]")
    t.equal(numel(root.w[2].size), 8)
    t.equal(root.w[2].tensor_properties[1], "F32")
  end,

  ["views"] = function(t)
    local view = t.dir("hf/whole"):file("model-00001-of-00002.safetensors").root.a
    t.equal(tostring(view), "F32[4]")
    t.equal(view.numel, 4)
    t.equal(view.shape[1], 4)
    local square = view:reshape({ 2, -1 })
    t.equal(tostring(square), "F32[2, 2]")
    t.equal(tostring(square:slice(1, 2)), "F32[1, 2]")
    t.equal(tostring(square:slice(0, 1, 1)), "F32[2, 1]")
    t.equal(tostring(square:slice(2, 2)), "F32[0, 2]")
    local a, b = view:split({ 1, 3 })
    t.equal(tostring(a) .. tostring(b), "F32[1]F32[3]")
    local turned = square:permute({ 1, 0 })
    t.equal(tostring(turned:slice(0, 1):reshape({ 2 })), "F32[2]")
    t.equal(view:cast("keep"), view)
    t.equal(view:cast("F32"), view)
    t.equal(tostring(turned:reshape({ 4 })), "F32[4]")
    t.equal(tostring(view:cast("BF16")), "BF16[4]")
    t.fails(function()
      view:cast("BF16"):cast("F16")
    end, "L_PLAN", "a cast of a cast")
    t.fails(function()
      view:cast("BF17")
    end, "L_ERROR", "did you mean 'BF16'?")
    t.fails(function()
      view:slice(2, 5)
    end, "E_BOUNDS", "slice 2 to 5")
    t.fails(function()
      view:slice(3, 2)
    end, "E_BOUNDS")
    t.fails(function()
      view:split({ 1, 1 })
    end, "E_LAYOUT")
    t.fails(function()
      view:reshape({ 3 })
    end, "E_LAYOUT")
    t.fails(function()
      square:permute({ 0, 0 })
    end, "E_LAYOUT")
    t.fails(function()
      return view.shap
    end, "L_ERROR", "did you mean 'shape'?")
  end,
}
