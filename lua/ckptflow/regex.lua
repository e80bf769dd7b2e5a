--- Regular expressions of Python that stand in checkpoints, as patterns of Lua: letters, dots,
--- classes, \d \w \s, and * + ? behind one character, | between whole expressions. Others are an
--- error: a pattern that means another thing would place tensors wrongly.
local regex = {}

local CLASS = { d = "%d", w = "[%w_]", s = "%s", D = "%D", S = "%S", W = "[^%w_]" }

local function unknown(text)
  error("the regular expression " .. text .. " is not understood")
end

local function translate(text)
  local out, at = {}, 1
  while at <= #text do
    local c, next = text:sub(at, at), text:sub(at + 1, at + 1)
    if c == "\\" then
      out[#out + 1] = CLASS[next] or next:match("%w") and unknown(text) or "%" .. next
      at = at + 1
    elseif c == "[" then
      local set = text:match("^%[[%w_%-^]+%]", at) or unknown(text)
      out[#out + 1] = set
      at = at + #set - 1
    elseif c:match("[(){}|]") or c == "%" then
      unknown(text)
    elseif c:match("[.*+?^$]") or c:match("[%w_]") then
      out[#out + 1] = c
    else
      out[#out + 1] = "%" .. c
    end
    at = at + 1
  end
  return "^" .. table.concat(out):gsub("^%^", "")
end

--- Does any of these match from the beginning on, as re.match does?
function regex.any(patterns, name)
  for _, pattern in pairs(patterns or {}) do
    for one in (pattern .. "|"):gsub("^%((.*)%)|$", "%1|"):gmatch("([^|]*)|") do
      if name:match(translate(one)) then
        return true
      end
    end
  end
  return false
end

return regex
