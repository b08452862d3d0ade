#!lua
-- load_pods: put pods that the cluster has beside the books, many in one call; none of them anew.
-- Why one script: a pod and its node's sums must not part; many in one share the nodes' rows.
--
-- KEYS[1] new_nodes  hash   rw  sums of the pods' nodes
-- KEYS[2] new_pods   hash   rw  rows of the pods
-- KEYS[3] new_names  hash   rw  namespace/name -> UID
-- KEYS[4] new_facts  hash   w   what is kept beside a row
-- KEYS[5] new_changes zset  w   version of each changed node
-- KEYS[6] new_deadlines zset w  for the includes; what is loaded has none
-- KEYS[7] new_gone   zset   r   UIDs that hold nothing any more
-- KEYS[8] new_meta   hash   rw  epoch, token, version counter, row counts
-- ARGV[1] epoch      str        of the build
-- ARGV[2] token      str        the leader's fencing token
-- ARGV[3] rows       str        a line for each pod that has not finished: UID, CPU and memory
--   approved by its VM's annotation, bytes of its blob, what its object says, as a row
-- ARGV[4] blobs      str        what is kept beside those rows, one after the other
--
-- Returns {word, ...}
--   LOADED     uid...  those left out for put_pod to judge: their name is another pod's
--   FENCED     another replica leads or builds now, or another build; nothing written
--
-- Keeps:  I1 sums, I2 one pod a name; the books themselves are not touched
-- Again:  a pod that is there, or gone, is passed over
-- Cost:   O(lines)
-- Include: name_holder, pod_row, put_on, save_nodes, save_pod, set_amounts
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8],
}
local epoch, token, rows, blobs = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence')
if meta[1] ~= epoch or meta[2] ~= token then
  return {'FENCED'}
end
local given, at = {}, 0
for uid, cpu, mem, bytes, row in string.gmatch(rows, '(%S+) (%d+) (%d+) (%d+) ([^\n]+)') do
  local blob = string.sub(blobs, at + 1, at + bytes)
  at = at + bytes
  given[#given + 1] = {
    uid = uid, approved = {cpu = tonumber(cpu), mem = tonumber(mem)}, pod = pod_row(row),
    blob = blob,
  }
end

local loaded, left = {}, {'LOADED'}
for _, fact in ipairs(given) do
  local uid, pod = fact.uid, fact.pod
  local is_there = redis.call('HEXISTS', keys.pods, uid) == 1
  local is_known = is_there or redis.call('ZSCORE', keys.gone, uid)
  if not is_known and name_holder(keys, pod.name, uid) then
    left[#left + 1] = uid
  elseif not is_known then
    set_amounts(pod, nil, fact.approved)
    pod.stage = 'pending'
    if pod.node ~= '-' then
      pod.stage = 'bound'
      put_on(loaded, keys, pod, epoch)
    end
    save_pod(keys, uid, pod, false)
    if fact.blob ~= '' then
      redis.call('HSET', keys.facts, uid, fact.blob)
    end
  end
end
save_nodes(loaded, keys)

return left
