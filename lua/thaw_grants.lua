#!lua
-- thaw_grants: an operator lets grants go on, on one node or where all were stopped at once.
-- Why one script: the freeze and the journal's word of its end must not part.
--
-- KEYS[1] freezes    hash   rw  node, or * for all -> when (ms), and the context
-- KEYS[2] journal    stream w   what changed
-- ARGV[1] node       str        * ends the freeze of all; single nodes stay as they are
-- ARGV[2] dry        int 0..1   1: only say what would be
-- ARGV[3] most       int >0     journal entries kept
-- ARGV[4] context    str        who and why, msgpack
--
-- Returns {word, ...}
--   THAWED     note      that freeze is over
--   NOTHING              there was none; nothing written
--
-- Keeps:  the books are not touched
-- Again:  the second time NOTHING
-- Cost:   O(1)
-- Include: journal_order
local keys = {freezes = KEYS[1], journal = KEYS[2]}
local node, dry, most, context = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]

local note = redis.call('HGET', keys.freezes, node)
if not note then
  return {'NOTHING'}
elseif dry then
  return {'THAWED', note}
end

redis.call('HDEL', keys.freezes, node)
journal_order(keys, most, 'thaw', node, context)

return {'THAWED', note}
