#!lua
-- request_permit: an agent asks for room for its VM, or tells that the VM has shrunk.
-- Why one script: what is left on the node and what is granted of it must be one step.
--
-- KEYS[1] nodes      hash   rw  sums of the VM's node
-- KEYS[2] pods       hash   rw  row of the VM's pod
-- KEYS[3] names      hash   r   namespace/name -> newest UID
-- KEYS[4] facts      hash   w   for the includes; not touched here
-- KEYS[5] changes    zset   w   version of the node
-- KEYS[6] deadlines  zset   w   for the includes; not touched here
-- KEYS[7] meta       hash   rw  epoch, state, version counter
-- KEYS[8] freezes    hash   r   where an operator has stopped grants
-- KEYS[9] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] stamp      int >0     Redis time at which the call reached us, us
-- ARGV[3] name       str        namespace/name
-- ARGV[4] cpu        int >0     what the agent asks for, millicores
-- ARGV[5] mem        int >0     the same, bytes
-- ARGV[6] factor_cpu int >0     compute unit: the step in which CPU grows
-- ARGV[7] factor_mem int >0     the same for memory
-- ARGV[8] last_cpu   int >=0    the permit the agent was told last; 0 where it has none
-- ARGV[9] last_mem   int >=0    the same, bytes
-- ARGV[10] most      int >0     journal entries kept
-- ARGV[11] context   str        the caller's context, msgpack
--
-- Returns {word, ...}
--   PERMIT     cpu mem   the most that the VM may use from now on
--   FIXED      cpu mem   autoscaling is off: what it holds; nothing written
--   UNKNOWN              nobody knows a pod of that name; nothing written
--   UNBOUND              known, but not bound yet; nothing written
--   NOT_VM               a pod that runs no VM; nothing written
--   UNREADABLE           its VM's data cannot be read; nothing written
--   LATE                 something newer has changed it; nothing written
--   EPOCH                the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums, I3 no grant over capacity, I5 growth only when room has come
-- Again:  same stamp -> at least the same permit
-- Cost:   O(log nodes)
-- Include: charge, count_pod, frozen, holding, journal_pod, load_node, pod_row, room_for,
--   save_nodes, save_pod, unsettled
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], meta = KEYS[7], freezes = KEYS[8], journal = KEYS[9],
}
local epoch, stamp, name = ARGV[1], ARGV[2] * 1, ARGV[3]
local cpu, mem = ARGV[4] * 1, ARGV[5] * 1
local factor_cpu, factor_mem = ARGV[6] * 1, ARGV[7] * 1
local last_cpu, last_mem = ARGV[8] * 1, ARGV[9] * 1
local most, context = ARGV[10], ARGV[11]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'state', 'settle_ms')
if meta[1] ~= epoch then
  return {'EPOCH'}
end
local uid = redis.call('HGET', keys.names, name)
local before = uid and redis.call('HGET', keys.pods, uid)
if not before then
  return {'UNKNOWN'}
end
local pod = pod_row(before)
if pod.vm == 0 then
  return {'NOT_VM'}
elseif pod.stage ~= 'bound' then
  return {'UNBOUND'}
elseif pod.broken == 1 then
  return {'UNREADABLE'}
elseif pod.scaled == 0 then
  return {'FIXED', pod.cpu, pod.mem}
elseif stamp < pod.stamp then
  return {'LATE'}
end

local loaded = {}
local node = load_node(loaded, keys, pod.node, epoch).row
local first, was = pod.heard ~= epoch, holding(pod)
count_pod(node, pod, -1)
pod.heard, pod.stamp = epoch, stamp
-- Counted as heard before the node is judged: it may be the one that the node waited for.
local seen = {vms = node.vms + 1, heard = node.heard + 1}
local grows = first or cpu > pod.cpu or mem > pod.mem
local stays = not grows or pod.moving == 1 or frozen(keys, pod.node)
  or unsettled(seen, meta[2], meta[3])
local what = 'request'

-- The amount of one resource: what it shrinks to, or how far it may grow.
local function judge(has, wants, step, told, use, most_of_it, over, left)
  local amount = math.min(has, wants)
  if first and told > 0 then
    -- What was told and then lost with its Redis comes back as a fact: a grant, and a decrease,
    -- whose room may have been told to another VM.
    amount = math.min(math.max(math.min(told, most_of_it), use), wants)
    what = amount > math.min(has, wants) and 'restore' or what
  end
  if wants > amount and not stays then
    local room = room_for(left - charge(amount, over), over, step)
    amount = amount + math.min(wants - amount, room)
  end
  return amount, charge(amount, over)
end

pod.cpu, pod.charge_cpu = judge(
  pod.cpu, cpu, factor_cpu, last_cpu, pod.use_cpu, pod.max_cpu, pod.over_cpu,
  node.cap_cpu - node.reserved_cpu)
pod.mem, pod.charge_mem = judge(
  pod.mem, mem, factor_mem, last_mem, pod.use_mem, pod.max_mem, pod.over_mem,
  node.cap_mem - node.reserved_mem)
pod.asked_cpu, pod.asked_mem = cpu, mem
pod.factor_cpu, pod.factor_mem = factor_cpu, factor_mem

count_pod(node, pod, 1)
save_nodes(loaded, keys)
save_pod(keys, uid, pod, before)
journal_pod(keys, most, what, uid, was, pod, context, loaded)

return {'PERMIT', pod.cpu, pod.mem}
