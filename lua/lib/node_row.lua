-- node_row: the one place in Lua that knows the fields of a node's row; `rows.py` is its twin.
-- Takes: the text of a row, or a table of its fields
-- Gives: the other of the two
-- Include: row_text
local function node_row(value)
  return row_text({
    'uid', 'rv', 'config', 'epoch',
    'absent', 'cap_cpu', 'cap_mem', 'reserved_cpu', 'reserved_mem',
    'committed_cpu', 'committed_mem', 'ignored_cpu', 'ignored_mem',
    'migrating_cpu', 'migrating_mem', 'pressure_cpu', 'pressure_mem',
    'pods', 'vms', 'heard', 'version',
  }, 4, value)
end
