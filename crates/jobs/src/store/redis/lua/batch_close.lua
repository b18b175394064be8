-- batch
local key = 'chaton:batch:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSET', key, 'closed', 1)
review(ARGV[1])
return 1
