--- The rank that carries least, for policies: of several the first in their list. Half a million
--- items that 512 ranks hold are common, so nobody is asked twice for nothing: a list of ranks is a
--- heap by the loads that were last seen, and loads only grow. When the top one's is what was seen,
--- all others' are that or more.
local lightest = {}

local FEW = 8 -- so many are quicker asked one by one
local heaps = setmetatable({}, { __mode = "k" }) -- by list, which is the same again and again

--- Puts the rank at `place` of the list with this load down from the top.
local function sink(heap, place, carried)
  local places, seen, n, i = heap.places, heap.seen, #heap.places, 1
  while 2 * i <= n do
    local child = 2 * i
    local other = child + 1
    if
      other <= n
      and (
        seen[other] < seen[child]
        or seen[other] == seen[child] and places[other] < places[child]
      )
    then
      child = other
    end
    if carried < seen[child] or carried == seen[child] and place < places[child] then
      break
    end
    places[i], seen[i] = places[child], seen[child]
    i = child
  end
  places[i], seen[i] = place, carried
end

--- Of a list that does not change while `load` grows.
function lightest.of(ranks, load)
  if #ranks <= FEW then
    local best = ranks[1]
    for i = 2, #ranks do
      if load[ranks[i]] < load[best] then
        best = ranks[i]
      end
    end
    return best
  end
  local heap = heaps[ranks]
  if not heap then
    heap = { places = {}, seen = {} }
    for place = 1, #ranks do
      heap.places[place], heap.seen[place] = place, 0
    end
    heaps[ranks] = heap
  end
  while true do
    local place = heap.places[1]
    local carried = load[ranks[place]]
    if carried == heap.seen[1] then
      return ranks[place]
    end
    sink(heap, place, carried)
  end
end

return lightest
