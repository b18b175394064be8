-- Returns {name, size, next job or '', 1 if paused, name, …}
local out = {}
for _, queue in ipairs(redis.call('SMEMBERS', 'queues')) do
  local list = 'queue:' .. queue
  local length, job = redis.pcall('LLEN', list), redis.pcall('LINDEX', list, -1)
  out[#out + 1] = queue
  -- The application may keep something else under this key.
  out[#out + 1] = type(length) == 'number' and length or 0
  out[#out + 1] = type(job) == 'string' and job or ''
  out[#out + 1] = redis.call('SISMEMBER', 'paused', queue)
end
return out
