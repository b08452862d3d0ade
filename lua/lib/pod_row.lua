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
  -- Whatever is between two blanks: a class of fewer characters costs half as much again.
  local name, node, stage, rv, vm_rv, heard, vm, scaled, broken, ignored, moving, cpu, mem,
    charge_cpu, charge_mem, asked_cpu, asked_mem, use_cpu, use_mem, max_cpu, max_mem,
    factor_cpu, factor_mem, over_cpu, over_mem, deadline, stamp = string.match(value,
    '^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)$')
  if not name then
    error('not a row of a pod, which has 27 fields: ' .. value)
  end
  -- Times one makes a number of a text, at less than half of what tonumber costs, and an error of
  -- what is none.
  return {
    name = name, node = node, stage = stage, rv = rv, vm_rv = vm_rv, heard = heard,
    vm = vm * 1, scaled = scaled * 1, broken = broken * 1, ignored = ignored * 1,
    moving = moving * 1, cpu = cpu * 1, mem = mem * 1,
    charge_cpu = charge_cpu * 1, charge_mem = charge_mem * 1,
    asked_cpu = asked_cpu * 1, asked_mem = asked_mem * 1,
    use_cpu = use_cpu * 1, use_mem = use_mem * 1, max_cpu = max_cpu * 1, max_mem = max_mem * 1,
    factor_cpu = factor_cpu * 1, factor_mem = factor_mem * 1,
    over_cpu = over_cpu * 1, over_mem = over_mem * 1, deadline = deadline * 1, stamp = stamp * 1,
  }
end
