#!lua
-- delete_pod: book that a pod is gone; its UID holds nothing again.
-- Why one script: the hold, the sum it is in and the memory of the deletion must go together.
--
-- KEYS[1] nodes      hash   rw  sums of the pod's node
-- KEYS[2] pods       hash   rw  row of the pod
-- KEYS[3] names      hash   rw  namespace/name -> newest UID
-- KEYS[4] facts      hash   w   the blob of a pod that goes
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when a tentative hold lapses
-- KEYS[7] gone       zset   w   UIDs that hold nothing any more
-- KEYS[8] meta       hash   rw  epoch, version counter, row counts
-- KEYS[9] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] token      str        the leader's fencing token
-- ARGV[3] uid        str
-- ARGV[4] name       str        namespace/name
-- ARGV[5] most       int >0     journal entries kept
-- ARGV[6] context    str        the caller's context, msgpack
--
-- Returns {word}
--   DELETED    its row is gone
--   NOTHING    there was no row; the deletion is remembered all the same
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I2 a name goes only if it points to that UID
-- Again:  the second time NOTHING
-- Cost:   O(log held pods)
-- Include: drop_pod, journal_pod, now_us, pod_row, save_nodes, take_off
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8], journal = KEYS[9],
}
local epoch, token, uid, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, context = ARGV[5], ARGV[6]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif token ~= meta[2] then
  return {'FENCED'}
end
local before = redis.call('HGET', keys.pods, uid)
local pod = before and pod_row(before) or nil

local loaded = {}
take_off(loaded, keys, pod, epoch)
drop_pod(keys, uid, pod and pod.name or name, pod ~= nil, now_us())
if not pod then
  return {'NOTHING'}
end
save_nodes(loaded, keys)
journal_pod(keys, most, 'delete_pod', uid, pod, nil, context)

return {'DELETED'}
