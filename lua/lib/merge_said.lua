-- merge_said: what a pod's row says once a fact is taken in: of each object the newer version.
-- Takes: the fields of the row or nil, the fields that the fact carries
-- Gives: the fact's fields, changed: the row's own bookkeeping kept, node '-' unless bound; nil
--   where the fact has nothing newer
-- Include: newer
local function merge_said(row, said)
  if not row then
    return said
  end
  -- A UID never changes its name.
  local kept = {'name', 'heard', 'factor_cpu', 'factor_mem', 'deadline', 'stamp'}
  local by_object = said.vm_rv ~= '-'
  local old_vm = by_object and newer(row.vm_rv, said.vm_rv)
  if newer(row.rv, said.rv) then
    local row_has_annotation = row.vm_rv == '-' and row.broken == 0
    if old_vm or not by_object or row_has_annotation then
      return nil
    end
    for _, field in ipairs({'rv', 'ignored', 'moving'}) do
      table.insert(kept, field)
    end
    said.node = row.stage == 'bound' and row.node or '-'
  elseif old_vm or said.broken == 1 and row.max_cpu > 0 then
    -- Data that cannot be read say nothing of a VM that could be read: what it holds stands.
    for _, field in ipairs({
      'vm_rv', 'vm', 'scaled', 'cpu', 'mem', 'use_cpu', 'use_mem', 'max_cpu', 'max_mem',
      'over_cpu', 'over_mem', old_vm and 'broken' or nil,
    }) do
      table.insert(kept, field)
    end
  end
  for _, field in ipairs(kept) do
    said[field] = row[field]
  end
  return said
end
