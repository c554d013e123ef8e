-- assign.lua decides which of the candidates a waiting ticket gets, or whether it is held for a busy phone.
-- The owner's own grant counts as taken; for anybody else's ticket it is an offer, which its owner is told of and has to take in time.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 who assigns, 2 ticket, 3 lease, 4 1 to hold (read without candidates only), 5 offer's time to live ms, then for each
--          candidate: replica, generation, predicted ms
-- Returns  {} when refused or held; {replica, generation, predicted ms} when granted, also when it was this lease already
-- Cost     O(candidates + log queue)

local by, id, lease = ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()
local t = load_ticket(id)
if not t then return {} end
if t.state ~= 'queued' then
  if t.lease == lease then return { t.replica, t.gen, t.predicted } end
  return {}
end
if #ARGV < 6 then
  if ARGV[4] == '1' then
    if redis.call('SADD', P .. 'h:' .. t.model, id) == 1 then redis.call('HSET', P .. 't:' .. id, 'held', int(now)) end
  elseif redis.call('SREM', P .. 'h:' .. t.model, id) == 1 then
    redis.call('HSET', P .. 't:' .. id, 'held', '0')
  end
  return {}
end
for i = 6, #ARGV, 3 do
  local replica, gen, predicted = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local ok, room = fits(replica, gen, t.model, t.slots, now)
  if ok then
    dequeue(t)
    occupy(replica, lease, t.slots, now + tonumber(predicted))
    if room == t.slots then redis.call('ZREM', P .. 'free:' .. t.model, replica) end
    local own = t.owner == by
    redis.call('HSET', P .. 't:' .. id, 'state', own and 'running' or 'offered', 'lease', lease, 'replica', replica, 'gen', gen,
      'predicted', predicted, 'held', '0')
    if not own then
      local offer = table.concat({ lease, id, replica, gen, predicted }, ' ')
      redis.call('HSET', P .. 'a:' .. t.owner, id, offer)
      redis.call('ZADD', P .. 'offers', int(now + tonumber(ARGV[5])), id)
      redis.call('PUBLISH', P .. 'owner:' .. t.owner, offer)
    end
    return { replica, gen, predicted }
  end
end
return {}
