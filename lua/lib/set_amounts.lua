-- set_amounts: what a pod holds once a fact is taken in.
-- Takes: the pod's new fields, the fields of the hold it has or nil, what was approved before
-- Gives: nothing; amounts, asked and charges are changed
-- Include: charge
local function set_amounts(pod, hold, approved)
  for _, r in ipairs({'cpu', 'mem'}) do
    local asked
    if pod.scaled == 1 and hold and hold.scaled == 1 then
      -- An agent may not be told less than its VM uses, and the annotation trails the agent: only
      -- a use that has risen is news.
      local use = pod['use_' .. r]
      pod[r] = use > hold['use_' .. r] and math.max(use, hold[r]) or hold[r]
      asked = hold['asked_' .. r]
    elseif pod.scaled == 1 then
      pod[r] = math.max(pod[r], approved[r])
    end
    pod['asked_' .. r] = asked or pod[r]
    pod['charge_' .. r] = charge(pod[r], pod['over_' .. r])
  end
end
