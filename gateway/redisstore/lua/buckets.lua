-- buckets.lua: shared part. The arithmetic of package limit, to the last grain: see its documentation; a test holds both together.
-- KEYS     none; ARGV none
-- Returns  nothing; defines local functions
-- Cost     arithmetic only
-- All numbers are integers below 2^53. A quotient here is below 2^20 and its divisor at most 1e9, so the rounded division of doubles
-- never crosses an integer and ceil and floor are exact.

local GRAINS = 60000      -- of a unit: a bucket of limit L gains L grains a ms
local MAX_DEBT = 10       -- capacities
local MAX_UNITS = 1000000000

local function grains(n) return math.min(math.max(n, 0), MAX_UNITS) * GRAINS end

-- The bucket (fields g, held, at of the hash k:<key>, with a one-letter prefix) as it is now.
local function level_at(g, held, at, now, limit)
  g, held, at = tonumber(g or '0'), tonumber(held or '0'), tonumber(at or '0')
  local full, elapsed = limit * GRAINS, math.max(0, now - at)
  if elapsed < math.ceil((full - g) / limit) then
    g = g + elapsed * limit
  else
    g = full
  end
  return { g = g, held = math.max(0, math.min(held, full - g)), limit = limit }
end

-- Whether n units could be taken; if not, the ms to wait, 0 for ever.
local function affordable(b, n)
  if n > b.limit then return false, 0 end
  local cost = grains(n)
  if b.g < cost then return false, math.ceil((cost - b.g) / b.limit) end
  return true, 0
end

local function remaining(b) return math.floor(math.max(0, b.g) / GRAINS) end

-- ms until the bucket is full.
local function reset(b) return math.ceil(math.max(0, b.limit * GRAINS - b.g) / b.limit) end
