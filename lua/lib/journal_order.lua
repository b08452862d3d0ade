-- journal_order: one entry for what an operator has ordered, in the same step as the order.
-- Takes: table of keys, most entries kept, what was ordered, the node that it is about or * for the
--   whole ledger, who and why (msgpack)
-- Gives: nothing
local function journal_order(keys, most, what, node, context)
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', what, 'uid', '-', 'name', '-',
    'from', '-', 'node', node, 'before', '', 'after', '', 'context', context)
end
