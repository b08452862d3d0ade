-- overtaken: whether a newer config than this is behind a node's capacity. Versions of the ConfigMap
--   are in order; what a file is called by, and none at all, is neither older nor newer.
-- Takes: version of the config behind the row, version of the one that is given
-- Gives: true where both are the ConfigMap's, and the row's is the newer
-- Include: newer
local function overtaken(known, given)
  local are_ordered = string.find(known, '^%d+$') and string.find(given, '^%d+$')
  return are_ordered and newer(known, given)
end
