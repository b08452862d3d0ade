#!lua
-- load_row: put one row of an exported ledger beside the books, with all that follows from it.
-- Why one script: the row and what is derived from it must not part.
--
-- KEYS[1] new_nodes  hash   w   row of a node
-- KEYS[2] new_pods   hash   w   row of a pod
-- KEYS[3] new_names  hash   w   namespace/name -> UID
-- KEYS[4] new_facts  hash   w   the blob
-- KEYS[5] new_changes zset  w   version of a node
-- KEYS[6] new_deadlines zset w  when a tentative hold lapses
-- KEYS[7] new_meta   hash   rw  token, row counts, version counter
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] kind       str        node or pod
-- ARGV[3] id         str        node name or UID
-- ARGV[4] row        str        as it was exported; moments that another server's clock gave are
--   now at the latest: each hold is looked into at once, and no later call is late
-- ARGV[5] blob       str        as it was exported; empty where there was none
--
-- Returns {word}
--   LOADED     the row is beside the books
--   FENCED     another replica leads or builds now; nothing written
--
-- Keeps:  the books themselves are not touched
-- Again:  the same row counts once
-- Cost:   O(log rows)
-- Include: node_row, now_us, pod_row
local nodes, pods, names, facts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local changes, deadlines, meta = KEYS[5], KEYS[6], KEYS[7]
local token, kind, id, row, blob = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local has = redis.call('HMGET', meta, 'fence', 'version')
if has[1] ~= token then
  return {'FENCED'}
end

if blob ~= '' then
  redis.call('HSET', facts, id, blob)
end
if kind == 'node' then
  local version = node_row(row).version
  redis.call('HINCRBY', meta, 'nodes', redis.call('HSET', nodes, id, row))
  redis.call('ZADD', changes, version, id)
  if version > tonumber(has[2]) then
    redis.call('HSET', meta, 'version', version)
  end
else
  local pod, now = pod_row(row), now_us()
  pod.stamp = math.min(pod.stamp, now)
  pod.deadline = math.min(pod.deadline, math.floor(now / 1000))
  redis.call('HINCRBY', meta, 'pods', redis.call('HSET', pods, id, pod_row(pod)))
  redis.call('HSET', names, pod.name, id)
  if pod.deadline > 0 then
    redis.call('ZADD', deadlines, pod.deadline, id)
  end
end

return {'LOADED'}
