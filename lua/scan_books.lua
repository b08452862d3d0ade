#!lua
-- scan_books: one part of the books in portions, so that no reader of it all ever holds Redis up.
-- Why one script: it is the only way to the books.
--
-- KEYS[1] nodes      hash   r   rows
-- KEYS[2] pods       hash   r   rows
-- KEYS[3] names      hash   r   namespace/name -> newest UID
-- KEYS[4] facts      hash   r   blobs
-- KEYS[5] changes    zset   r   versions
-- KEYS[6] deadlines  zset   r   when each hold lapses
-- KEYS[7] gone       zset   r   UIDs that hold nothing any more
-- KEYS[8] meta       hash   r   all of it
-- KEYS[9] journal    stream r   newest first
-- ARGV[1] part       str        which of these
-- ARGV[2] cursor     str        0 to begin (the journal: +), then what the last portion gave
-- ARGV[3] count      int >0     about so many rows
--
-- Returns {word, cursor, field, value, field, value, ...}
--   PORTION              cursor 0: the last one; a row that is there all the while is in one of them
--                        the journal: id, {field, value, ...}, ...; 0 where there is no more
--
-- Keeps:  nothing is written
-- Again:  the same portion, or newer
-- Cost:   O(count)
-- Include:
local keys = {
  nodes = KEYS[1], pods = KEYS[2], names = KEYS[3], facts = KEYS[4], changes = KEYS[5],
  deadlines = KEYS[6], gone = KEYS[7], meta = KEYS[8], journal = KEYS[9],
}
local part, cursor, count = ARGV[1], ARGV[2], tonumber(ARGV[3])

local out, found = {'PORTION', '0'}
if part == 'journal' then
  found = redis.call('XREVRANGE', keys.journal, cursor, '-', 'COUNT', count)
  for _, entry in ipairs(found) do
    out[#out + 1] = entry[1]
    out[#out + 1] = entry[2]
  end
  out[2] = #found == count and '(' .. found[count][1] or '0'
  return out
elseif part == 'nodes' then
  found = redis.call('HSCAN', keys.nodes, cursor, 'COUNT', count)
elseif part == 'pods' then
  found = redis.call('HSCAN', keys.pods, cursor, 'COUNT', count)
elseif part == 'names' then
  found = redis.call('HSCAN', keys.names, cursor, 'COUNT', count)
elseif part == 'facts' then
  found = redis.call('HSCAN', keys.facts, cursor, 'COUNT', count)
elseif part == 'meta' then
  found = redis.call('HSCAN', keys.meta, cursor, 'COUNT', count)
elseif part == 'changes' then
  found = redis.call('ZSCAN', keys.changes, cursor, 'COUNT', count)
elseif part == 'deadlines' then
  found = redis.call('ZSCAN', keys.deadlines, cursor, 'COUNT', count)
else
  found = redis.call('ZSCAN', keys.gone, cursor, 'COUNT', count)
end
out[2] = found[1]
for _, item in ipairs(found[2]) do
  out[#out + 1] = item
end

return out
