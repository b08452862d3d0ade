#!lua
-- freeze_grants: an operator stops grants, on one node or everywhere, until they are thawed.
-- Why one script: who froze first and why must stand, and the journal must tell of each freeze.
--
-- KEYS[1] nodes      hash   r   which nodes there are
-- KEYS[2] freezes    hash   rw  node, or * for all -> when (ms), and the context
-- KEYS[3] journal    stream w   what changed
-- ARGV[1] node       str        * for every node, those too that come later
-- ARGV[2] dry        int 0..1   1: only say what would be
-- ARGV[3] most       int >0     journal entries kept
-- ARGV[4] context    str        who and why, msgpack
--
-- Returns {word, ...}
--   FROZEN               nothing is granted there from now on
--   ALREADY    note      it was frozen before, since then and by them; nothing written
--   NO_NODE              nobody knows the node; nothing written
--
-- Keeps:  the books are not touched, and a new build of them does not thaw
-- Again:  the second time ALREADY
-- Cost:   O(1)
-- Include: journal_order, now_us
local keys = {nodes = KEYS[1], freezes = KEYS[2], journal = KEYS[3]}
local node, dry, most, context = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]

local note = redis.call('HGET', keys.freezes, node)
if note then
  return {'ALREADY', note}
elseif node ~= '*' and redis.call('HEXISTS', keys.nodes, node) == 0 then
  return {'NO_NODE'}
elseif dry then
  return {'FROZEN'}
end
local now_ms = string.format('%d', now_us() / 1000)

redis.call('HSET', keys.freezes, node, table.concat({now_ms, context}, ' '))
journal_order(keys, most, 'freeze', node, context)

return {'FROZEN'}
