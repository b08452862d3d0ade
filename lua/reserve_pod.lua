#!lua
-- reserve_pod: hold room for one pod on one node, or say why not; to=binding also begins a bind.
-- Why one script: two replicas must not both give away the last free core, and a pod that moves
--   must never be on two nodes or on none.
--
-- KEYS[1] nodes      hash   rw  sums of the node, and of the node it moves from
-- KEYS[2] pods       hash   rw  row of the pod, and of an older pod of its name
-- KEYS[3] names      hash   rw  namespace/name -> newest UID
-- KEYS[4] facts      hash   w   the blob of an older pod of its name goes
-- KEYS[5] changes    zset   w   version of each changed node
-- KEYS[6] deadlines  zset   w   when the hold lapses
-- KEYS[7] gone       zset   rw  UIDs that hold nothing any more
-- KEYS[8] meta       hash   rw  epoch, state, version counter, row counts
-- KEYS[9] freezes    hash   r   where an operator has stopped grants
-- KEYS[10] journal   stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] stamp      int >0     Redis time at which the call reached us, us
-- ARGV[3] uid        str
-- ARGV[4] node       str
-- ARGV[5] said       str        what the pod says, as a row; empty: what the ledger knows of it
-- ARGV[6] to         str        held or binding
-- ARGV[7] hold_ms    int >0     lifetime of the hold
-- ARGV[8] most       int >0     journal entries kept
-- ARGV[9] context    str        the caller's context, msgpack
--
-- Returns {word, ...}
--   HELD       cpu mem rv  held here, now or already, with this amount, of that pod version
--   BINDING    cpu mem rv  a Binding may be sent (to=binding), or one is under way (to=held)
--   BOUND      cpu mem rv  bound here already; nothing written
--   NO_ROOM    short     cpu, mem or cpu_mem is missing; nothing written
--   NO_NODE              nobody knows the node, or it has left; nothing written
--   FROZEN               an operator has stopped grants there; nothing written
--   UNSETTLED            what was told before a loss may be missing there; nothing written
--   BUSY       node      a Binding to that other node is under way; nothing written
--   CONFLICT   node      bound to that other node; nothing written
--   NAME_TAKEN uid       another pod of the name is binding or bound; nothing written
--   GONE                 finished or deleted, or older than the pod of its name; nothing written
--   IGNORED              its namespace is ignored: bound without a hold; nothing written
--   UNREADABLE           its VM's data cannot be read; nothing written
--   UNKNOWN              nothing was said and nothing is known of it; nothing written
--   LATE                 something newer has changed it; nothing written
--   EPOCH                the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I2 one node a pod, I3 no grant over capacity, I5 repeats
-- Again:  same uid, node, stamp -> same word, counted once; the deadline is renewed
-- Cost:   O(log held pods)
-- Include: count_pod, drop_replaced, frozen, journal_pod, load_node, name_holder, needs, newer,
--   now_us, pod_row, save_nodes, save_pod, set_charges, short_of, standing, take_off, unsettled
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8], freezes = KEYS[9],
  journal = KEYS[10],
}
local epoch, stamp, uid, name = ARGV[1], ARGV[2] * 1, ARGV[3], ARGV[4]
local said, to, hold_ms = ARGV[5], ARGV[6], ARGV[7] * 1
local most, context = ARGV[8], ARGV[9]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'state', 'settle_ms')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif redis.call('ZSCORE', keys.gone, uid) then
  return {'GONE'}
end
local before = redis.call('HGET', keys.pods, uid)
local pod = before and pod_row(before) or nil
local answer = standing(pod, name, to, stamp)
if answer then
  return answer
end
local after, why_not = needs(pod, said)
if not after then
  return {why_not}
end
local other, other_pod = name_holder(keys, after.name, uid)
if other and newer(other_pod.rv, after.rv) then
  return {'GONE'}
elseif other and (other_pod.stage == 'binding' or other_pod.stage == 'bound') then
  return {'NAME_TAKEN', other}
end
local loaded, now = {}, now_us()
local node = load_node(loaded, keys, name, epoch).row
if not node or node.absent == 1 then
  return {'NO_NODE'}
end
-- The node is judged as if neither the pod itself nor the pod it replaces were there.
take_off(loaded, keys, pod, epoch)
take_off(loaded, keys, other_pod, epoch)
set_charges(after)
local short, more = short_of(node, pod and pod.node == name and pod or nil, after)
if more and frozen(keys, name) then
  return {'FROZEN'}
elseif more and unsettled(node, meta[2], meta[3], now) then
  return {'UNSETTLED'}
elseif short ~= '' then
  return {'NO_ROOM', short}
end

drop_replaced(keys, other, other_pod, now, most, context)
after.node, after.stage, after.stamp = name, to, stamp
after.deadline = math.floor(now / 1000) + hold_ms
after.heard = after.scaled == 1 and epoch or '-'
count_pod(node, after, 1)
save_nodes(loaded, keys)
save_pod(keys, uid, after, before)
local what = to == 'binding' and 'begin_bind' or 'reserve'
journal_pod(keys, most, what, uid, pod, after, context, loaded)

return {to == 'binding' and 'BINDING' or 'HELD', after.cpu, after.mem, after.rv}
