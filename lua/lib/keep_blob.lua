-- keep_blob: what is kept beside a pod's row is this and nothing else.
-- Takes: table of keys, UID, the blob; empty: nothing is kept
-- Gives: nothing
local function keep_blob(keys, uid, blob)
  if blob == '' then
    redis.call('HDEL', keys.facts, uid)
  else
    redis.call('HSET', keys.facts, uid, blob)
  end
end
