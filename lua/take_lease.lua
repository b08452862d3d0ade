#!lua
-- take_lease: lead, or go on leading, for a while; the leader alone turns watches into facts.
-- Why one script: the lease and the token that every fact is checked against change together.
--
-- KEYS[1] lease      hash   rw  who leads, and its token
-- KEYS[2] meta       hash   w   the token that facts must carry
-- ARGV[1] holder     str        this replica
-- ARGV[2] token      str        random; the same for as long as it leads
-- ARGV[3] lease_ms   int >0     how long the lease lasts without renewal
--
-- Returns {word, ...}
--   LEADER               this replica leads with this token
--   HELD       holder    that one leads; nothing written
--
-- Keeps:  one token at a time
-- Again:  the lease is renewed
-- Cost:   O(1)
-- Include:
local keys = {lease = KEYS[1], meta = KEYS[2]}
local holder, token, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local now_holder = redis.call('HMGET', keys.lease, 'holder', 'token')
if now_holder[1] and now_holder[2] ~= token then
  return {'HELD', now_holder[1]}
end

redis.call('HSET', keys.lease, 'holder', holder, 'token', token)
redis.call('PEXPIRE', keys.lease, lease_ms)
redis.call('HSET', keys.meta, 'fence', token)

return {'LEADER'}
