-- ending.lua: shared part. The end of a ticket, whoever brings it. Needs buckets.lua and prelude.lua.
-- KEYS     [1] prefix, as in prelude.lua; ARGV none
-- Returns  nothing; defines local functions
-- Cost     O(slots log n)

-- Replaces the reservation of tokens by what was used. A bucket that expired is full: nothing can come back to it.
local function settle(t, used, now)
  if t.tpm <= 0 then return end
  local key = P .. 'k:' .. t.key
  local v = redis.call('HMGET', key, 'tg', 'th', 'ta')
  local r, u = grains(t.tokens), grains(used)
  if u <= r and not v[1] then return end
  local b = level_at(v[1], v[2], v[3], now, t.tpm)
  if u <= r then
    b.g = b.g + math.min(r - u, b.held)
  else
    b.g = math.max(b.g - (u - r), -MAX_DEBT * t.tpm * GRAINS)
  end
  b.held = math.max(0, b.held - r)
  redis.call('HSET', key, 'tg', int(b.g), 'th', int(b.held), 'ta', int(now))
  if u > r then -- else it is full no later than its key expires already
    local ttl = reset(b) + 1000
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, int(ttl)) end
  end
end

-- Removes a ticket and everything it occupies; its slots cool until the given ms.
local function end_ticket(t, used, cool_until, now)
  if t.state == 'queued' then dequeue(t) end
  if t.state == 'offered' then withdraw(t) end
  vacate(t, cool_until, now)
  settle(t, used, now)
  redis.call('SREM', P .. 'kc:' .. t.key, t.id)
  redis.call('SREM', P .. 'o:' .. t.owner, t.id)
  redis.call('ZREM', P .. 'ends', t.id)
  redis.call('DEL', P .. 't:' .. t.id)
end
