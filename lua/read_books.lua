#!lua
-- read_books: the whole ledger as it is at one moment, for verify and export.
-- Why one script: sums and what they add up must be of one moment.
--
-- KEYS[1] nodes      hash   r   rows
-- KEYS[2] pods       hash   r   rows
-- KEYS[3] names      hash   r   namespace/name -> newest UID
-- KEYS[4] facts      hash   r   blobs
-- KEYS[5] changes    zset   r   versions
-- KEYS[6] deadlines  zset   r   when each hold lapses
-- KEYS[7] gone       zset   r   UIDs that hold nothing any more
-- KEYS[8] meta       hash   r   epoch, state, counts
-- KEYS[9] journal    stream r   the newest entries
-- ARGV[1] blobs      int 0..1   with the facts
-- ARGV[2] entries    int >=0    with so many of the newest journal entries
--
-- Returns {word, meta, nodes, pods, names, facts, changes, deadlines, gone, journal}
--   BOOKS      each a flat list of field, value, ...; the journal newest first, {id, {field, value, ...}}
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(nodes + pods): an operator's command, not for a hot path
-- Include:
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8],
  journal = KEYS[9],
}
local blobs, entries = ARGV[1] == '1', tonumber(ARGV[2])

return {
  'BOOKS',
  redis.call('HGETALL', keys.meta),
  redis.call('HGETALL', keys.nodes),
  redis.call('HGETALL', keys.pods),
  redis.call('HGETALL', keys.names),
  blobs and redis.call('HGETALL', keys.facts) or {},
  redis.call('ZRANGE', keys.changes, 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', keys.deadlines, 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', keys.gone, 0, -1, 'WITHSCORES'),
  entries > 0 and redis.call('XREVRANGE', keys.journal, '+', '-', 'COUNT', entries) or {},
}
