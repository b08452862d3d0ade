#!lua
-- delete_node: book that a node has left; while pods are on it, a row of no capacity stays.
-- Why one script: pods may be counted on it or taken off in the same moment.
--
-- KEYS[1] nodes      hash   rw  row of the node
-- KEYS[2] facts      hash   w   what is shown to people
-- KEYS[3] changes    zset   w   version of the node
-- KEYS[4] gone       zset   w   UIDs of nodes that have left
-- KEYS[5] meta       hash   rw  epoch, version counter, row counts
-- KEYS[6] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] token      str        the leader's fencing token
-- ARGV[3] name       str
-- ARGV[4] uid        str
-- ARGV[5] most       int >0     journal entries kept
-- ARGV[6] context    str        the caller's context, msgpack
--
-- Returns {word}
--   DELETED    its row is gone
--   ABSENT     pods are still on it: capacity 0, flagged absent
--   NOTHING    no such node under that name; the deletion is remembered all the same
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 its pods go on counting
-- Again:  the second time NOTHING
-- Cost:   O(log nodes)
-- Include: copy_row, journal_node, load_node, now_us, save_nodes
local keys = {
  nodes = KEYS[1], facts = KEYS[2], changes = KEYS[3], gone = KEYS[4], meta = KEYS[5],
  journal = KEYS[6],
}
local epoch, token, name, uid = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, context = ARGV[5], ARGV[6]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif token ~= meta[2] then
  return {'FENCED'}
end
local loaded = {}
local entry = load_node(loaded, keys, name, epoch)
local row = entry.row
local now_ms = math.floor(now_us() / 1000)

if uid ~= '-' then
  redis.call('ZADD', keys.gone, now_ms, uid)
end
if not row or row.absent == 1 or row.uid ~= uid then
  return {'NOTHING'}
end
local was = copy_row(row)
row.absent, row.cap_cpu, row.cap_mem, row.uid = 1, 0, 0, '-'
save_nodes(loaded, keys)
journal_node(keys, most, 'delete_node', name, was, row.pods > 0 and row or nil, context)

return {row.pods > 0 and 'ABSENT' or 'DELETED'}
