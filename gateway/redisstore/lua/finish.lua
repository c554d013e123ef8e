-- finish.lua decides what the end of an attempt means: the slots are free or cool, the ticket has ended or waits again.
-- Only the owner may, and only with the live lease of the ticket; without a lease it ends the ticket whatever its state. Anything else
-- changes nothing, so repeating is harmless.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 ticket, 3 lease or '', 4 1 to queue it again, 5 replica that failed it or '', 6 cooling ms, 7 rank ms or 0,
--          8 tokens used, 9 1 if the tokens are given back whole, 10 half-life of samples ms, then for each sample: field, amount, seconds
-- Returns  {0} unknown; {1} done; {1, model, heads} (see heads_of.lua) done and others wait in its pool
-- Cost     O(slots log n + samples)

local id, lease = ARGV[2], ARGV[3]
local now = now_ms()
local t = load_ticket(id)
if not t or t.owner ~= ARGV[1] or (lease ~= '' and t.lease ~= lease) then return { 0 } end

-- What the attempt taught. A replica of another generation is another phone as far as speed goes.
local replica = P .. 'r:' .. t.replica
if t.lease ~= '' and redis.call('HGET', replica, 'gen') == t.gen then
  if ARGV[7] ~= '0' then redis.call('HSET', replica, 'rank', ARGV[7]) end
  local sums, half = P .. 's:' .. t.replica, tonumber(ARGV[10])
  for i = 11, #ARGV, 3 do
    local amount, seconds, at = 0, 0, now
    local old = redis.call('HGET', sums, ARGV[i])
    if old then
      local a, s, w = string.match(old, '^(%S+) (%S+) (%S+)$')
      amount, seconds, at = tonumber(a), tonumber(s), tonumber(w)
    end
    local f = 1
    if now > at then f = 2 ^ (-(now - at) / half) end
    redis.call('HSET', sums, ARGV[i], string.format('%.17g %.17g %.0f',
      amount * f + tonumber(ARGV[i + 1]), seconds * f + tonumber(ARGV[i + 2]), math.max(now, at)))
  end
end

local cool_until = now + tonumber(ARGV[6])
if ARGV[4] ~= '1' then
  end_ticket(t, ARGV[9] == '1' and 0 or tonumber(ARGV[8]), cool_until, now)
elseif t.state ~= 'queued' then
  requeue(t, ARGV[5], cool_until, now)
end
if redis.call('SISMEMBER', P .. 'pools', t.model) == 0 then return { 1 } end
return { 1, t.model, heads_of(t.model, 4) }
