-- journal_node: one entry for a change of a node's capacity, in the same step as the change.
-- Takes: table of keys, most entries kept, what was done, node name, fields before or nil, fields
--   after or nil, the caller's context (msgpack)
-- Gives: nothing; an entry only where the capacity or the presence has changed
local function journal_node(keys, most, what, name, before, after, context)
  local function state(node)
    if not node then
      return ''
    end
    return string.format('%d %d %d', node.absent, node.cap_cpu, node.cap_mem)
  end
  if state(before) == state(after) then
    return
  end
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', what, 'uid', '-',
    'name', name, 'from', '-', 'node', name,
    'before', state(before), 'after', state(after), 'context', context)
end
