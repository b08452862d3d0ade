-- room_for: how much a VM may grow in what is left of its node, in whole steps.
-- Takes: what is left (may be negative), overcommit in thousandths, the step
-- Gives: floor(left * overcommit / step) * step, never below 0, exact although the product may
--   exceed 2^53
local function room_for(left, over, step)
  if left <= 0 then
    return 0
  end
  local rest = left % 1000
  local room = (left - rest) / 1000 * over + math.floor(rest * over / 1000)
  return room - room % step
end
