#!lua
-- lose_books: these books are not to be believed any more, or there are none; since when.
-- Why one script: no replica may decide on books that another has given up.
--
-- KEYS[1] lease      hash   r   who leads, and its token
-- KEYS[2] meta       hash   rw  epoch, and when the loss was noticed; gone with the next books
-- KEYS[3] journal    stream w   what changed
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] most       int >0     journal entries kept
-- ARGV[3] context    str        who and why, msgpack
--
-- Returns {word, ...}
--   LOST       lost_ms   unbuilt since then (Redis' time), now or already
--   FENCED               another replica leads now; nothing written
--
-- Keeps:  a Binding of the lost books may be on its way for a bind budget from that time on,
--   whichever replica builds
-- Again:  the same moment
-- Cost:   O(1)
-- Include: now_us
local keys = {lease = KEYS[1], meta = KEYS[2], journal = KEYS[3]}
local token, most, context = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', keys.lease, 'token') ~= token then
  return {'FENCED'}
end
local meta = redis.call('HMGET', keys.meta, 'epoch', 'lost_ms')
local epoch, lost_ms = meta[1], meta[2]

if not lost_ms then
  lost_ms = string.format('%d', now_us() / 1000)
  redis.call('HSET', keys.meta, 'lost_ms', lost_ms)
end
if epoch then
  redis.call('HDEL', keys.meta, 'epoch')
  redis.call(
    'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', 'lost', 'uid', '-', 'name', '-',
    'from', '-', 'node', '-', 'before', epoch, 'after', '', 'context', context)
end

return {'LOST', tonumber(lost_ms)}
