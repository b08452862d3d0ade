-- pod_row: the one place in Lua that knows the fields of a pod's row; `rows.py` is its twin.
-- Takes: the text of a row, or a table of its fields
-- Gives: the other of the two
-- Include: row_text
local function pod_row(value)
  return row_text({
    'name', 'node', 'stage', 'rv', 'vm_rv', 'heard',
    'vm', 'scaled', 'broken', 'ignored', 'moving',
    'cpu', 'mem', 'charge_cpu', 'charge_mem', 'asked_cpu', 'asked_mem',
    'use_cpu', 'use_mem', 'max_cpu', 'max_mem', 'factor_cpu', 'factor_mem',
    'over_cpu', 'over_mem', 'deadline', 'stamp',
  }, 6, value)
end
