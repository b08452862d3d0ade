#!lua
-- read_compare: when a compare was last asked for, and which request was answered, how.
-- Why one script: all of it must be of one moment.
--
-- KEYS[1] compare    hash   r   requests and answers
--
-- Returns {word, asked, done, replica, mended}
--   COMPARE    requests in Redis' time (us), 0 for none; the replica that compared; rows mended
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(1)
-- Include:
local compare = KEYS[1]

local found = redis.call('HMGET', compare, 'asked', 'done', 'replica', 'mended')

return {
  'COMPARE', found[1] or '0', found[2] or '0', found[3] or '', found[4] or '0',
}
