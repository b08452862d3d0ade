-- charge: what a node pays for an amount; `Overcommit.charge` is its twin.
-- Takes: an amount, and the overcommit factor in thousandths
-- Gives: amount / factor, rounded down, exact although amount * 1000 may exceed 2^53
local function charge(amount, over)
  local rest = amount % over
  return (amount - rest) / over * 1000 + math.floor(rest * 1000 / over)
end
