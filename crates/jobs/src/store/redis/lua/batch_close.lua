-- Closes a batch. batch. Returns 1, or 0 when it is unknown. Its parent waits for it from now on; an
-- older version counted it there when it opened it, and wrote no owner.
local key = 'chaton:batch:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('ZREM', 'chaton:open_batches', ARGV[1])
if redis.call('HDEL', key, 'owner') == 1 then
  local above = 'chaton:batch:' .. (redis.call('HGET', key, 'parent') or '')
  if redis.call('EXISTS', above) == 1 then
    redis.call('HINCRBY', above, 'children', 1)
    redis.call('HINCRBY', above, 'running', 1)
  end
end
redis.call('HSET', key, 'closed', 1)
check_batch(ARGV[1])
return 1
