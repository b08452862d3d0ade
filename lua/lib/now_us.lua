-- now_us: Redis' clock, read once a script, since some servers freeze it and others do not.
-- Takes: nothing
-- Gives: microseconds since 1970, exact in a double until the year 2255
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
