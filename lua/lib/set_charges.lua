-- set_charges: works out what the node pays for a pod whose amounts have just been set.
-- Takes: the pod's fields
-- Gives: nothing; charge and asked are changed
-- Include: charge
local function set_charges(pod)
  for _, r in ipairs({'cpu', 'mem'}) do
    pod['charge_' .. r] = charge(pod[r], pod['over_' .. r])
    pod['asked_' .. r] = pod[r]
  end
end
