-- save_pod: writes a pod's row, its name and its deadline where they have changed.
-- Takes: table of keys, UID, the pod's fields, the text of its row before or false
-- Gives: nothing
-- Include: pod_row
local function save_pod(keys, uid, pod, before)
  local text = pod_row(pod)
  if text == before then
    return
  end
  redis.call('HSET', keys.pods, uid, text)
  if not before then
    redis.call('HSET', keys.names, pod.name, uid)
    redis.call('HINCRBY', keys.meta, 'pods', 1)
  end
  if pod.deadline > 0 then
    redis.call('ZADD', keys.deadlines, pod.deadline, uid)
  elseif before then
    redis.call('ZREM', keys.deadlines, uid)
  end
end
