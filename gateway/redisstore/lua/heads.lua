-- heads.lua reads the first waiting tickets of a pool and who could serve them.
-- KEYS     [1] prefix "{namespace}:"
-- ARGV     1 model, 2 most tickets
-- Returns  {tickets, free}, see heads_of.lua
-- Cost     O(log queue + tickets)

return heads_of(ARGV[1], tonumber(ARGV[2]))
