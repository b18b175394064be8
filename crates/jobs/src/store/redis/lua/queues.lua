-- Returns {name, size, next job or '', 1 if paused, name, …}
local out = {}
for _, queue in ipairs(redis.call('SMEMBERS', 'queues')) do
  local list = 'queue:' .. queue
  out[#out + 1] = queue
  out[#out + 1] = redis.call('LLEN', list)
  out[#out + 1] = redis.call('LINDEX', list, -1) or ''
  out[#out + 1] = redis.call('SISMEMBER', 'paused', queue)
end
return out
