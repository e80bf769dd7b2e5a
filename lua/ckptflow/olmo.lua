--- What OLMo's config.yaml says of the checkpoint beside it.
--- One line of it is looked at, whatever else is in there: OLMo itself cannot read its older ones
--- any more. Source: allenai/OLMo olmo/config.py, scripts/storage_cleaner.py.
local olmo = {}

--- The kind of checkpoint that config.yaml names: "torch_legacy" (also where it says `legacy`, null
--- or nothing, as it did when there was no other), "torch_new", "local", "olmo_core". Nil without a
--- config.yaml.
function olmo.declared(dir)
  local text = dir:has("config.yaml") and dir:file("config.yaml").root
  if type(text) ~= "string" then
    return nil
  end
  local line = ("\n" .. text):match("\nsharded_checkpointer%s*:([^\r\n]*)") or ""
  local said = line:gsub("%s#.*", ""):match("([%w_]+)[\"']?%s*$") -- the enum's name may lead
  return (not said or said == "null" or said == "legacy") and "torch_legacy" or said
end

--- config.yaml and the files, which are of `kind`, must say the same; `other` is a second word for
--- it.
function olmo.agree(dir, kind, other)
  local said = olmo.declared(dir)
  if said and said ~= kind and said ~= other then
    dir:refuse(
      ("config.yaml says %s, the files are of %s"):format(said, kind),
      "config.yaml, or the files, are another checkpoint's",
      "E_META_CONFLICT"
    )
  end
end

local WORDS = { null = false, ["~"] = false, [""] = false, ["true"] = true, ["false"] = false }

--- The plain entries of one section of config.yaml's text, as `model`: numbers, booleans, texts;
--- what is null is left out. Lists and sections in it are not looked into.
function olmo.section(text, name)
  local found, inside = {}, false
  for line in text:gmatch("[^\r\n]+") do
    local key, value = line:match("^  ([%w_]+):%s*(.-)%s*$")
    if line:match("^%S") then
      inside = line:match("^([%w_]+):%s*$") == name
    elseif inside and key then
      value = value:gsub("%s#.*$", ""):gsub("^([\"'])(.*)%1$", "%2")
      found[key] = tonumber(value) or value
      if WORDS[value] ~= nil then
        found[key] = WORDS[value] or (value == "false" and false or nil)
      end
    end
  end
  return found
end

return olmo
