-- views.lua reads replicas.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     replica ids
-- Returns  for each replica that is known: {id, {model, engine, slots, context, ends ms, prefill/s, decode/s, generation, state, reason,
--          since ms, left alone until ms}, {sum, value, ...}, predicted ends of its live leases in ms, ends of its cooling ones in ms}
-- Cost     O(replicas asked for)

local function ends(zset)
  local z, scores = redis.call('ZRANGE', zset, 0, -1, 'WITHSCORES'), {}
  for i = 2, #z, 2 do scores[#scores + 1] = z[i] end
  return scores
end

local p, views = KEYS[1], {}
for _, id in ipairs(ARGV) do
  local fields = redis.call('HMGET', p .. 'r:' .. id, 'model', 'engine', 'slots', 'context', 'ends', 'prefill', 'decode', 'gen', 'state',
    'reason', 'since', 'until')
  if fields[1] then
    views[#views + 1] = { id, fields, redis.call('HGETALL', p .. 's:' .. id), ends(p .. 'l:' .. id), ends(p .. 'c:' .. id) }
  end
end
return views
