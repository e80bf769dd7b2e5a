--- A checkpoint that is one file under any name: its first bytes say what is in it.
local lone = {}

local FEW = 16
local BESIDE = { "*.md", "*.txt", "*.json", "*.yaml", "*.yml", "*.html", "*.log", ".gitattributes" }

--- The only file there is, beside texts, if it is one of these kinds (`file.kind`).
function lone.file(dir, ...)
  local found
  for _, file in ipairs(#dir <= FEW and dir:glob("**") or {}) do
    local beside = false
    for _, text in ipairs(#dir > 1 and dir:glob(table.unpack(BESIDE)) or {}) do
      beside = beside or text.name == file.name
    end
    if not beside then
      if found then
        return nil
      end
      found = file
    end
  end
  for _, kind in ipairs(found and { ... } or {}) do
    if found.kind == kind then
      return found
    end
  end
end

--- The files that fit any of the patterns; if none does, the only file, as above.
function lone.files(dir, patterns, ...)
  local list = dir:glob(table.unpack(patterns))
  return #list > 0 and list or { lone.file(dir, ...) }
end

return lone
