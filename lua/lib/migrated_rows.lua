-- migrated_rows: rows with other fields than before; values stay as they are written.
-- Takes: a flat list of id, row, ..., the fields of a row, those that are wanted (name, or
--   name=default for one that is new), words of `epoch` and `heard` to be replaced by others
-- Gives: a table of rows by id, or nil where a row has not those fields
local function migrated_rows(flat, fields, wanted, renamed)
  local at, epochs, count, sources, defaults, rows = {}, {}, 0, {}, {}, {}
  for field in string.gmatch(fields, '%S+') do
    count = count + 1
    at[field] = count
  end
  for i, field in ipairs({'epoch', 'heard'}) do
    epochs[i] = at[field]
  end
  for item in string.gmatch(wanted, '%S+') do
    local field, default = string.match(item, '^([^=]+)=?(.*)$')
    sources[#sources + 1] = at[field] or 0
    defaults[#sources] = default
  end
  for i = 1, #flat, 2 do
    local words, out = {}, {}
    for word in string.gmatch(flat[i + 1], '%S+') do
      words[#words + 1] = word
    end
    if #words ~= count then
      return nil
    end
    for _, place in pairs(epochs) do
      words[place] = renamed[words[place]] or words[place]
    end
    for k, source in ipairs(sources) do
      out[k] = words[source] or defaults[k]
    end
    rows[flat[i]] = table.concat(out, ' ')
  end
  return rows
end
