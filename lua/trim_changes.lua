#!lua
-- trim_changes: forget removed nodes that every replica has heard of, so that names that never come
--   back leave nothing behind.
-- Why one script: the oldest version that `changes` covers moves with what is taken from it.
--
-- KEYS[1] nodes      hash   r   which nodes there are
-- KEYS[2] changes    zset   rw  version of each changed node
-- KEYS[3] gone       zset   w   UIDs remembered long enough
-- KEYS[4] meta       hash   rw  token, oldest version covered
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] before     int >=0    versions up to this one are known to every replica
-- ARGV[3] limit      int >0     nodes looked at in one run
--
-- Returns {word, ...}
--   TRIMMED    count     so many removed nodes are forgotten; a replica that knows less reads all
--   FENCED               another replica leads now; nothing written
--
-- Keeps:  I4 a delta never lacks a removal
-- Again:  the second time 0
-- Cost:   O(limit)
-- Include: now_us
local keys = {nodes = KEYS[1], changes = KEYS[2], gone = KEYS[3], meta = KEYS[4]}
local token, before, limit = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', keys.meta, 'fence') ~= token then
  return {'FENCED'}
end
local removed, oldest = {}, nil
local old = redis.call(
  'ZRANGEBYSCORE', keys.changes, '-inf', before, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #old, 2 do
  if redis.call('HEXISTS', keys.nodes, old[i]) == 0 then
    removed[#removed + 1] = old[i]
    oldest = old[i + 1]
  end
end

for _, name in ipairs(removed) do
  redis.call('ZREM', keys.changes, name)
end
if oldest then
  redis.call('HSET', keys.meta, 'oldest', oldest)
end
redis.call('ZREMRANGEBYSCORE', keys.gone, '-inf', math.floor(now_us() / 1000) - 600000)

return {'TRIMMED', #removed}
