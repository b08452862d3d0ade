-- holding: what the journal tells of a pod, kept while the pod's own fields change.
-- Takes: the pod's fields
-- Gives: a table with those of them that `journal_pod` reads
local function holding(pod)
  return {
    name = pod.name, node = pod.node, stage = pod.stage, cpu = pod.cpu, mem = pod.mem,
    charge_cpu = pod.charge_cpu, charge_mem = pod.charge_mem,
    asked_cpu = pod.asked_cpu, asked_mem = pod.asked_mem,
    ignored = pod.ignored, moving = pod.moving,
  }
end
