-- needs: what a pod needs, from what was just said of it and what the ledger knows: the newer.
-- Takes: the fields of its row or nil, the text of what was said or ''
-- Gives: a table of fields of its own and nil, or nil and the word why not
-- Include: copy_row, merge_said, pod_row
local function needs(pod, said)
  local wanted = said ~= '' and merge_said(pod, pod_row(said)) or pod and copy_row(pod)
  if not wanted then
    return nil, 'UNKNOWN'
  elseif wanted.broken == 1 then
    return nil, 'UNREADABLE'
  elseif wanted.ignored == 1 then
    return nil, 'IGNORED'
  end
  return wanted
end
