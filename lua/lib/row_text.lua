-- row_text: turns a row's text into a table of fields and back; numbers keep every digit.
-- Takes: the field names in their order, how many of the first are words, text or table
-- Gives: the other of the two
local function row_text(fields, words, value)
  local out, at = {}, 0
  if type(value) == 'string' then
    for word in string.gmatch(value, '%S+') do
      at = at + 1
      out[fields[at] or at] = at > words and tonumber(word) or word
    end
    if at ~= #fields then
      error(string.format('a row has %d fields, not %d: %s', #fields, at, value))
    end
    return out
  end
  for i, field in ipairs(fields) do
    out[i] = i > words and string.format('%d', value[field]) or value[field]
  end
  return table.concat(out, ' ')
end
