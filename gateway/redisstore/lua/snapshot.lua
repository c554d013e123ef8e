-- snapshot.lua reads what the fleet consists of: the replicas, to be read with views.lua, and how many tickets wait for each model.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     none
-- Returns  {now ms, replica ids, {model, waiting tickets, model, ...}}
-- Cost     O(replicas + models)

local p, queued, t = KEYS[1], {}, redis.call('TIME')
for _, model in ipairs(redis.call('SMEMBERS', p .. 'pools')) do
  queued[#queued + 1] = model
  queued[#queued + 1] = redis.call('ZCARD', p .. 'q:' .. model)
end
return { tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000), redis.call('SMEMBERS', p .. 'reps'), queued }
