-- release_pod: frees a pod's room on a node if it is in this stage and nothing newer changed it.
-- Takes: table of keys, epoch, stamp, UID, node name, stage it must be in, most journal entries,
--   the caller's context
-- Gives: RELEASED: room was freed, the pod stays known, as pending; LATE: the hold is there and
--   something newer has changed it; NOTHING: there is no such hold
-- Include: holding, journal_pod, pod_row, save_nodes, save_pod, take_off
local function release_pod(keys, epoch, stamp, uid, name, stage, most, context)
  local before = redis.call('HGET', keys.pods, uid)
  local pod = before and pod_row(before)
  if not pod or pod.stage ~= stage or pod.node ~= name then
    return 'NOTHING'
  elseif stamp < pod.stamp then
    return 'LATE'
  end
  local loaded = {}
  take_off(loaded, keys, pod, epoch)
  local was = holding(pod)
  pod.stage, pod.node, pod.deadline, pod.stamp = 'pending', '-', 0, stamp
  save_nodes(loaded, keys)
  save_pod(keys, uid, pod, before)
  local what = stage == 'held' and 'unreserve' or 'abandon'
  journal_pod(keys, most, what, uid, was, pod, context, loaded)
  return 'RELEASED'
end
