#!lua
-- read_changes: the rows of nodes that changed since a version, or all of them.
-- Why one script: rows and the version that they belong to must be of one moment.
--
-- KEYS[1] nodes      hash   r   rows
-- KEYS[2] changes    zset   r   version of each changed node, removed ones included
-- KEYS[3] meta       hash   r   epoch, state, versions
-- KEYS[4] freezes    hash   r   where an operator has stopped grants
-- ARGV[1] epoch      str        epoch of the rows the caller has; empty where it has none
-- ARGV[2] since      int >=0    version of the rows the caller has
--
-- Returns {word, epoch, version, state, settle_ms, freezes, name, row, name, row, ...}
--   DELTA      what changed since then; an empty row: the node is gone
--   FULL       every node there is; what is not named is gone
--   UNBUILT    no books; the rest of the answer is empty
-- Freezes: {node or *, note, ...}, few or none
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(changed nodes), or O(nodes) for FULL
-- Include:
local keys = {nodes = KEYS[1], changes = KEYS[2], meta = KEYS[3], freezes = KEYS[4]}
local epoch, since = ARGV[1], tonumber(ARGV[2])

local meta = redis.call('HMGET', keys.meta, 'epoch', 'version', 'state', 'settle_ms', 'oldest')
if not meta[1] then
  return {'UNBUILT'}
end
local version = tonumber(meta[2])
local full = meta[1] ~= epoch or since < tonumber(meta[5])
local out = {
  full and 'FULL' or 'DELTA', meta[1], version, meta[3], tonumber(meta[4]),
  redis.call('HGETALL', keys.freezes),
}
if full then
  for _, item in ipairs(redis.call('HGETALL', keys.nodes)) do
    out[#out + 1] = item
  end
  return out
end
if since == version then
  return out
end
local after = string.format('(%d', since)
for _, name in ipairs(redis.call('ZRANGEBYSCORE', keys.changes, after, '+inf')) do
  out[#out + 1] = name
  out[#out + 1] = redis.call('HGET', keys.nodes, name) or ''
end

return out
