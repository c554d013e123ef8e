-- restore.lua puts a ticket, and the lease it runs on, back after the state was lost. The lease occupies its slots whatever else does:
-- what runs, runs. An older state of the ticket is replaced.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 ticket, 3 key, 4 model, 5 slots, 6 order, 7 life ms, 8 body, 9 tried (space between), 10 owner's time to live ms,
--          11 held since ms, 12 lease or '' when it waited, 13 replica, 14 predicted ms
-- Returns  1
-- Cost     O(slots log n)

local owner, id, lease, replica = ARGV[1], ARGV[2], ARGV[12], ARGV[13]
local now, tokens, tpm = now_ms(), '0', '0'
local old = load_ticket(id)
if old then
  if old.owner ~= owner then return redis.error_reply('ERR ticket belongs to another owner') end
  tokens, tpm = int(old.tokens), int(old.tpm)
  dequeue(old)
  withdraw(old)
  vacate(old, 0, now)
  redis.call('DEL', P .. 't:' .. id)
end
local t = { id = id, owner = owner, model = ARGV[4], key = ARGV[3], slots = tonumber(ARGV[5]), order = ARGV[6] }
redis.call('HSET', P .. 't:' .. id, 'owner', owner, 'state', 'queued', 'model', t.model, 'key', t.key, 'slots', ARGV[5], 'order', t.order,
  'tokens', tokens, 'tpm', tpm, 'held', ARGV[11], 'tried', ARGV[9], 'body', ARGV[8])
redis.call('ZADD', P .. 'ends', int(now + tonumber(ARGV[7])), id)
redis.call('ZADD', P .. 'owners', 'NX', int(now + tonumber(ARGV[10])), owner)
redis.call('SADD', P .. 'o:' .. owner, id)
redis.call('SADD', P .. 'kc:' .. t.key, id)
if lease ~= '' then
  redis.call('HSET', P .. 't:' .. id, 'state', 'running', 'lease', lease, 'replica', replica, 'predicted', ARGV[14], 'held', '0',
    'gen', redis.call('HGET', P .. 'r:' .. replica, 'gen') or '0')
  occupy(replica, lease, t.slots, now + tonumber(ARGV[14]))
  refresh_free(replica, now)
else
  enqueue(t)
  if ARGV[11] ~= '0' then redis.call('SADD', P .. 'h:' .. t.model, id) end
end
return 1
