#!lua
-- put_config: keep the last good config, for replicas that start beside a bad one.
-- Why one script: an older config must not take the place of a newer one.
--
-- KEYS[1] meta       hash   rw  the config and its version
-- ARGV[1] version    str        resourceVersion of the ConfigMap
-- ARGV[2] text       str        what is in it
--
-- Returns {word}
--   KEPT       now or already
--   OLD        a newer one is kept; nothing written
--
-- Keeps:  the newest good config
-- Again:  the same
-- Cost:   O(1)
-- Include: newer
local meta = KEYS[1]
local version, text = ARGV[1], ARGV[2]

local known = redis.call('HGET', meta, 'config_version')
if known and newer(known, version) then
  return {'OLD'}
end

redis.call('HSET', meta, 'config_version', version, 'config', text)

return {'KEPT'}
