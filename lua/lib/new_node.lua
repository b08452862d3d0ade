-- new_node: the row of a node that nobody has described: no capacity, flagged absent.
-- Takes: epoch
-- Gives: a table of fields
local function new_node(epoch)
  return {
    uid = '-', rv = '-', config = '-', epoch = epoch, absent = 1, cap_cpu = 0, cap_mem = 0,
    reserved_cpu = 0, reserved_mem = 0, committed_cpu = 0, committed_mem = 0,
    ignored_cpu = 0, ignored_mem = 0, migrating_cpu = 0, migrating_mem = 0,
    pressure_cpu = 0, pressure_mem = 0, pods = 0, vms = 0, heard = 0, version = 0,
  }
end
