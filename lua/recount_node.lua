#!lua
-- recount_node: make a node's sums those of its pods, where something else has changed its row.
-- Why one script: a pod that comes or goes meanwhile must be counted exactly once.
--
-- KEYS[1] nodes      hash   rw  row of the node
-- KEYS[2] pods       hash   r   rows of its pods
-- KEYS[3] facts      hash   w   what is shown of an absent node that goes
-- KEYS[4] changes    zset   w   version of the node
-- KEYS[5] meta       hash   rw  epoch, token, version counter, row counts
-- KEYS[6] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch this replica knows
-- ARGV[2] token      str        the leader's fencing token
-- ARGV[3] name       str
-- ARGV[4] version    int >=0    of the node's row, read before the pods were
-- ARGV[5] uids       str        the node's pods, each once; others among them do not count
-- ARGV[6] most       int >0     journal entries kept
-- ARGV[7] context    str        the caller's context, msgpack
--
-- Returns {word}
--   RECOUNTED  its sums were not those of its pods, and are now
--   RIGHT      they were; nothing written
--   CHANGED    the node has changed since its pods were read, or is gone; nothing written
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I1 sums: a pod that comes or goes raises the version, so none is missing among the UIDs
-- Again:  the second time CHANGED
-- Cost:   O(uids)
-- Include: count_pod, load_node, node_row, pod_row, save_nodes
local keys = {
  nodes = KEYS[1], pods = KEYS[2], facts = KEYS[3], changes = KEYS[4], meta = KEYS[5],
  journal = KEYS[6],
}
local epoch, token, name, version = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local uids, most, context = ARGV[5], ARGV[6], ARGV[7]
local sums = {
  'reserved_cpu', 'reserved_mem', 'committed_cpu', 'committed_mem', 'ignored_cpu', 'ignored_mem',
  'migrating_cpu', 'migrating_mem', 'pressure_cpu', 'pressure_mem', 'pods', 'vms',
}

local function text_of(row)
  local found = {}
  for i, sum in ipairs(sums) do
    found[i] = string.format('%d', row[sum])
  end
  return table.concat(found, ' ')
end

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif token ~= meta[2] then
  return {'FENCED'}
end
local loaded = {}
local entry = load_node(loaded, keys, name, epoch)
local row = entry.row
if not row or row.version ~= version then
  return {'CHANGED'}
end
local was = text_of(row)
row.heard = 0
for _, sum in ipairs(sums) do
  row[sum] = 0
end
for uid in string.gmatch(uids, '%S+') do
  local text = redis.call('HGET', keys.pods, uid)
  local pod = text and pod_row(text)
  if pod and pod.node == name then
    count_pod(row, pod, 1)
  end
end
if node_row(row) == entry.before then
  return {'RIGHT'}
end

save_nodes(loaded, keys)
redis.call(
  'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', 'recount', 'uid', '-', 'name', name,
  'from', '-', 'node', name, 'before', was, 'after', text_of(row), 'context', context)

return {'RECOUNTED'}
