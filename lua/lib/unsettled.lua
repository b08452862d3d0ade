-- unsettled: whether a permit that was told, or a Binding in flight, may be missing on a node.
-- Takes: the node's fields, the ledger's state, when nodes settle by themselves (ms), Redis' time
--   (us) where it is known already
-- Gives: true where nothing may grow and nothing new be held there
-- Include: now_us
local function unsettled(node, state, settle_ms, now)
  if state ~= 'settled' then
    return true
  end
  return node.vms > node.heard and (now or now_us()) < settle_ms * 1000
end
