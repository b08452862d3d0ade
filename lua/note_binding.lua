#!lua
-- note_binding: file source only: what an API server does with a Binding: the first one counts.
-- Why one script: two replicas may bind the same pod to two nodes.
--
-- KEYS[1] bindings   hash   rw  UID -> node
-- ARGV[1] uid        str
-- ARGV[2] node       str
--
-- Returns {word, node}
--   NOTED      node      bound there, now or already; it may be another than was asked for
--
-- Keeps:  I2 one node a pod
-- Again:  the same
-- Cost:   O(1)
-- Include:
local keys = {bindings = KEYS[1]}
local uid, node = ARGV[1], ARGV[2]

redis.call('HSETNX', keys.bindings, uid, node)

return {'NOTED', redis.call('HGET', keys.bindings, uid)}
