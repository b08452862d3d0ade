#!lua
-- put_node: book a node's capacity; it is taken even where the node ends over it.
-- Why one script: the capacity changes while grants read it.
--
-- KEYS[1] nodes      hash   rw  row of the node
-- KEYS[2] facts      hash   w   what is shown to people
-- KEYS[3] changes    zset   w   version of the node
-- KEYS[4] gone       zset   r   UIDs of nodes that have left
-- KEYS[5] meta       hash   rw  epoch, version counter, row counts
-- KEYS[6] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] token      str        the leader's fencing token; empty: only add what is missing
-- ARGV[3] name       str
-- ARGV[4] uid        str
-- ARGV[5] rv         str        resourceVersion of the node, '-' where it has none
-- ARGV[6] config     str        the config that `system` came from: its version, '-' where none
-- ARGV[7] cap_cpu    int >=0    allocatable minus system, millicores
-- ARGV[8] cap_mem    int >=0    the same, bytes
-- ARGV[9] blob       str        what is shown to people, msgpack
-- ARGV[10] most      int >0     journal entries kept
-- ARGV[11] context   str        the caller's context, msgpack
--
-- Returns {word}
--   BOOKED     the row now says what the fact says
--   KNOWN      it said so already, or is not the caller's to change; at most the blob is written
--   OLD        an older version of the node or of the config; nothing written
--   GONE       that node has left; nothing written
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I4 what changes nothing raises no version
-- Again:  the second time KNOWN
-- Cost:   O(log nodes)
-- Include: copy_row, journal_node, load_node, new_node, newer, node_row, overtaken,
--   save_nodes
local keys = {
  nodes = KEYS[1], facts = KEYS[2], changes = KEYS[3], gone = KEYS[4], meta = KEYS[5],
  journal = KEYS[6],
}
local epoch, token, name, uid, rv = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local config, cap_cpu, cap_mem = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
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
local loaded = {}
local entry = load_node(loaded, keys, name, epoch)
local was = entry.row and copy_row(entry.row)
if was and was.absent == 0 and token == '' then
  return {'KNOWN'}
elseif was and (newer(was.rv, rv) or overtaken(was.config, config)) then
  return {'OLD'}
end

local row = entry.row or new_node(epoch)
row.uid, row.rv, row.config, row.absent = uid, rv, config, 0
row.cap_cpu, row.cap_mem = cap_cpu, cap_mem
entry.row = row
local changed = node_row(row) ~= entry.before
save_nodes(loaded, keys)
redis.call('HSET', keys.facts, name, blob)
journal_node(keys, most, 'put_node', name, was, row, context)

return {changed and 'BOOKED' or 'KNOWN'}
