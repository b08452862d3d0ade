#!lua
-- read_rows: some rows with all that is said of them elsewhere, and what changed before that moment.
-- Why one script: sums and what they add up must be of one moment, and the journal's end with them.
--
-- KEYS[1] nodes      hash   r   rows
-- KEYS[2] pods       hash   r   rows
-- KEYS[3] names      hash   r   namespace/name -> newest UID
-- KEYS[4] changes    zset   r   versions
-- KEYS[5] deadlines  zset   r   when each hold lapses
-- KEYS[6] gone       zset   r   UIDs that hold nothing any more
-- KEYS[7] meta       hash   r   epoch, version, row counts
-- KEYS[8] journal    stream r   what changed since
-- ARGV[1] since      str        entries from that id on, itself included
-- ARGV[2] entries    int >0     at most so many, the oldest first
-- ARGV[3] node_names str        each once, spaces between
-- ARGV[4] uids       str        the same
-- ARGV[5] pod_names  str        the same
--
-- Returns {word, meta, nodes, pods, journal, node_rows, pod_rows, names}
--   ROWS       meta: epoch, version, nodes, pods; then how many rows are there of each; a flat list of
--              name, row, version; of uid, row, deadline, gone; of name, uid; empty for what is not there
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(rows + entries)
-- Include:
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], changes = KEYS[4], deadlines = KEYS[5],
  gone = KEYS[6], meta = KEYS[7], journal = KEYS[8],
}
local since, entries = ARGV[1], tonumber(ARGV[2])
local node_names, uids, pod_names = ARGV[3], ARGV[4], ARGV[5]

local node_rows, pod_rows, names = {}, {}, {}
for name in string.gmatch(node_names, '%S+') do
  node_rows[#node_rows + 1] = name
  node_rows[#node_rows + 1] = redis.call('HGET', keys.nodes, name) or ''
  node_rows[#node_rows + 1] = redis.call('ZSCORE', keys.changes, name) or ''
end
for uid in string.gmatch(uids, '%S+') do
  pod_rows[#pod_rows + 1] = uid
  pod_rows[#pod_rows + 1] = redis.call('HGET', keys.pods, uid) or ''
  pod_rows[#pod_rows + 1] = redis.call('ZSCORE', keys.deadlines, uid) or ''
  pod_rows[#pod_rows + 1] = redis.call('ZSCORE', keys.gone, uid) or ''
end
for name in string.gmatch(pod_names, '%S+') do
  names[#names + 1] = name
  names[#names + 1] = redis.call('HGET', keys.names, name) or ''
end

return {
  'ROWS',
  redis.call('HMGET', keys.meta, 'epoch', 'version', 'nodes', 'pods'),
  redis.call('HLEN', keys.nodes),
  redis.call('HLEN', keys.pods),
  redis.call('XRANGE', keys.journal, since, '+', 'COUNT', entries),
  node_rows,
  pod_rows,
  names,
}
