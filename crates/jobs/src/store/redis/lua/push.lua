-- Pushes jobs. key of a push that happens once or '', its ms, then for each job:
-- queue, document, time or '', lock key or '', jid, ms, batch or ''. Returns nil
-- if the key was used, else for each job '' or the jid that holds its lock.
if ARGV[1] ~= '' and not redis.call('SET', 'chaton:tick:' .. ARGV[1], '1', 'NX', 'PX', ARGV[2]) then
  return false
end
local out = {}
for i = 3, #ARGV, 7 do
  local queue, payload, time, lock, jid, ttl, bid = unpack(ARGV, i, i + 6)
  local holder = ''
  if lock ~= '' then
    lock = 'chaton:lock:' .. lock
    if not redis.call('SET', lock, jid, 'NX', 'PX', ttl) then
      holder = redis.call('GET', lock)
      -- A scheduled job that is pushed when it is due holds its own lock.
      if holder == jid then
        redis.call('PEXPIRE', lock, ttl)
        holder = ''
      end
    end
  end
  if holder == '' then
    -- Nobody would see the error of a tick.
    local strict = ARGV[1] == ''
    if time == '' then put('LPUSH', queue, payload, strict) else redis.call('ZADD', 'schedule', time, payload) end
    local batch = 'chaton:batch:' .. bid
    if bid ~= '' and redis.call('EXISTS', batch) == 1 then
      redis.call('HINCRBY', batch, 'total', 1)
      redis.call('HINCRBY', batch, 'pending', 1)
    end
  end
  out[#out + 1] = holder
end
return out
