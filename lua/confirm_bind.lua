#!lua
-- confirm_bind: book that the cluster has the pod bound to a node: a fact, from any stage.
-- Why one script: a hold that moves with the fact must leave its old node in the same step.
--
-- KEYS[1] nodes      hash   rw  sums of the pod's node
-- KEYS[2] pods       hash   rw  row of the pod
-- KEYS[3] names      hash   rw  namespace/name -> newest UID
-- KEYS[4] facts      hash   w   the blob of a pod that goes
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when a tentative hold lapses
-- KEYS[7] gone       zset   rw  UIDs that hold nothing any more
-- KEYS[8] meta       hash   rw  epoch, version counter, row counts
-- KEYS[9] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] uid        str
-- ARGV[3] node       str
-- ARGV[4] said       str        what the pod says, as a row; empty: what the ledger knows of it
-- ARGV[5] most       int >0     journal entries kept
-- ARGV[6] context    str        the caller's context, msgpack
--
-- Returns {word}
--   BOUND      booked there, now or already
--   GONE       finished or deleted, or older than the pod of its name; nothing written
--   UNKNOWN    nothing was said and nothing is known of it; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I2 one node a pod
-- Again:  the same; the second time nothing is written
-- Cost:   O(log held pods)
-- Include: copy_row, drop_replaced, journal_pod, merge_said, name_holder, newer, now_us, pod_row,
--   put_on, save_nodes, save_pod, set_charges, take_off
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8], journal = KEYS[9],
}
local epoch, uid, name, said = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, context = ARGV[5], ARGV[6]

if redis.call('HGET', keys.meta, 'epoch') ~= epoch then
  return {'EPOCH'}
end
if redis.call('ZSCORE', keys.gone, uid) then
  return {'GONE'}
end
local before = redis.call('HGET', keys.pods, uid)
local pod = before and pod_row(before) or nil
local holds = pod and pod.stage ~= 'pending'
if not pod and said == '' then
  return {'UNKNOWN'}
end
local after = not holds and said ~= '' and merge_said(pod, pod_row(said)) or copy_row(pod)
local other, other_pod = name_holder(keys, after.name, uid)
if other and newer(other_pod.rv, after.rv) then
  return {'GONE'}
end

local loaded = {}
take_off(loaded, keys, pod, epoch)
take_off(loaded, keys, other_pod, epoch)
drop_replaced(keys, other, other_pod, now_us(), most, context)
if not holds then
  set_charges(after)
end
after.node, after.stage, after.deadline = name, 'bound', 0
put_on(loaded, keys, after, epoch)
save_nodes(loaded, keys)
save_pod(keys, uid, after, before)
journal_pod(keys, most, 'confirm', uid, pod, after, context, loaded)

return {'BOUND'}
