--- OLMo unsharded with --safe-tensors: model.safetensors and optim.safetensors whose keys are
--- pickles in base64, (path, is the value a pickle too?), beside train.pt (other.pt before).
--- Source: allenai/OLMo olmo/safetensors_util.py.
local names = require("ckptflow.names")
local pickle = require("ckptflow.pickle")
local torch = require("ckptflow.torch")

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
local VALUE = {}
for i = 1, 64 do
  VALUE[DIGITS:sub(i, i)] = i - 1
end

local function base64(text)
  local bytes, bits, count = {}, 0, 0
  for digit in text:gmatch("[^=]") do
    bits, count = bits << 6 | VALUE[digit], count + 6
    if count >= 8 then
      count = count - 8
      bytes[#bytes + 1] = string.char(bits >> count & 255)
    end
  end
  return table.concat(bytes)
end

local function files(dir)
  return dir:glob("{part*}.safetensors", "train.pt", "other.pt")
end

---@type ckptflow.Format
return {
  api = 1,
  about = "OLMo unsharded, --safe-tensors: keys that are pickles",
  roles = { { "model", "model.{name}" }, { "optim", "optim.state.{name}" } },

  detect = function(dir)
    local file = dir:glob("model.safetensors", "optim.safetensors")[1]
    local key = file and pairs(file.root)(file.root)
    if key and key:match("^gA[RSTUV][%w_=-]+$") then -- protocols 3 to 5
      return 80, "keys that are pickles in base64"
    end
  end,

  files = files,

  read = function(file, out)
    if not file.part then
      for key, node in file:walk() do
        torch.put(out, file.name:sub(1, -3) .. key, node, file)
      end
      return
    end
    local name_of, states = nil, {}
    for text, view in pairs(file.root) do
      local key = pickle.decode(base64(text))
      local path = {}
      for i, part in pairs(key[1]) do
        path[i] = tostring(part)
      end
      local name = file.part .. "." .. table.concat(path, ".")
      if key[2] then
        local value = pickle.read(view)
        out:value(name, value)
        if path[1] == "param_groups" then
          name_of = names.of_ids(value)
        end
      else
        out:tensor(name, view)
        if file.part == "optim" and path[1] == "state" then
          states[name] = { id = key[1][2], state = table.concat(path, ".", 3) }
        end
      end
    end
    for name, s in pairs(states) do
      names.put_id(out, name, s.id, s.state, name_of)
    end
  end,
}
