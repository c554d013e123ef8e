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

-- What the attempt taught: decaying sums, as balancer.Sum has them. A replica of another generation is another phone as far as speed goes.
local function learn()
  local names, changes = {}, {}
  for i = 11, #ARGV, 3 do names[#names + 1] = ARGV[i] end
  local old = redis.call('HMGET', P .. 's:' .. t.replica, unpack(names))
  for n, name in ipairs(names) do
    local amount, seconds, at = 0, 0, now
    if old[n] then
      local a, s, w = string.match(old[n], '^(%S+) (%S+) (%S+)$')
      amount, seconds, at = tonumber(a), tonumber(s), tonumber(w)
    end
    local i, f = 8 + 3 * n, 1
    if now > at then f = 2 ^ (-(now - at) / tonumber(ARGV[10])) end
    changes[2 * n - 1] = name
    changes[2 * n] = string.format('%.17g %.17g %.0f', amount * f + tonumber(ARGV[i + 1]), seconds * f + tonumber(ARGV[i + 2]),
      math.max(now, at))
  end
  redis.call('HSET', P .. 's:' .. t.replica, unpack(changes))
end

if t.lease ~= '' and (#ARGV > 10 or ARGV[7] ~= '0') and redis.call('HGET', P .. 'r:' .. t.replica, 'gen') == t.gen then
  if ARGV[7] ~= '0' then redis.call('HSET', P .. 'r:' .. t.replica, 'rank', ARGV[7]) end
  if #ARGV > 10 then learn() end
end

local cool_until = now + tonumber(ARGV[6])
if ARGV[4] ~= '1' then
  end_ticket(t, ARGV[9] == '1' and 0 or tonumber(ARGV[8]), cool_until, now)
elseif t.state ~= 'queued' then
  requeue(t, ARGV[5], cool_until, now)
end
if redis.call('SISMEMBER', P .. 'pools', t.model) == 0 then return { 1 } end
return { 1, t.model, heads_of(t.model, 4) }
