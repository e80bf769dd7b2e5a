--- Several saves below one folder: which one is meant.
--- DeepSpeed's `latest`, Megatron's `latest_checkpointed_iteration.txt`, nanotron's `latest.txt`
--- and Composer's `latest-rank0.pt.symlink` hold the name, the number or the path of it; or a link
--- leads there: one of these, Composer's `latest-rank0.pt`, Lightning's `last.ckpt`.
local saves = {}

local POINTERS = {
  "latest",
  "latest_universal",
  "latest.txt",
  "latest_checkpointed_iteration.txt",
  "**latest*.symlink",
}

local LINKS = { "**latest*", "**last*.ckpt" }

--- The save that links to folders lead to; nothing where they lead to several, or to none of these.
local function linked(dir, list)
  local chosen, by
  for name, to in pairs(dir:links(table.unpack(LINKS))) do
    for _, save in ipairs(list) do
      if to ~= "" and (save .. "/"):sub(1, #to) == to then
        if chosen and chosen ~= save then
          return nil
        end
        chosen, by = save, name
      end
    end
  end
  return chosen, by
end

--- Is there such a pointer, a file or a link?
function saves.points(dir, name)
  return dir:has(name) or next(dir:links(name)) ~= nil
end

--- Does what a pointer says (a name, a path, the number of an iteration) mean this folder?
local function means(said, save)
  local name = save:match("([^/]+)/?$") or ""
  if said:match("^%d+$") then
    local number = name:match("^iter_(%d+)$") or name:match("^(%d+)$")
    return number ~= nil and tonumber(number) == tonumber(said)
  end
  for part in said:gmatch("[^/%s]+") do
    if part == name then
      return true
    end
  end
  return false
end

--- Those of `files` that are of one save. A file's save is its folder, or what the pattern `of`
--- takes from its name (nothing: the checkpoint's own folder). Several saves and no pointer:
--- refused, with their names; so is a pointer to none of them.
function saves.one(dir, files, of)
  local list, save_of, seen = {}, {}, {}
  for i, file in ipairs(files) do
    local save = (of and file.name:match(of)) or (not of and file.folder) or ""
    save_of[i] = save
    if not seen[save] then
      seen[save], list[#list + 1] = true, save
    end
  end
  local chosen, said = list[1], ""
  local link, by = linked(dir, list)
  if link then
    chosen, said = link, by
  end
  for _, pointer in ipairs(link and {} or dir:glob(table.unpack(POINTERS))) do
    local text = pointer.root
    said = type(text) == "string" and text:match("^%s*(.-)%s*$") or ""
    if said ~= "" then
      chosen = nil
      for _, save in ipairs(list) do
        chosen = means(said, save) and save or chosen
      end
      if not chosen and #list > 0 and not (#list == 1 and list[1] == "") then
        dir:refuse(
          ("%s says %s; here are %s"):format(pointer.name, said, table.concat(list, " ")),
          "give the folder that is meant"
        )
      end
      chosen = chosen or list[1]
      break
    end
  end
  if said == "" and #list > 1 then
    dir:refuse(
      ("%d checkpoints are here: %s"):format(#list, table.concat(list, " ")),
      list[#list]:match("[^/]$") and "give the files of one" or "give the folder that is meant",
      "E_META_CONFLICT"
    )
  end
  local kept = {}
  for i, file in ipairs(files) do
    if save_of[i] == chosen then
      kept[#kept + 1] = file
    end
  end
  return kept
end

return saves
