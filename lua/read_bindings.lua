#!lua
-- read_bindings: file source only: every Binding that was noted.
-- Why one script: it is the only way to the books.
--
-- KEYS[1] bindings   hash   r   UID -> node
--
-- Returns {word, uid, node, uid, node, ...}
--   BINDINGS             in no order
--
-- Keeps:  nothing is written
-- Again:  the same, or more
-- Cost:   O(bindings): a developer's machine, not a cluster
-- Include:
local keys = {bindings = KEYS[1]}

local out = {'BINDINGS'}
for _, item in ipairs(redis.call('HGETALL', keys.bindings)) do
  out[#out + 1] = item
end

return out
