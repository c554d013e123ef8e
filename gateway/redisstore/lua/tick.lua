-- tick.lua decides what time has done: offers nobody took, tickets of dead owners or past their hard end, slots that have cooled.
-- Everybody's call leaves a pulse; a gap in it means that Redis was away, and then nobody is reaped for one time to live. The rest is done
-- by the holder of the turn.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 owners' time to live ms, 3 longest gap of the pulse ms, 4 turn ms, 5 cancel bound ms (how long a phone may work on),
--          6 most entries of each kind in this call
-- Returns  {1 if the caller has the turn, tickets reaped, offers taken back, 1 if protected, 1 if something is left, models with waiting
--          tickets}
-- Cost     O(entries log n), at most 4 * ARGV[6] entries

local me, ttl, bound, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6])
local now = now_ms()
local pulse = redis.call('GET', P .. 'pulse')
redis.call('SET', P .. 'pulse', int(now), 'PX', int(10 * ttl))
if not pulse or math.abs(now - tonumber(pulse)) > tonumber(ARGV[3]) then redis.call('SET', P .. 'noreap', '1', 'PX', int(ttl)) end
local protected = redis.call('EXISTS', P .. 'noreap')

local holder = redis.call('GET', P .. 'turn')
if holder and holder ~= me then return { 0, 0, 0, protected, 0, {} } end
redis.call('SET', P .. 'turn', me, 'PX', ARGV[4])

local reaped, taken_back, left = 0, 0, 0
local function past(zset)
  local ids = redis.call('ZRANGEBYSCORE', P .. zset, '-inf', int(now), 'LIMIT', 0, int(most))
  if #ids == most then left = 1 end
  return ids
end

-- What ran was charged its reservation: what it really used is not known any more.
local function reap(id, cool_until)
  local t = load_ticket(id)
  if not t then return false end
  if t.state == 'offered' then cool_until = 0 end
  end_ticket(t, t.state == 'running' and t.tokens or 0, cool_until, now)
  reaped = reaped + 1
  return true
end

if protected == 0 then
  for _, owner in ipairs(past('owners')) do
    -- The phone notices within the bound that its caller is gone, counted from when the owner can at the latest have died.
    local stops = tonumber(redis.call('ZSCORE', P .. 'owners', owner)) - ttl + math.floor(ttl / 3) + bound
    for _, id in ipairs(redis.call('SRANDMEMBER', P .. 'o:' .. owner, int(most))) do
      if not reap(id, stops) then redis.call('SREM', P .. 'o:' .. owner, id) end
    end
    if redis.call('SCARD', P .. 'o:' .. owner) == 0 then
      redis.call('ZREM', P .. 'owners', owner)
      redis.call('SREM', P .. 'known', owner)
      redis.call('DEL', P .. 'a:' .. owner)
    else
      left = 1
      break
    end
  end
  for _, id in ipairs(past('ends')) do
    if not reap(id, now + bound) then redis.call('ZREM', P .. 'ends', id) end
  end
end
for _, id in ipairs(past('offers')) do
  local t = load_ticket(id)
  if t and t.state == 'offered' then
    requeue(t, '', 0, now)
    taken_back = taken_back + 1
  end
  redis.call('ZREM', P .. 'offers', id)
end
for _, id in ipairs(past('wake')) do
  redis.call('ZREM', P .. 'wake', id)
  refresh_free(id, now)
end
return { 1, reaped, taken_back, protected, left, redis.call('SMEMBERS', P .. 'pools') }
