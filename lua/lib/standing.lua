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
  if stamp < pod.stamp or stamp == pod.stamp and pod.stage == 'pending' then
    -- Equal: the very call whose hold was given up, sent once more and come late.
    return {'LATE'}
  end
  return nil
end
