#!lua
-- find_lapsed: tentative holds past their deadline, for the sweep to settle by live reads.
-- Why one script: they are judged by Redis' clock, and come with the time before the live read.
--
-- KEYS[1] pods       hash   r   rows
-- KEYS[2] deadlines  zset   r   when each hold lapses
-- ARGV[1] limit      int >0     most that are named
--
-- Returns {word, now_us, uid, row, uid, row, ...}
--   LAPSED     those whose deadline has passed, the longest lapsed first; maybe none
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(limit)
-- Include: now_us
local keys = {pods = KEYS[1], deadlines = KEYS[2]}
local limit = ARGV[1]

local now = now_us()
local out = {'LAPSED', string.format('%d', now)}
local uids = redis.call(
  'ZRANGEBYSCORE', keys.deadlines, '-inf', string.format('%d', now / 1000), 'LIMIT', 0, limit)
for _, uid in ipairs(uids) do
  out[#out + 1] = uid
  out[#out + 1] = redis.call('HGET', keys.pods, uid) or ''
end

return out
