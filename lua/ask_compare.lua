#!lua
-- ask_compare: an operator asks the leader for a full compare with the cluster, at any replica.
-- Why one script: the request and the journal's word of it must not part.
--
-- KEYS[1] compare    hash   w   when a compare was asked for, and which request was last answered
-- KEYS[2] journal    stream w   what changed
-- ARGV[1] most       int >0     journal entries kept
-- ARGV[2] context    str        who and why, msgpack
--
-- Returns {word, ...}
--   ASKED      asked     the request, Redis' time (us): answered once `done` is no less
--
-- Keeps:  the books are not touched
-- Again:  another request, answered by the same compare if that has not begun
-- Cost:   O(1)
-- Include: journal_order, now_us
local keys = {compare = KEYS[1], journal = KEYS[2]}
local most, context = ARGV[1], ARGV[2]

local asked = string.format('%d', now_us())

redis.call('HSET', keys.compare, 'asked', asked)
journal_order(keys, most, 'reconcile', '*', context)

return {'ASKED', asked}
