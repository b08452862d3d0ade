-- drop_replaced: the older pod of a name goes when a newer one takes the name.
-- Takes: table of keys, UID and fields of the older pod or nil, Redis' time (us), most journal
--   entries, the caller's context
-- Gives: nothing; its node's sums are the caller's to change
-- Include: drop_pod, journal_pod
local function drop_replaced(keys, uid, pod, now, most, context)
  if uid then
    drop_pod(keys, uid, pod.name, true, now)
    journal_pod(keys, most, 'replace', uid, pod, nil, context)
  end
end
