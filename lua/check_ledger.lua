#!lua
-- check_ledger: the guard that opens each pipeline: are these still the books we know?
-- Why one script: whatever a promotion or a loss did must be marked before anything behind it in
--   the pipeline runs. Looking when connecting is not enough: a connection outlived its server's
--   demotion and promotion with the run id unchanged and the last grant gone.
--
-- KEYS[1] nodes      hash   r   counted
-- KEYS[2] pods       hash   r   counted
-- KEYS[3] meta       hash   rw  schema, epoch, state, replication id, row counts, marks
-- KEYS[4] journal    stream w   a new epoch is noted
-- ARGV[1] new_epoch  str        random name for an epoch, should one begin here
-- ARGV[2] watch      int 0..1   compare the replication id (0 where the server has no INFO)
-- ARGV[3] most       int >0     journal entries kept
-- ARGV[4] mark       int 0..1   write something: only behind a write does the server wait for its
--   replicas or its disk, and what comes after may repeat what is in the books already
-- ARGV[5] schema     int >0     which fields of rows this release knows
--
-- Returns {word, now_us, epoch, version, settle_ms, replid}
--   SETTLED    the books are whole and compared
--   SUSPECT    another replication id: what was acknowledged last may be missing
--   NEWER      rows of a newer release, whose schema stands for the version; nothing written
--   OLDER      rows of an older release, the same; migrate_ledger comes first
--   UNBUILT    no books, or rows are missing; the rest of the answer but now_us is empty
--
-- Keeps:  I4 a new epoch for each uninterrupted life of the books
-- Again:  the same
-- Cost:   O(1)
-- Include: now_us
local keys = {nodes = KEYS[1], pods = KEYS[2], meta = KEYS[3], journal = KEYS[4]}
local new_epoch, watch, most = ARGV[1], ARGV[2] == '1', ARGV[3]
local mark, schema = ARGV[4] == '1', tonumber(ARGV[5])

local meta = redis.call(
  'HMGET', keys.meta, 'epoch', 'state', 'replid', 'nodes', 'pods', 'version', 'settle_ms',
  'schema')
local epoch, state, version, settle_ms = meta[1], meta[2], meta[6], meta[7]
local now = string.format('%d', now_us())
local found = tonumber(meta[8] or '0')
if found > schema then
  return {'NEWER', now, '', found, 0, ''}
elseif not epoch then
  return {'UNBUILT', now, '', 0, 0, ''}
elseif found < schema then
  return {'OLDER', now, '', found, 0, ''}
end
local nodes, pods = redis.call('HLEN', keys.nodes), redis.call('HLEN', keys.pods)
local server = watch and redis.call('INFO', 'replication') or ''
local replid = string.match(server, 'master_replid:(%w+)') or ''

if nodes ~= tonumber(meta[4]) or pods ~= tonumber(meta[5]) then
  redis.call('HDEL', keys.meta, 'epoch')
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', 'lost', 'uid', '-', 'name', '-',
    'from', '-', 'node', '-', 'before', epoch, 'after', '', 'context', '')
  return {'UNBUILT', now, '', 0, 0, ''}
end
if watch and replid ~= meta[3] then
  redis.call('HSET', keys.meta, 'epoch', new_epoch, 'state', 'suspect', 'replid', replid)
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', 'suspect', 'uid', '-', 'name', '-',
    'from', '-', 'node', '-', 'before', epoch, 'after', new_epoch, 'context', '')
  epoch, state = new_epoch, 'suspect'
end
if mark then
  redis.call('HINCRBY', keys.meta, 'marks', 1)
end

local word = state == 'settled' and 'SETTLED' or 'SUSPECT'
return {word, now, epoch, tonumber(version), tonumber(settle_ms), replid}
