#!lua
-- unreserve_pod: release what is held for a pod on a node, unless it was reserved again since.
-- Why one script: a hold and the sum it is in must go together.
--
-- KEYS[1] nodes      hash   rw  sums of the pod's node
-- KEYS[2] pods       hash   rw  row of the pod
-- KEYS[3] names      hash   w   for the includes; not touched here
-- KEYS[4] facts      hash   w   what is shown of an absent node that goes
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when a tentative hold lapses
-- KEYS[7] meta       hash   rw  epoch, version counter, row counts
-- KEYS[8] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] stamp      int >0     Redis time of the call (sweep: before its read), us
-- ARGV[3] uid        str
-- ARGV[4] node       str
-- ARGV[5] most       int >0     journal entries kept
-- ARGV[6] context    str        the caller's context, msgpack
--
-- Returns {word}
--   RELEASED   the room is free again; the pod stays known
--   NOTHING    no such hold; nothing written
--   LATE       held there, and something newer has changed it; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I2 deadlines, I5 repeats
-- Again:  the second time NOTHING
-- Cost:   O(log held pods)
-- Include: release_pod
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], meta = KEYS[7], journal = KEYS[8],
}
local epoch, stamp, uid, name = ARGV[1], ARGV[2] * 1, ARGV[3], ARGV[4]
local most, context = ARGV[5], ARGV[6]

if redis.call('HGET', keys.meta, 'epoch') ~= epoch then
  return {'EPOCH'}
end

-- Told as done, a hold that its caller gave back would stay: hence LATE.
local word = release_pod(keys, epoch, stamp, uid, name, 'held', most, context)

return {word}
