-- heads_of.lua: shared part. The first waiting tickets of a pool and who could serve them.
-- KEYS     [1] prefix, as in prelude.lua; ARGV none
-- Returns  nothing; defines heads_of(model, n) -> {tickets, free}: tickets are {id, owner, key, slots, body, tried, held since ms} in
--          order, free up to 16 replicas with a free slot, fastest first
-- Cost     O(log queue + n)

local function heads_of(model, n)
  local p, tickets = KEYS[1], {}
  for _, id in ipairs(redis.call('ZRANGE', p .. 'q:' .. model, 0, n - 1)) do
    local v = redis.call('HMGET', p .. 't:' .. id, 'owner', 'key', 'slots', 'body', 'tried', 'held')
    if v[1] then tickets[#tickets + 1] = { id, v[1], v[2], v[3], v[4], v[5] or '', v[6] or '0' } end
  end
  return { tickets, redis.call('ZRANGE', p .. 'free:' .. model, 0, 15) }
end
