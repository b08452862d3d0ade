#!lua
-- begin_build: empty the keys beside the books, into which the leader then loads facts.
-- Why one script: a builder that was overtaken must not empty its successor's work.
--
-- KEYS[1] lease      hash   r   who leads, and its token
-- KEYS[2] new_nodes  hash   w   emptied
-- KEYS[3] new_pods   hash   w   emptied
-- KEYS[4] new_names  hash   w   emptied
-- KEYS[5] new_facts  hash   w   emptied
-- KEYS[6] new_changes zset  w   emptied
-- KEYS[7] new_deadlines zset w  emptied
-- KEYS[8] new_gone   zset   w   emptied
-- KEYS[9] new_meta   hash   w   a new epoch
-- KEYS[10] new_journal stream w emptied
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] epoch      str        random name of the epoch that begins with this build
--
-- Returns {word}
--   BUILDING   load facts under this epoch and token, then publish_build
--   FENCED     another replica leads now; nothing written
--
-- Keeps:  the books themselves are not touched
-- Again:  the build starts over
-- Cost:   O(1), the old rows are freed in the background
-- Include:
local lease, fresh, meta = KEYS[1], {}, KEYS[9]
for i = 2, 10 do
  fresh[i - 1] = KEYS[i]
end
local token, epoch = ARGV[1], ARGV[2]

if redis.call('HGET', lease, 'token') ~= token then
  return {'FENCED'}
end

redis.call('UNLINK', unpack(fresh))
redis.call(
  'HSET', meta, 'epoch', epoch, 'fence', token, 'state', 'settled', 'settle_ms', 0,
  'version', 0, 'oldest', 0, 'nodes', 0, 'pods', 0, 'schema', 1)

return {'BUILDING'}
