-- join.lua decides for each replica whether it is as it was (nothing happens), new, or changed: then it is a new generation, its leases are
-- void, and it starts as joining with its probe due. What was learned stays unless another model or engine answers now.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     for each replica: id, digest of the rest, model, engine, slots, context, ends ms, prefill/s, decode/s, rank ms
-- Returns  number of replicas that are new or changed
-- Cost     O(replicas log n)

local now, changed = now_ms(), 0
for i = 1, #ARGV, 10 do
  local id, digest = ARGV[i], ARGV[i + 1]
  local key = P .. 'r:' .. id
  local old = redis.call('HMGET', key, 'digest', 'model', 'engine')
  if old[1] ~= digest then
    if old[1] then
      redis.call('ZREM', P .. 'free:' .. old[2], id)
      redis.call('DEL', key, P .. 'l:' .. id, P .. 'c:' .. id)
      if old[2] ~= ARGV[i + 2] or old[3] ~= ARGV[i + 3] then redis.call('DEL', P .. 's:' .. id) end
    end
    -- Growing even when the state was lost in between: an old lease must never look like one of today.
    local gen = math.max(now, tonumber(redis.call('GET', P .. 'gen') or '0') + 1)
    redis.call('SET', P .. 'gen', int(gen))
    redis.call('HSET', key, 'digest', digest, 'model', ARGV[i + 2], 'engine', ARGV[i + 3], 'slots', ARGV[i + 4], 'context', ARGV[i + 5],
      'ends', ARGV[i + 6], 'prefill', ARGV[i + 7], 'decode', ARGV[i + 8], 'rank', ARGV[i + 9], 'gen', int(gen), 'version', '0',
      'state', 'joining', 'reason', '', 'since', int(now), 'until', '0', 'misses', '0', 'failures', '0', 'busy', '0', 'good', '0')
    redis.call('SADD', P .. 'reps', id)
    redis.call('ZADD', P .. 'due', int(now), id)
    redis.call('ZREM', P .. 'wake', id)
    changed = changed + 1
  end
end
if changed > 0 then redis.call('PUBLISH', P .. 'fleet', '') end
return changed
