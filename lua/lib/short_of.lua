-- short_of: the comparison behind every hold; `policy.fit` is its twin.
-- Takes: the node's fields without the pod, what the pod is charged there now or nil, what it will be
-- Gives: '', cpu, mem or cpu_mem, whichever is missing; whether anything more is asked at all. A
--   resource of which nothing more is asked is not judged.
local function short_of(node, was, will)
  local short, more = '', false
  for _, r in ipairs({'cpu', 'mem'}) do
    local charge = will['charge_' .. r]
    if charge > (was and was['charge_' .. r] or 0) then
      more = true
      if node['reserved_' .. r] + charge > node['cap_' .. r] then
        short = short == '' and r or 'cpu_mem'
      end
    end
  end
  return short, more
end
