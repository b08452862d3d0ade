#!lua
-- find_unlisted: rows that the lists beside them lack: a server that evicts has thrown one away.
-- Why one script: rows and lists must be of one moment.
--
-- KEYS[1] nodes      hash   r   which of the names still have a row
-- KEYS[2] pods       hash   r   counted, and rows of the UIDs
-- KEYS[3] names      hash   r   counted: as many as pods
-- KEYS[4] changes    zset   r   has every node
-- KEYS[5] deadlines  zset   r   has every tentative hold
-- ARGV[1] node_names str        nodes to look for, each once
-- ARGV[2] uids       str        pods that were seen tentative, each once
--
-- Returns {word, names, nodes, row, row, ...}
--   UNLISTED   so many names are missing, so many of the nodes have no version; rows of those UIDs
--     that have no deadline, which is right where they are not tentative any more
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(node_names + uids)
-- Include:
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], changes = KEYS[4], deadlines = KEYS[5],
}
local node_names, uids = ARGV[1], ARGV[2]

local names = redis.call('HLEN', keys.pods) - redis.call('HLEN', keys.names)
local nodes, rows = 0, {}
for name in string.gmatch(node_names, '%S+') do
  if not redis.call('ZSCORE', keys.changes, name) then
    nodes = nodes + redis.call('HEXISTS', keys.nodes, name)
  end
end
for uid in string.gmatch(uids, '%S+') do
  if not redis.call('ZSCORE', keys.deadlines, uid) then
    rows[#rows + 1] = redis.call('HGET', keys.pods, uid) or nil
  end
end

return {'UNLISTED', names, nodes, unpack(rows)}
