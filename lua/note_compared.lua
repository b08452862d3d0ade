#!lua
-- note_compared: the leader has compared the ledger with the cluster, as somebody had asked.
-- Why one script: a former leader that wakes up must not answer for its successor.
--
-- KEYS[1] lease      hash   r   who leads, and its token
-- KEYS[2] compare    hash   w   which request was answered, and how
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] asked      int >=0    the newest request that the compare began after
-- ARGV[3] replica    str        who leads
-- ARGV[4] mended     int >=0    rows that were found to differ
--
-- Returns {word}
--   COMPARED   whoever asked is told
--   FENCED     another replica leads now; nothing written
--
-- Keeps:  the books are not touched
-- Again:  the same
-- Cost:   O(1)
-- Include:
local keys = {lease = KEYS[1], compare = KEYS[2]}
local token, asked, replica, mended = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HGET', keys.lease, 'token') ~= token then
  return {'FENCED'}
end

redis.call('HSET', keys.compare, 'done', asked, 'replica', replica, 'mended', mended)

return {'COMPARED'}
