#!lua
-- drop_lease: stop leading, so that another replica may lead at once.
-- Why one script: only the holder's own lease may go.
--
-- KEYS[1] lease      hash   rw  who leads, and its token
-- ARGV[1] token      str        the token this replica led with
--
-- Returns {word}
--   DROPPED    it led, and leads no more
--   NOTHING    it did not lead; nothing written
--
-- Keeps:  one token at a time
-- Again:  the second time NOTHING
-- Cost:   O(1)
-- Include:
local keys = {lease = KEYS[1]}
local token = ARGV[1]

if redis.call('HGET', keys.lease, 'token') ~= token then
  return {'NOTHING'}
end

redis.call('DEL', keys.lease)

return {'DROPPED'}
