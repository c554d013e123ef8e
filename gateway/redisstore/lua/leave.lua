-- leave.lua decides that a replica is gone. Its leases are void; tickets that ran on it stay with their owners.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 replica
-- Returns  1 if it was known, else 0
-- Cost     O(log replicas)

local p, id = KEYS[1], ARGV[1]
local model = redis.call('HGET', p .. 'r:' .. id, 'model')
if not model then return 0 end
redis.call('ZREM', p .. 'free:' .. model, id)
redis.call('ZREM', p .. 'wake', id)
redis.call('ZREM', p .. 'due', id)
redis.call('SREM', p .. 'reps', id)
redis.call('DEL', p .. 'r:' .. id, p .. 's:' .. id, p .. 'l:' .. id, p .. 'c:' .. id)
redis.call('PUBLISH', p .. 'fleet', '')
return 1
