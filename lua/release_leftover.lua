#!lua
-- release_leftover: free what a pod holds that a live read has proved to be finished or gone.
-- Why one script: the hold, the sum it is in and the memory of its end must go together.
--
-- KEYS[1] nodes      hash   rw  sums of the pod's node
-- KEYS[2] pods       hash   rw  row of the pod
-- KEYS[3] names      hash   rw  namespace/name -> newest UID
-- KEYS[4] facts      hash   w   the blob of the pod goes
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when a tentative hold lapses
-- KEYS[7] gone       zset   w   UIDs that hold nothing any more
-- KEYS[8] meta       hash   rw  epoch, version counter, row counts
-- KEYS[9] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] uid        str        of a pod that is finished or gone: it never comes back
-- ARGV[3] most       int >0     journal entries kept
-- ARGV[4] context    str        the caller's context, msgpack
--
-- Returns {word}
--   RELEASED   its row is gone, and the room is free again
--   NOTHING    it has no row; nothing written
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
local epoch, uid, most, context = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HGET', keys.meta, 'epoch') ~= epoch then
  return {'EPOCH'}
end
local before = redis.call('HGET', keys.pods, uid)
if not before then
  return {'NOTHING'}
end
local pod = pod_row(before)

local loaded = {}
take_off(loaded, keys, pod, epoch)
drop_pod(keys, uid, pod.name, true, now_us())
save_nodes(loaded, keys)
journal_pod(keys, most, 'release', uid, pod, nil, context)

return {'RELEASED'}
