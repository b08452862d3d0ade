#!lua
-- read_config: the last good config.
-- Why one script: it is the only way to the books.
--
-- KEYS[1] meta       hash   r   the config and its version
--
-- Returns {word, ...}
--   CONFIG     version text
--   NOTHING                   none was ever kept
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(1)
-- Include:
local meta = KEYS[1]

local found = redis.call('HMGET', meta, 'config_version', 'config')
if not found[1] then
  return {'NOTHING'}
end

return {'CONFIG', found[1], found[2]}
