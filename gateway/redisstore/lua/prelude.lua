-- prelude.lua: shared part. Time, slots of a replica, life of a ticket.
-- KEYS     [1] prefix "{namespace}:"; all other keys are derived from it
-- ARGV     none
-- Returns  nothing; defines local functions
-- Cost     none by itself; each function says its own

local P = KEYS[1]

-- Numbers never reach a command or a text through `..` or by themselves: Redis would round them to 14 or 17 digits as it likes.
local function int(n) return string.format('%.0f', n) end

-- ms since the epoch by the server's clock.
local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- The i-th slot of a lease: lease, lease#2, lease#3, ...
local function member(lease, i)
  if i == 1 then return lease end
  return lease .. '#' .. int(i)
end

-- Occupied slots of a replica, after those that have cooled are gone, and how many of them cool. O(log n)
local function busy_slots(id, now)
  local cool = P .. 'c:' .. id
  local cooling = redis.call('ZCARD', cool)
  if cooling > 0 then cooling = cooling - redis.call('ZREMRANGEBYSCORE', cool, '-inf', int(now)) end
  return redis.call('ZCARD', P .. 'l:' .. id) + cooling, cooling
end

-- Puts a replica into the set of free ones of its model, or takes it out; and books the time at which that may change by itself. A time
-- booked before stays: tick looks once too often. O(log n)
local function refresh_free(id, now)
  local r = redis.call('HMGET', P .. 'r:' .. id, 'model', 'slots', 'state', 'until', 'rank')
  if not r[1] then return end
  local busy, cooling = busy_slots(id, now)
  local rank, wake = tonumber(r[5]), tonumber(r[4])
  if r[3] == 'suspect' then rank = rank + 1e9 end
  if (r[3] == 'ready' or r[3] == 'suspect') and wake <= now and busy < tonumber(r[2]) then
    redis.call('ZADD', P .. 'free:' .. r[1], int(rank), id)
  else
    redis.call('ZREM', P .. 'free:' .. r[1], id)
  end
  if cooling > 0 then
    local first = tonumber(redis.call('ZRANGE', P .. 'c:' .. id, 0, 0, 'WITHSCORES')[2])
    if wake <= now or first < wake then wake = first end
  end
  if wake > now then redis.call('ZADD', P .. 'wake', int(wake), id) end
end

-- Whether a replica of that generation may take n more slots of work for the model, and how many are free before. O(log n)
local function fits(id, gen, model, n, now)
  local r = redis.call('HMGET', P .. 'r:' .. id, 'model', 'slots', 'state', 'until', 'gen')
  if r[1] ~= model or r[5] ~= gen then return false end
  if r[3] ~= 'ready' and r[3] ~= 'suspect' then return false end
  if tonumber(r[4]) > now then return false end
  local room = tonumber(r[2]) - busy_slots(id, now)
  return room >= n, room
end

-- Lets a lease occupy n slots. O(n log n)
local function occupy(id, lease, n, ends)
  for i = 1, n do
    redis.call('ZADD', P .. 'l:' .. id, int(ends), member(lease, i))
  end
end

-- The fields of a ticket that decisions need, or nil. O(1)
local function load_ticket(id)
  local v = redis.call('HMGET', P .. 't:' .. id,
    'owner', 'state', 'model', 'key', 'slots', 'order', 'tokens', 'tpm', 'lease', 'replica', 'gen', 'predicted', 'held')
  if not v[1] then return nil end
  return {
    id = id, owner = v[1], state = v[2], model = v[3], key = v[4], slots = tonumber(v[5]), order = v[6],
    tokens = tonumber(v[7]), tpm = tonumber(v[8]), lease = v[9] or '', replica = v[10] or '', gen = v[11] or '0', predicted = v[12] or '0',
    held = v[13] ~= '0',
  }
end

-- Into the waiting line, at the ticket's own place. O(log n)
local function enqueue(t)
  redis.call('ZADD', P .. 'q:' .. t.model, t.order, t.id)
  redis.call('SADD', P .. 'kq:' .. t.key, t.id)
  redis.call('SADD', P .. 'pools', t.model)
end

-- Out of the waiting line. O(log n)
local function dequeue(t)
  redis.call('ZREM', P .. 'q:' .. t.model, t.id)
  if t.held then redis.call('SREM', P .. 'h:' .. t.model, t.id) end
  redis.call('SREM', P .. 'kq:' .. t.key, t.id)
  if redis.call('ZCARD', P .. 'q:' .. t.model) == 0 then redis.call('SREM', P .. 'pools', t.model) end
end

-- Ends an offer, taken or not. O(log n)
local function withdraw(t)
  redis.call('ZREM', P .. 'offers', t.id)
  redis.call('HDEL', P .. 'a:' .. t.owner, t.id)
end

-- Gives the slots of a ticket's lease back; those still occupied cool until the given ms. A void lease (the replica has rejoined) frees
-- nothing. O(n log n)
local function vacate(t, cool_until, now)
  if t.lease == '' then return end
  local cools = cool_until > now and redis.call('EXISTS', P .. 'r:' .. t.replica) == 1
  for i = 1, t.slots do
    local m = member(t.lease, i)
    if redis.call('ZREM', P .. 'l:' .. t.replica, m) == 1 and cools then
      redis.call('ZADD', P .. 'c:' .. t.replica, int(cool_until), m)
    end
  end
  refresh_free(t.replica, now)
end

-- Back to the waiting line at the old place; tried, if not empty, joins the phones that have failed it. O(n log n)
local function requeue(t, tried, cool_until, now)
  withdraw(t)
  vacate(t, cool_until, now)
  local key = P .. 't:' .. t.id
  redis.call('HDEL', key, 'lease', 'replica', 'gen', 'predicted')
  redis.call('HSET', key, 'state', 'queued', 'held', '0')
  if tried ~= '' then
    local list = redis.call('HGET', key, 'tried') or ''
    if not string.find(' ' .. list .. ' ', ' ' .. tried .. ' ', 1, true) then
      redis.call('HSET', key, 'tried', list == '' and tried or list .. ' ' .. tried)
    end
  end
  enqueue(t)
end
