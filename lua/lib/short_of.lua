-- short_of: the comparison behind every hold; `policy.fit` is its twin.
-- Takes: the node's fields without the pod, what the pod is charged there now or nil, what it will be
-- Gives: '', cpu, mem or cpu_mem, whichever is missing; whether anything more is asked at all. A
--   resource of which nothing more is asked is not judged.
local function short_of(node, was, will)
  local more_cpu = will.charge_cpu > (was and was.charge_cpu or 0)
  local more_mem = will.charge_mem > (was and was.charge_mem or 0)
  local no_cpu = more_cpu and node.reserved_cpu + will.charge_cpu > node.cap_cpu
  local no_mem = more_mem and node.reserved_mem + will.charge_mem > node.cap_mem
  local short = no_cpu and no_mem and 'cpu_mem' or no_cpu and 'cpu' or no_mem and 'mem' or ''
  return short, more_cpu or more_mem
end
