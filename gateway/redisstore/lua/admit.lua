-- admit.lua decides whether a key may have one more request now and, if so, where it goes: to an offered replica at once, or into the queue.
-- Limits are all or nothing; a refusal, by a limit or by a full queue, charges nothing. A ticket that is known already is charged nothing
-- and told its place. The bounds of the queue apply only to a ticket that has to wait.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 ticket, 3 key, 4 model, 5 slots, 6 order, 7 life ms, 8 body (opaque), 9 requests per minute, 10 tokens per minute,
--          11 concurrent (9-11: 0 is unlimited), 12 cost in requests, 13 cost in tokens, 14 most waiting tickets of the pool, 15 of the key
--          (0 is unlimited), 16 lease, 17 1 to wait for a busy phone, 18 owner's time to live ms, then for each candidate: replica,
--          generation, predicted ms
-- Returns  {outcome refused|full|granted|queued|offered, dimension that refused or '', 1 if too large for ever, retry ms,
--          requests remaining, their reset ms, tokens remaining, their reset ms, place} and then
--          granted: lease, replica, generation, predicted ms; queued: replicas with a free slot; full: 'pool' or 'key'
-- Cost     O(candidates + log queue)

local owner, id, key, model = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local rpm, tpm, concurrent = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local now = now_ms()
local known = load_ticket(id)
if known and known.owner ~= owner then return redis.error_reply('ERR ticket belongs to another owner') end

-- Limits. Of several refusals the longest wait stands, and one that can never succeed above all.
local allowed, tripped, too_large, retry = true, '', 0, 0
local function require_room(ok, dimension, wait)
  if ok or too_large == 1 then return end
  if allowed or wait == 0 or wait > retry then
    allowed, tripped, too_large, retry = false, dimension, wait == 0 and 1 or 0, wait
  end
end

local v = redis.call('HMGET', P .. 'k:' .. key, 'rg', 'rh', 'ra', 'tg', 'th', 'ta')
local requests = rpm > 0 and level_at(v[1], v[2], v[3], now, rpm) or nil
local tokens = tpm > 0 and level_at(v[4], v[5], v[6], now, tpm) or nil
local request_cost, token_cost = tonumber(ARGV[12]), tonumber(ARGV[13])
if not known then
  if requests then
    local ok, wait = affordable(requests, request_cost)
    require_room(ok, 'requests', wait)
  end
  if tokens then
    local ok, wait = affordable(tokens, token_cost)
    require_room(ok, 'tokens', wait)
  end
  if concurrent > 0 then require_room(redis.call('SCARD', P .. 'kc:' .. key) < concurrent, 'concurrent', 1000) end
end

local function answer(outcome, place, ...)
  return {
    outcome, tripped, too_large, retry,
    requests and remaining(requests) or 0, requests and reset(requests) or 0,
    tokens and remaining(tokens) or 0, tokens and reset(tokens) or 0, place, ...
  }
end

local function place_of(ticket) return redis.call('ZRANK', P .. 'q:' .. model, ticket) or 0 end
local function waiting() return answer('queued', place_of(id), redis.call('ZRANGE', P .. 'free:' .. model, 0, 15)) end

if not allowed then return answer('refused', 0) end
if known then
  if known.state == 'queued' then return waiting() end
  if known.state == 'offered' then return answer('offered', 0) end
  return answer('granted', 0, known.lease, known.replica, known.gen, known.predicted)
end

-- Where to: nobody is passed who waits for just any phone.
local slots, hold = tonumber(ARGV[5]), ARGV[17] == '1'
local queued = redis.call('ZCARD', P .. 'q:' .. model)
local chosen, room = nil, 0
if not hold and #ARGV >= 19 and (queued == 0 or queued == redis.call('SCARD', P .. 'h:' .. model)) then
  for i = 19, #ARGV, 3 do
    local ok, n = fits(ARGV[i], ARGV[i + 1], model, slots, now)
    if ok then
      chosen, room = i, n
      break
    end
  end
end
if not chosen then
  local pool_bound, key_bound = tonumber(ARGV[14]), tonumber(ARGV[15])
  if pool_bound > 0 and queued >= pool_bound then return answer('full', 0, 'pool') end
  if key_bound > 0 and redis.call('SCARD', P .. 'kq:' .. key) >= key_bound then return answer('full', 0, 'key') end
end

-- Charge.
local charge, lasts = {}, 0
if requests then
  requests.g = requests.g - grains(request_cost)
  charge = { 'rg', int(requests.g), 'rh', '0', 'ra', int(now) }
  lasts = reset(requests)
end
if tokens then
  tokens.g, tokens.held = tokens.g - grains(token_cost), tokens.held + grains(token_cost)
  for _, f in ipairs({ 'tg', int(tokens.g), 'th', int(tokens.held), 'ta', int(now) }) do charge[#charge + 1] = f end
  lasts = math.max(lasts, reset(tokens))
end
if #charge > 0 then
  redis.call('HSET', P .. 'k:' .. key, unpack(charge))
  redis.call('PEXPIRE', P .. 'k:' .. key, int(lasts + 1000))
end

-- Commit.
local fields = { 'owner', owner, 'state', chosen and 'running' or 'queued', 'model', model, 'key', key, 'slots', ARGV[5], 'order', ARGV[6],
  'tokens', tokens and int(math.max(0, token_cost)) or '0', 'tpm', ARGV[10], 'held', hold and int(now) or '0', 'body', ARGV[8] }
if chosen then
  for _, f in ipairs({ 'lease', ARGV[16], 'replica', ARGV[chosen], 'gen', ARGV[chosen + 1], 'predicted', ARGV[chosen + 2] }) do
    fields[#fields + 1] = f
  end
end
redis.call('HSET', P .. 't:' .. id, unpack(fields))
redis.call('ZADD', P .. 'ends', int(now + tonumber(ARGV[7])), id)
redis.call('ZADD', P .. 'owners', 'NX', int(now + tonumber(ARGV[18])), owner)
redis.call('SADD', P .. 'o:' .. owner, id)
redis.call('SADD', P .. 'kc:' .. key, id)
if chosen then
  occupy(ARGV[chosen], ARGV[16], slots, now + tonumber(ARGV[chosen + 2]))
  if room == slots then redis.call('ZREM', P .. 'free:' .. model, ARGV[chosen]) end
  return answer('granted', 0, ARGV[16], ARGV[chosen], ARGV[chosen + 1], ARGV[chosen + 2])
end
enqueue({ id = id, model = model, key = key, order = ARGV[6] })
if hold then redis.call('SADD', P .. 'h:' .. model, id) end
return waiting()
