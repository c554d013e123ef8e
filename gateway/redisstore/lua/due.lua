-- due.lua decides who probes which replica now: the caller those it returns. Their next probe is booked at once, an interval from now give
-- or take a fifth, so that probes spread out.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 interval ms, 2 most replicas
-- Returns  replica ids
-- Cost     O(replicas returned * log replicas)

local due = KEYS[1] .. 'due'
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  local share = tonumber(string.sub(redis.sha1hex(id .. t[1] .. t[2]), 1, 4), 16) / 65535
  redis.call('ZADD', due, string.format('%.0f', now + tonumber(ARGV[1]) * (0.8 + 0.4 * share)), id)
end
return ids
