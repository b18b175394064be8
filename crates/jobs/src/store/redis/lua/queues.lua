-- Returns {name, size, next job or '', 1 if paused, name, …}
local out = {}
for _, queue in ipairs(redis.call('SMEMBERS', 'queues')) do
  local size, job = 0, nil
  for _, list in ipairs(lists_of(queue)) do
    local length = redis.pcall('LLEN', list)
    -- The application may keep something else under this key.
    if type(length) == 'number' and length > 0 then
      size, job = size + length, job or redis.call('LINDEX', list, -1)
    end
  end
  for _, word in ipairs({queue, size, job or '', redis.call('SISMEMBER', 'paused', queue)}) do out[#out + 1] = word end
end
return out
