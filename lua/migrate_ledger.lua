#!lua
-- migrate_ledger: rewrite the rows of the schema before this release's, all of them or none.
-- Why one script: nobody may ever read rows of two schemas, nor write one of the older again.
--
-- KEYS[1] nodes      hash   rw  each row is written anew
-- KEYS[2] pods       hash   rw  the same
-- KEYS[3] meta       hash   rw  schema, epoch
-- KEYS[4] journal    stream w   what changed
-- ARGV[1] from       int >=0    the schema that the rows have now
-- ARGV[2] to         int >0     the one that they get
-- ARGV[3] node_fields str       fields of a node's row now, in their order, with spaces between
-- ARGV[4] node_wanted str       the same afterwards; name=default for what is new
-- ARGV[5] pod_fields str        the same for pods
-- ARGV[6] pod_wanted str
-- ARGV[7] new_epoch  str        random name: calls of replicas of the older release do nothing more
-- ARGV[8] most       int >0     journal entries kept
--
-- Returns {word}
--   MIGRATED   every row is of the new schema
--   NOTHING    there are no books, or they have another schema than `from`; nothing written
--   GIVEN_UP   a row is none of that schema: the books are no more, and are to be built anew
--
-- Keeps:  what everybody holds; who was heard in the epoch before counts as heard in the new one
-- Again:  the second time NOTHING
-- Cost:   O(nodes + pods): once for each release that changes rows
-- Include: migrated_rows
local keys = {nodes = KEYS[1], pods = KEYS[2], meta = KEYS[3], journal = KEYS[4]}
local from, to, node_fields, node_wanted = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local pod_fields, pod_wanted, new_epoch, most = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local meta = redis.call('HMGET', keys.meta, 'epoch', 'schema')
local epoch, schema = meta[1], meta[2] or '0'
if not epoch or schema ~= from then
  return {'NOTHING'}
end
local renamed = {[epoch] = new_epoch}
local nodes = migrated_rows(redis.call('HGETALL', keys.nodes), node_fields, node_wanted, renamed)
local pods = migrated_rows(redis.call('HGETALL', keys.pods), pod_fields, pod_wanted, renamed)
local what = nodes and pods and 'migrate' or 'lost'

redis.call(
  'XADD', keys.journal, 'MAXLEN', '~', most, '*', 'what', what, 'uid', '-', 'name', '-',
  'from', '-', 'node', '-', 'before', from, 'after', to, 'context', '')
if what == 'lost' then
  redis.call('HDEL', keys.meta, 'epoch')
  return {'GIVEN_UP'}
end
for id, row in pairs(nodes) do
  redis.call('HSET', keys.nodes, id, row)
end
for id, row in pairs(pods) do
  redis.call('HSET', keys.pods, id, row)
end
redis.call('HSET', keys.meta, 'schema', to, 'epoch', new_epoch)

return {'MIGRATED'}
