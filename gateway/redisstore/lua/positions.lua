-- positions.lua reads the places of tickets in their queues.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     model, ticket, model, ticket, ...
-- Returns  for each ticket its 0-based place, -1 for one that does not wait
-- Cost     O(tickets * log queue)

local places = {}
for i = 1, #ARGV, 2 do
  places[#places + 1] = redis.call('ZRANK', KEYS[1] .. 'q:' .. ARGV[i], ARGV[i + 1]) or -1
end
return places
