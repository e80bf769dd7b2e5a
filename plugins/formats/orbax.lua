--- Orbax (JAX): told apart so that it can be refused by name. Its arrays are chunks of zarr, mostly
--- inside an OCDBT database (`manifest.ocdbt`), compressed; that takes a reader of its own.
--- Source: google/orbax docs/guides/checkpoint/checkpoint_format; google/tensorstore ocdbt, zarr.

local MARKS = {
  "**manifest.ocdbt",
  "**_CHECKPOINT_METADATA",
  "**.zarray",
  "**zarr.json",
}

---@type ckptflow.Format
return {
  api = 1,
  about = "Orbax (JAX), which is recognised and not read",

  detect = function(dir)
    for _, mark in ipairs(MARKS) do
      local file = dir:glob(mark)[1]
      if file then
        return 75, file.name
      end
    end
  end,

  files = function(dir)
    dir:refuse(
      "an Orbax checkpoint: arrays in zarr chunks or an OCDBT database are not supported",
      "restore it with orbax and save the arrays as .npz or .safetensors; those are read",
      "E_LAYOUT"
    )
  end,

  read = function() end,
}
