-- newer: compares resourceVersions, which are decimal and may exceed what a double holds.
-- Takes: two versions; '-' stands for none and is older than any
-- Gives: true where the first is newer than the second
local function newer(left, right)
  if #left ~= #right then
    return #left > #right
  end
  return left > right
end
