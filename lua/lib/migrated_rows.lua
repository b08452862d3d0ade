-- migrated_rows: rows with other fields than before; values stay as they are written.
-- Takes: a flat list of id, row, ..., the fields of a row, those that are wanted (name, or
--   name=default for one that is new), words of `epoch` and `heard` to be replaced by others
-- Gives: a table of rows by id, or nil where a row has not those fields
local function migrated_rows(flat, fields, wanted, renamed)
  local old, rows = {}, {}
  for field in string.gmatch(fields, '%S+') do
    old[#old + 1] = field
  end
  for i = 1, #flat, 2 do
    local values, count, out = {}, 0, {}
    for word in string.gmatch(flat[i + 1], '%S+') do
      count = count + 1
      local field = old[count] or ''
      local is_epoch = field == 'epoch' or field == 'heard'
      values[field] = is_epoch and renamed[word] or word
    end
    if count ~= #old then
      return nil
    end
    for item in string.gmatch(wanted, '%S+') do
      local field, default = string.match(item, '^([^=]+)=?(.*)$')
      out[#out + 1] = values[field] or default
    end
    rows[flat[i]] = table.concat(out, ' ')
  end
  return rows
end
