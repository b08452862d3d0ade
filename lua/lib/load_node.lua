-- load_node: a node's fields, read once a script, with what was heard in an older epoch forgotten.
-- Takes: table of nodes loaded so far, by name and in their order, table of keys, node name, epoch
-- Gives: the entry {row, before} of that node, row nil where the ledger has none
-- Include: node_row
local function load_node(loaded, keys, name, epoch)
  local entry = loaded[name]
  if entry then
    return entry
  end
  entry = {}
  local text = redis.call('HGET', keys.nodes, name)
  if text then
    entry.row = node_row(text)
    entry.before = text
    if entry.row.epoch ~= epoch then
      entry.row.epoch = epoch
      entry.row.heard = 0
      entry.before = node_row(entry.row)
    end
  end
  loaded[name] = entry
  loaded[#loaded + 1] = name
  return entry
end
