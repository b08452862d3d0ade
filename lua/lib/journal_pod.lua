-- journal_pod: one entry for a change of one pod's hold, in the same step as the change.
-- Takes: table of keys, most entries kept, what was done, UID, fields before or nil, fields after
--   or nil, the caller's context (msgpack), table of loaded nodes
-- Gives: nothing; an entry only where a hold, an amount or a node has changed. `room` says how the
--   pod's node stands after it, so that each grant can be checked from the journal alone.
local function journal_pod(keys, most, what, uid, before, after, context, loaded)
  local function state(pod)
    return pod and string.format(
      '%s %d %d %d %d %d %d %d %d', pod.stage, pod.cpu, pod.mem, pod.charge_cpu, pod.charge_mem,
      pod.asked_cpu, pod.asked_mem, pod.ignored, pod.moving) or ''
  end
  local from, to = before and before.node or '-', after and after.node or '-'
  local was, is = state(before), state(after)
  if from == to and was == is then
    return
  end
  local node, room = after and loaded[to] and loaded[to].row, ''
  if node then
    room = string.format(
      '%d %d %d %d', node.reserved_cpu, node.reserved_mem, node.cap_cpu, node.cap_mem)
  end
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', what, 'uid', uid,
    'name', (after or before).name, 'from', from, 'node', to,
    'before', was, 'after', is, 'room', room, 'context', context)
end
