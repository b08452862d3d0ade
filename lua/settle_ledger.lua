#!lua
-- settle_ledger: the leader has compared the suspect books with the cluster; grants may go on.
-- Why one script: an epoch that began meanwhile must stay suspect.
--
-- KEYS[1] meta       hash   rw  epoch, token, state
-- KEYS[2] journal    stream w   what changed
-- ARGV[1] epoch      str        the epoch that was compared
-- ARGV[2] token      str        the leader's fencing token
-- ARGV[3] settle_after_ms int >=0  how long nodes wait for agents that have not asked
-- ARGV[4] most       int >0     journal entries kept
--
-- Returns {word}
--   SETTLED    grants go on, on each node as soon as its agents have asked or the time is over
--   NOTHING    it was not suspect; nothing written
--   FENCED     another replica leads now; nothing written
--   EPOCH      the ledger has begun another epoch; nothing written
--
-- Keeps:  I3 no grant on books that lack one
-- Again:  the second time NOTHING
-- Cost:   O(1)
-- Include: now_us
local keys = {meta = KEYS[1], journal = KEYS[2]}
local epoch, token, settle_after_ms, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'fence', 'state')
if meta[1] ~= epoch then
  return {'EPOCH'}
elseif meta[2] ~= token then
  return {'FENCED'}
elseif meta[3] ~= 'suspect' then
  return {'NOTHING'}
end
local settle_ms = math.floor(now_us() / 1000) + settle_after_ms

redis.call('HSET', keys.meta, 'state', 'settled', 'settle_ms', settle_ms)
redis.call(
  'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', 'settle', 'uid', '-', 'name', '-',
  'from', '-', 'node', '-', 'before', 'suspect', 'after', 'settled', 'context', '')

return {'SETTLED'}
