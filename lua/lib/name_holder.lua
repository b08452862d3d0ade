-- name_holder: who else is known under a pod's name.
-- Takes: table of keys, `namespace/name`, UID
-- Gives: nil, or the other UID, its fields, the text of its row
-- Include: pod_row
local function name_holder(keys, name, uid)
  local other = redis.call('HGET', keys.names, name)
  if not other or other == uid then
    return nil
  end
  local text = redis.call('HGET', keys.pods, other)
  if not text then
    return nil
  end
  return other, pod_row(text), text
end
