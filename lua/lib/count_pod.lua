-- count_pod: adds a pod to its node's sums, or takes it off; the only place that touches them.
-- Takes: the node's fields, the pod's fields, 1 or -1
-- Gives: nothing; the node's fields are changed
local function count_pod(node, pod, sign)
  for _, r in ipairs({'cpu', 'mem'}) do
    local paid = sign * pod['charge_' .. r]
    if pod.ignored == 1 then
      node['ignored_' .. r] = node['ignored_' .. r] + paid
    else
      node['reserved_' .. r] = node['reserved_' .. r] + paid
      node['committed_' .. r] = node['committed_' .. r] + sign * pod[r]
    end
    if pod.moving == 1 then
      node['migrating_' .. r] = node['migrating_' .. r] + paid
    end
    local missing = math.max(pod['asked_' .. r] - pod[r], 0)
    node['pressure_' .. r] = node['pressure_' .. r] + sign * missing
  end
  node.pods = node.pods + sign
  if pod.scaled == 1 and pod.stage == 'bound' then
    node.vms = node.vms + sign
    if pod.heard == node.epoch then
      node.heard = node.heard + sign
    end
  end
end
