-- resign.lua decides that an owner is gone for good. If it still has tickets, it counts as dead now and the next tick reaps them.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner
-- Returns  1
-- Cost     O(log owners)

local p, owner = KEYS[1], ARGV[1]
if redis.call('SCARD', p .. 'o:' .. owner) > 0 then
  redis.call('ZADD', p .. 'owners', 0, owner)
else
  redis.call('ZREM', p .. 'owners', owner)
  redis.call('DEL', p .. 'a:' .. owner)
end
redis.call('SREM', p .. 'known', owner)
if redis.call('GET', p .. 'turn') == owner then redis.call('DEL', p .. 'turn') end
return 1
