#!lua
-- read_pod: what the ledger knows of one pod, by UID or by name.
-- Why one script: the name, the row and the blob must be of one moment.
--
-- KEYS[1] pods       hash   r   rows
-- KEYS[2] names      hash   r   namespace/name -> newest UID
-- KEYS[3] facts      hash   r   what is shown to people
-- KEYS[4] gone       zset   r   UIDs that hold nothing any more
-- ARGV[1] uid        str        empty: by name
-- ARGV[2] name       str        namespace/name
--
-- Returns {word, ...}
--   POD        uid row blob  the row as text, the blob as msgpack, empty where there is none
--   GONE                     finished or deleted
--   UNKNOWN                  nobody knows it
--
-- Keeps:  nothing is written
-- Again:  the same, or newer
-- Cost:   O(1)
-- Include:
local keys = {pods = KEYS[1], names = KEYS[2], facts = KEYS[3], gone = KEYS[4]}
local uid, name = ARGV[1], ARGV[2]

if uid == '' then
  uid = redis.call('HGET', keys.names, name)
  if not uid then
    return {'UNKNOWN'}
  end
end
local row = redis.call('HGET', keys.pods, uid)
if row then
  return {'POD', uid, row, redis.call('HGET', keys.facts, uid) or ''}
elseif redis.call('ZSCORE', keys.gone, uid) then
  return {'GONE'}
end

return {'UNKNOWN'}
