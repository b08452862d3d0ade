-- drop_pod: takes a pod out of the books for good; its UID is refused while `gone` has it, ten minutes.
-- Takes: table of keys, UID, the pod's name, whether there is a row, Redis' time in microseconds
-- Gives: nothing; the node's sums are the caller's to change
local function drop_pod(keys, uid, name, has_row, now)
  local now_ms = math.floor(now / 1000)
  redis.call('ZADD', keys.gone, now_ms, uid)
  redis.call('ZREMRANGEBYSCORE', keys.gone, '-inf', now_ms - 600000)
  if redis.call('HGET', keys.names, name) == uid then
    redis.call('HDEL', keys.names, name)
  end
  if has_row then
    redis.call('HDEL', keys.pods, uid)
    redis.call('HDEL', keys.facts, uid)
    redis.call('ZREM', keys.deadlines, uid)
    redis.call('HINCRBY', keys.meta, 'pods', -1)
  end
end
