-- set_health.lua decides whether a health record may replace the present one: only if nobody has written since it was read.
-- A change of the state or of the time it is to be left alone is announced.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 replica, 2 generation read, 3 version read, 4 state, 5 reason, 6 since ms, 7 left alone until ms, 8 misses, 9 failures,
--          10 busy, 11 last good ms
-- Returns  1 if written, else 0
-- Cost     O(log replicas)

local id = ARGV[1]
local key = P .. 'r:' .. id
local old = redis.call('HMGET', key, 'gen', 'version', 'state', 'until')
if old[1] ~= ARGV[2] or old[2] ~= ARGV[3] then return 0 end
redis.call('HSET', key, 'version', int(tonumber(ARGV[3]) + 1), 'state', ARGV[4], 'reason', ARGV[5], 'since', ARGV[6], 'until', ARGV[7],
  'misses', ARGV[8], 'failures', ARGV[9], 'busy', ARGV[10], 'good', ARGV[11])
if old[3] ~= ARGV[4] or old[4] ~= ARGV[7] then
  refresh_free(id, now_ms())
  redis.call('PUBLISH', P .. 'fleet', '')
end
return 1
