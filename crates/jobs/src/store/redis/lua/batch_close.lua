-- Closes a batch. batch. Returns 1, or 0 when it is unknown.
local key = 'chaton:batch:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSET', key, 'closed', 1)
check_batch(ARGV[1])
return 1
