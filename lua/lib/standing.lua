-- standing: what a pod's stage alone decides of a reserve or a bind.
-- Takes: the pod's fields or nil, the node asked for, held or binding, the call's stamp
-- Gives: the script's answer, or nil where room has to be judged
local function standing(pod, name, to, stamp)
  if not pod then
    return nil
  elseif pod.stage == 'bound' then
    return pod.node == name and {'BOUND', pod.cpu, pod.mem, pod.rv} or {'CONFLICT', pod.node}
  elseif pod.stage == 'binding' and pod.node ~= name then
    return {'BUSY', pod.node}
  elseif pod.stage == 'binding' and to == 'held' then
    return {'BINDING', pod.cpu, pod.mem, pod.rv}
  end
  return stamp < pod.stamp and {'LATE'} or nil
end
