-- pod_row: the one place in Lua that knows the fields of a pod's row; `rows.py` is its twin.
-- Takes: the text of a row, or a table of its fields
-- Gives: the other of the two; numbers keep every digit
local function pod_row(value)
  if type(value) == 'table' then
    return string.format(
      '%s %s %s %s %s %s %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d',
      value.name, value.node, value.stage, value.rv, value.vm_rv, value.heard,
      value.vm, value.scaled, value.broken, value.ignored, value.moving,
      value.cpu, value.mem, value.charge_cpu, value.charge_mem, value.asked_cpu, value.asked_mem,
      value.use_cpu, value.use_mem, value.max_cpu, value.max_mem,
      value.factor_cpu, value.factor_mem, value.over_cpu, value.over_mem,
      value.deadline, value.stamp)
  end
  local at = {string.match(value,
    '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')}
  if not at[1] then
    error('not a row of a pod, which has 27 fields: ' .. value)
  end
  -- Times one makes a number of a text, at less than half of what tonumber costs.
  return {
    name = at[1], node = at[2], stage = at[3], rv = at[4], vm_rv = at[5], heard = at[6],
    vm = at[7] * 1, scaled = at[8] * 1, broken = at[9] * 1, ignored = at[10] * 1,
    moving = at[11] * 1, cpu = at[12] * 1, mem = at[13] * 1,
    charge_cpu = at[14] * 1, charge_mem = at[15] * 1,
    asked_cpu = at[16] * 1, asked_mem = at[17] * 1, use_cpu = at[18] * 1, use_mem = at[19] * 1,
    max_cpu = at[20] * 1, max_mem = at[21] * 1, factor_cpu = at[22] * 1, factor_mem = at[23] * 1,
    over_cpu = at[24] * 1, over_mem = at[25] * 1, deadline = at[26] * 1, stamp = at[27] * 1,
  }
end
