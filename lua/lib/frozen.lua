-- frozen: whether an operator has stopped grants, on a node or everywhere.
-- Takes: table of keys, node name
-- Gives: true where nothing may be granted
local function frozen(keys, name)
  local found = redis.call('HMGET', keys.freezes, '*', name)
  return (found[1] or found[2]) and true or false
end
