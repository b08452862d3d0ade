-- save_nodes: writes each loaded node that has changed, under a new version, in the order in which
-- they were loaded; an absent node goes with its last pod.
-- Takes: table of loaded nodes, table of keys
-- Gives: nothing
-- Include: node_row
local function save_nodes(loaded, keys)
  for _, name in ipairs(loaded) do
    local entry = loaded[name]
    local row = entry.row
    local leaves = row and row.absent == 1 and row.pods == 0
    local text = row and node_row(row)
    if row and not (leaves and not entry.before) and (leaves or text ~= entry.before) then
      row.version = redis.call('HINCRBY', keys.meta, 'version', 1)
      redis.call('ZADD', keys.changes, row.version, name)
      if leaves then
        redis.call('HDEL', keys.nodes, name)
        redis.call('HDEL', keys.facts, name)
        redis.call('HINCRBY', keys.meta, 'nodes', -1)
      else
        -- The version is the last field; to put it there costs less than to write all anew.
        text = string.match(text, '^.* ') .. string.format('%d', row.version)
        redis.call('HSET', keys.nodes, name, text)
        if not entry.before then
          redis.call('HINCRBY', keys.meta, 'nodes', 1)
        end
      end
    end
  end
end
