-- Opens a batch or replaces its callbacks. batch, parent or '', description, ms
-- to live, time, owner or '', then event, queue, document… Returns 1, or 0 when it is closed.
local bid, parent = ARGV[1], ARGV[2]
local key = 'chaton:batch:' .. bid
local calls = key .. ':calls'
if redis.call('HEXISTS', key, 'closed') == 1 then return 0 end
redis.call('DEL', calls)
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, 'total', 0, 'pending', 0, 'children', 0, 'running', 0, 'created_at', ARGV[5],
    'owner', ARGV[6])
  redis.call('PEXPIRE', key, ARGV[4])
  redis.call('ZADD', 'chaton:open_batches', server_time(), bid)
  if parent ~= '' then redis.call('HSET', key, 'parent', parent) end
end
redis.call('HSET', key, 'description', ARGV[3])
for i = 7, #ARGV, 3 do redis.call('RPUSH', calls, ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
redis.call('PEXPIRE', calls, math.max(redis.call('PTTL', key), 1))
return 1
