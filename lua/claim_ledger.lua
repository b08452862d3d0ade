#!lua
-- claim_ledger: whose ledger this is; the first cluster that asks gets it for good.
-- Why one script: two clusters may ask at once.
--
-- KEYS[1] meta       hash   rw  UID of the cluster's kube-system namespace
-- ARGV[1] cluster    str        that UID
--
-- Returns {word, ...}
--   CLAIMED              this cluster's
--   FOREIGN    cluster   another cluster's; nothing written
--
-- Keeps:  one cluster a ledger
-- Again:  the same
-- Cost:   O(1)
-- Include:
local meta = KEYS[1]
local cluster = ARGV[1]

local owner = redis.call('HGET', meta, 'cluster')
if owner and owner ~= cluster then
  return {'FOREIGN', owner}
end

if not owner then
  redis.call('HSET', meta, 'cluster', cluster)
end

return {'CLAIMED'}
