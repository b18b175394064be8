-- The set of owners, by the time of the last heartbeat.
local function server_time()
  local time = redis.call('TIME')
  return time[1] .. '.' .. string.format('%06d', time[2])
end

local function add_owner(owner)
  if not redis.call('ZSCORE', 'chaton:owners', owner) then
    redis.call('ZADD', 'chaton:owners', server_time(), owner)
  end
end
