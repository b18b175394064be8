-- Returns {processed, failed, enqueued, scheduled, retries, dead, in flight, processes}
local enqueued, in_flight, living = 0, 0, 0
for _, queue in ipairs(redis.call('SMEMBERS', 'queues')) do
  for _, list in ipairs(lists_of(queue)) do
    local length = redis.pcall('LLEN', list)
    -- The application may keep something else under this key.
    if type(length) == 'number' then enqueued = enqueued + length end
  end
end
for _, owner in ipairs(redis.call('ZRANGE', 'chaton:owners', 0, -1)) do
  in_flight = in_flight + redis.call('HLEN', 'chaton:inflight:' .. owner)
end
for _, id in ipairs(redis.call('SMEMBERS', 'processes')) do
  living = living + redis.call('HEXISTS', id, 'info')
end
return {
  tonumber(redis.call('GET', 'stat:processed') or 0), tonumber(redis.call('GET', 'stat:failed') or 0),
  enqueued, redis.call('ZCARD', 'schedule'), redis.call('ZCARD', 'retry'), redis.call('ZCARD', 'dead'),
  in_flight, living,
}
