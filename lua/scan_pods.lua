#!lua
-- scan_pods: the pods' rows in portions, so that a compare never holds Redis up.
-- Why one script: it is the only way to the books.
--
-- KEYS[1] pods       hash   r   rows
-- ARGV[1] cursor     str        0 to begin, then what the last portion gave
-- ARGV[2] count      int >0     about so many rows
--
-- Returns {word, cursor, uid, row, uid, row, ...}
--   PORTION              cursor 0: the last one; a row that is there all the while is in one of them
--
-- Keeps:  nothing is written
-- Again:  the same portion, or newer
-- Cost:   O(count)
-- Include:
local pods = KEYS[1]
local cursor, count = ARGV[1], ARGV[2]

local found = redis.call('HSCAN', pods, cursor, 'COUNT', count)
local out = {'PORTION', found[1]}
for _, item in ipairs(found[2]) do
  out[#out + 1] = item
end

return out
