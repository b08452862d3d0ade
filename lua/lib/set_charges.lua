-- set_charges: works out what the node pays for a pod whose amounts have just been set.
-- Takes: the pod's fields
-- Gives: nothing; charge and asked are changed
-- Include: charge
local function set_charges(pod)
  pod.charge_cpu = charge(pod.cpu, pod.over_cpu)
  pod.charge_mem = charge(pod.mem, pod.over_mem)
  pod.asked_cpu, pod.asked_mem = pod.cpu, pod.mem
end
