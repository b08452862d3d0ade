-- copy_row: a row to change while the one that was read stays as it was.
-- Takes: a table of fields
-- Gives: another with the same fields
local function copy_row(row)
  local copy = {}
  for field, value in pairs(row) do
    copy[field] = value
  end
  return copy
end
