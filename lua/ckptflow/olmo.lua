--- What OLMo's config.yaml says of the checkpoint beside it.
--- Read line by line and leniently, whatever else is in there: OLMo itself cannot read its older
--- ones any more. Keys and values may be quoted, tagged, anchored or commented, lines may end as on
--- any system, sections may be indented by any number of spaces.
--- Source: allenai/OLMo olmo/config.py, scripts/storage_cleaner.py.
local olmo = {}

--- A scalar without what YAML lets stand around it; empty where it is null.
local function plain(text)
  text = (" " .. text):gsub("%s#.*$", "")
  local tags
  repeat -- a tag, an anchor
    text, tags = text:gsub("^%s*[!&]%S*", "")
  until tags == 0
  text = text:match("^%s*(.-)%s*$")
  local quoted = text:match('^"(.*)"$') or text:match("^'(.*)'$")
  local null = text == "~" or text:lower() == "null"
  return quoted or (null and "" or text)
end

--- indent, key and what follows it, of each line that is an entry of a mapping.
local function entries(text)
  local lines = text:gsub("^\xEF\xBB\xBF", ""):gmatch("[^\r\n]+")
  return function()
    for line in lines do
      local indent, key, rest = line:match("^( *)[\"']?([%w_]+)[\"']?%s*:(.*)$")
      if key and (rest == "" or rest:match("^%s")) then
        return #indent, key, rest
      end
    end
  end
end

--- The kind of checkpoint that config.yaml names: "torch_legacy" (also where it says `legacy`, null
--- or nothing, as it did when there was no other), "torch_new", "local", "olmo_core". Nil without a
--- config.yaml. The second result says it to people.
function olmo.declared(dir)
  local text = dir:has("config.yaml") and dir:file("config.yaml").root
  if type(text) ~= "string" then
    return nil
  end
  for indent, key, rest in entries(text) do
    local said = plain(rest):match("([%w_]+)%s*$") -- the enum's name may lead
    if indent == 0 and key == "sharded_checkpointer" and said then
      said = said == "legacy" and "torch_legacy" or said
      return said, said
    end
  end
  return "torch_legacy", "torch_legacy (it names no sharded_checkpointer)"
end

--- config.yaml and the files, which are of `kind`, must say the same; `other` is a second word for
--- it.
function olmo.agree(dir, kind, other)
  local said, words = olmo.declared(dir)
  if said and said ~= kind and said ~= other then
    dir:refuse(
      ("config.yaml says %s, the files are of %s"):format(words, kind),
      "config.yaml, or the files, are another checkpoint's",
      "E_META_CONFLICT"
    )
  end
end

--- The plain entries of one section of config.yaml's text, as `model`: numbers, booleans, texts;
--- what is null is left out. Lists and sections in it are not looked into.
function olmo.section(text, name)
  local found, inside, depth = {}, false, nil
  for indent, key, rest in entries(text) do
    local value = plain(rest)
    if indent == 0 then
      inside, depth = key == name, nil
    elseif inside then
      depth = depth or indent
      local word = value:lower()
      local truth = word == "true" or word == "false"
      if indent == depth and truth then
        found[key] = word == "true"
      elseif indent == depth and value ~= "" then -- else of a section in it, or null
        found[key] = tonumber(value) or value
      end
    end
  end
  return found
end

return olmo
