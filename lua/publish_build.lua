#!lua
-- publish_build: put what was built in the place of the books, in one step.
-- Why one script: nobody may ever decide on half-loaded books.
--
-- KEYS[1] lease      hash   r   who leads, and its token
-- KEYS[2] new_nodes  hash   rw  renamed to nodes
-- KEYS[3] new_pods   hash   rw  renamed to pods
-- KEYS[4] new_names  hash   rw  renamed to names
-- KEYS[5] new_facts  hash   rw  renamed to facts
-- KEYS[6] new_changes zset  rw  renamed to changes
-- KEYS[7] new_deadlines zset rw renamed to deadlines
-- KEYS[8] new_gone   zset   rw  renamed to gone
-- KEYS[9] new_meta   hash   rw  renamed to meta
-- KEYS[10] new_journal stream w emptied
-- KEYS[11] nodes     hash   w   replaced
-- KEYS[12] pods      hash   w   replaced
-- KEYS[13] names     hash   w   replaced
-- KEYS[14] facts     hash   w   replaced
-- KEYS[15] changes   zset   w   replaced
-- KEYS[16] deadlines zset   w   replaced
-- KEYS[17] gone      zset   w   replaced
-- KEYS[18] meta      hash   rw  replaced; whose ledger it is and the last good config stay
-- KEYS[19] journal   stream w   notes the new epoch
-- ARGV[1] token      str        the leader's fencing token
-- ARGV[2] state      str        settled, or suspect where the books came from a file
-- ARGV[3] settle_after_ms int >=0  how long nodes wait for agents that have not asked
-- ARGV[4] watch      int 0..1   note the replication id (0 where the server has no INFO)
-- ARGV[5] most       int >0     journal entries kept
--
-- Returns {word}
--   PUBLISHED  the books are what was built
--   FENCED     another replica leads or builds now; nothing written
--
-- Keeps:  I4 a new epoch
-- Again:  FENCED, for nothing is left to publish
-- Cost:   O(1), the old rows are freed in the background
-- Include: now_us
local lease, new_meta, new_journal, meta, journal = KEYS[1], KEYS[9], KEYS[10], KEYS[18], KEYS[19]
local token, state, settle_after_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local watch, most = ARGV[4] == '1', ARGV[5]

local built = redis.call('HMGET', new_meta, 'fence', 'epoch')
if redis.call('HGET', lease, 'token') ~= token or built[1] ~= token then
  return {'FENCED'}
end
local server = watch and redis.call('INFO', 'replication') or ''
local replid = string.match(server, 'master_replid:(%w+)') or ''
local settle_ms = math.floor(now_us() / 1000) + settle_after_ms
local kept = redis.call('HMGET', meta, 'cluster', 'config_version', 'config')

for i = 2, 9 do
  redis.call('UNLINK', KEYS[i + 9])
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[i + 9])
  end
end
redis.call('UNLINK', new_journal)
redis.call('HSET', meta, 'state', state, 'replid', replid, 'settle_ms', settle_ms)
for i, field in ipairs({'cluster', 'config_version', 'config'}) do
  if kept[i] then
    redis.call('HSET', meta, field, kept[i])
  end
end
redis.call(
  'XADD', journal, 'MAXLEN', '~', most, '*', 'what', 'build', 'uid', '-', 'name', '-',
  'from', '-', 'node', '-', 'before', '', 'after', built[2], 'context', '')

return {'PUBLISHED'}
