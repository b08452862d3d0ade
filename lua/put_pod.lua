#!lua
-- put_pod: book what the cluster says of a pod and its VM; facts are taken even over capacity.
-- Why one script: the amount of an autoscaled VM is worked out from the row found here, so that a
--   permit granted while the fact was on its way stands.
--
-- KEYS[1] nodes      hash   rw  sums of the pod's node
-- KEYS[2] pods       hash   rw  row of the pod
-- KEYS[3] names      hash   rw  namespace/name -> newest UID
-- KEYS[4] facts      hash   w   what is kept beside the row
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when a tentative hold lapses
-- KEYS[7] gone       zset   rw  UIDs that hold nothing any more
-- KEYS[8] meta       hash   rw  epoch, version counter, row counts
-- KEYS[9] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] token      str        the leader's fencing token; empty: only add what is missing
-- ARGV[3] uid        str
-- ARGV[4] said       str        what the objects say, as a row; node '-' while unbound
-- ARGV[5] finished   int 0..1   phase Succeeded or Failed
-- ARGV[6] deleting   int 0..1   has a deletionTimestamp
-- ARGV[7] approved_cpu int >=0  approved once, by the VM's annotation; counts where no row is
-- ARGV[8] approved_mem int >=0  the same, bytes
-- ARGV[9] blob       str        what the row does not say, msgpack; empty: nothing
-- ARGV[10] most      int >0     journal entries kept
-- ARGV[11] context   str        the caller's context, msgpack
--
-- Returns {word}
--   BOOKED     the row now says what the fact says
--   KNOWN      it said so already, or a fact without a node met a hold; at most the blob is written
--   RELEASED   finished, or deleted while unbound: it holds nothing
--   OLD        an older version of the objects, or of the pod's name; nothing written
--   GONE       finished or deleted before; nothing written
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I2 one node a pod and one pod a name
-- Again:  the same fact changes nothing more
-- Cost:   O(log held pods)
-- Include: drop_pod, drop_replaced, journal_pod, keep_blob, merge_said, name_holder, newer, now_us,
--   pod_row, put_on, save_nodes, save_pod, set_amounts, take_off
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8], journal = KEYS[9],
}
local epoch, token, uid, said = ARGV[1], ARGV[2], ARGV[3], pod_row(ARGV[4])
local finished, deleting = ARGV[5] == '1', ARGV[6] == '1'
local approved = {cpu = tonumber(ARGV[7]), mem = tonumber(ARGV[8])}
local blob, most, context = ARGV[9], ARGV[10], ARGV[11]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif token ~= '' and token ~= meta[2] then
  return {'FENCED'}
end
if redis.call('ZSCORE', keys.gone, uid) then
  return {'GONE'}
end
local before = redis.call('HGET', keys.pods, uid)
local pod = before and pod_row(before) or nil
if token == '' and pod and (said.node == '-' or finished or pod.stage == 'bound') then
  if not newer(pod.rv, said.rv) then
    keep_blob(keys, uid, blob)
  end
  return {'KNOWN'}
end
local name, rv = pod and pod.name or said.name, said.rv  -- a UID never changes its name
local after = merge_said(pod, said)
local other, other_pod = name_holder(keys, name, uid)
if not after or other and newer(other_pod.rv, rv) then
  return {'OLD'}
end
local unbound = after.node == '-'
local holds = pod and pod.stage ~= 'pending'
if holds and unbound and not finished and not (deleting and pod.stage ~= 'bound') then
  keep_blob(keys, uid, blob)
  return {'KNOWN'}
end

local now, loaded = now_us(), {}
take_off(loaded, keys, pod, epoch)
take_off(loaded, keys, other_pod, epoch)
drop_replaced(keys, other, other_pod, now, most, context)
if finished then
  drop_pod(keys, uid, name, pod ~= nil, now)
  save_nodes(loaded, keys)
  journal_pod(keys, most, 'finish', uid, pod, nil, context)
  return {'RELEASED'}
end
set_amounts(after, holds and pod or nil, pod and {cpu = 0, mem = 0} or approved)
after.stage, after.deadline = unbound and 'pending' or 'bound', 0
if not unbound then
  put_on(loaded, keys, after, epoch)
end
save_nodes(loaded, keys)
save_pod(keys, uid, after, before)
keep_blob(keys, uid, blob)
journal_pod(keys, most, 'put_pod', uid, pod, after, context, loaded)

if holds and unbound then
  return {'RELEASED'}
end
return {pod_row(after) == before and 'KNOWN' or 'BOOKED'}
