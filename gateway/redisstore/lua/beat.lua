-- beat.lua decides that an owner lives for another while.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 time to live ms
-- Returns  1 if it has beaten before, 0 if this state does not know it: it starts, or the state was lost
-- Cost     O(log owners)

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZADD', KEYS[1] .. 'owners', string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
return 1 - redis.call('SADD', KEYS[1] .. 'known', ARGV[1])
