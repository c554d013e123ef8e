-- take.lua decides whether an offered lease still stands when its owner comes for it. One on a replica that has rejoined meanwhile is void:
-- the ticket waits again.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 owner, 2 ticket, 3 lease
-- Returns  1 when the lease is the owner's now (also when it was already), else 0
-- Cost     O(log queue)

local t = load_ticket(ARGV[2])
if not t or t.owner ~= ARGV[1] or t.lease ~= ARGV[3] then return 0 end
if t.state == 'running' then return 1 end
if t.state ~= 'offered' then return 0 end
if not redis.call('ZSCORE', P .. 'l:' .. t.replica, t.lease) then
  requeue(t, '', 0, now_ms())
  return 0
end
withdraw(t)
redis.call('HSET', P .. 't:' .. t.id, 'state', 'running')
return 1
