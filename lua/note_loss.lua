#!lua
-- note_loss: a replica has seen that another primary lacks what it had told, or may.
-- Why one script: nothing but scripts writes the journal.
--
-- KEYS[1] meta       hash   r   epoch, none where no books are built
-- KEYS[2] journal    stream w   what was seen
-- ARGV[1] loss       str        dropped or unclear
-- ARGV[2] told       str        replication id and offset up to which that replica had told
-- ARGV[3] most       int >0     journal entries kept
--
-- Returns {word}
--   NOTED      in the journal
--
-- Keeps:  what an operator can find out
-- Again:  noted twice
-- Cost:   O(1)
-- Include:
local keys = {meta = KEYS[1], journal = KEYS[2]}
local loss, told, most = ARGV[1], ARGV[2], ARGV[3]

local epoch = redis.call('HGET', keys.meta, 'epoch') or ''

redis.call(
  'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', loss, 'uid', '-', 'name', '-',
  'from', '-', 'node', '-', 'before', told, 'after', epoch, 'context', '')

return {'NOTED'}
