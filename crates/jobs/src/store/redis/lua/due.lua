-- Reads due jobs for the one process that moves them now. time, jobs at most, ms for which others wait.
-- Returns {retry set, schedule}, each as member, score…, or nil while another process moves them.
if not redis.call('SET', 'chaton:mover', '1', 'NX', 'PX', ARGV[3]) then return false end
local out, any = {}, false
for i, set in ipairs({'retry', 'schedule'}) do
  out[i] = redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
  any = any or #out[i] > 0
end
if not any then redis.call('DEL', 'chaton:mover') end
return out
