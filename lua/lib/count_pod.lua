-- count_pod: adds a pod to its node's sums, or takes it off; the only place that touches them.
-- Takes: the node's fields, the pod's fields, 1 or -1
-- Gives: nothing; the node's fields are changed
local function count_pod(node, pod, sign)
  local cpu, mem = sign * pod.charge_cpu, sign * pod.charge_mem
  if pod.ignored == 1 then
    node.ignored_cpu, node.ignored_mem = node.ignored_cpu + cpu, node.ignored_mem + mem
  else
    node.reserved_cpu, node.reserved_mem = node.reserved_cpu + cpu, node.reserved_mem + mem
    node.committed_cpu = node.committed_cpu + sign * pod.cpu
    node.committed_mem = node.committed_mem + sign * pod.mem
  end
  if pod.moving == 1 then
    node.migrating_cpu, node.migrating_mem = node.migrating_cpu + cpu, node.migrating_mem + mem
  end
  if pod.asked_cpu > pod.cpu then
    node.pressure_cpu = node.pressure_cpu + sign * (pod.asked_cpu - pod.cpu)
  end
  if pod.asked_mem > pod.mem then
    node.pressure_mem = node.pressure_mem + sign * (pod.asked_mem - pod.mem)
  end
  node.pods = node.pods + sign
  if pod.scaled == 1 and pod.stage == 'bound' then
    node.vms = node.vms + sign
    if pod.heard == node.epoch then
      node.heard = node.heard + sign
    end
  end
end
