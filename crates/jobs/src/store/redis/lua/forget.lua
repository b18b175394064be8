-- Forgets an owner. identity. Returns 1, or 0 while it has jobs in flight.
local id = ARGV[1]
if redis.call('EXISTS', 'chaton:inflight:' .. id) == 1 then return 0 end
redis.call('ZREM', 'chaton:owners', id)
redis.call('HDEL', 'chaton:places', id)
redis.call('SREM', 'processes', id)
redis.call('UNLINK', id, id .. ':work', id .. ':workers', id .. '-signals')
return 1
