-- Pushes jobs. key of a push that happens once or '', its ms, then for each job:
-- queue, document, time or '', lock key or '', jid, ms, batch or ''. Returns nil
-- if the key was used, else for each job '' or the jid that holds its lock.
-- A failed script is not rolled back, so batches list their jobs before these can run.
if ARGV[1] ~= '' and not redis.call('SET', 'chaton:tick:' .. ARGV[1], '1', 'NX', 'PX', ARGV[2]) then
  return false
end
local out, jids_of = {}, {}
for i = 3, #ARGV, 7 do
  local queue, payload, time, lock, jid, ttl, bid = unpack(ARGV, i, i + 6)
  local holder = ''
  -- The key of its queue may be no list: refused before the batch counts the job.
  if bid ~= '' and time == '' then redis.call('LLEN', list_of(queue, payload)) end
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
  out[#out + 1] = holder
  if holder == '' and bid ~= '' then
    local jids = jids_of[bid] or {}
    jids_of[bid], jids[#jids + 1] = jids, jid
  end
end
for bid, jids in pairs(jids_of) do
  local key, added = 'chaton:batch:' .. bid, 0
  if redis.call('EXISTS', key) == 1 then
    for i = 1, #jids, 1000 do
      added = added + redis.call('SADD', key .. ':jids', unpack(jids, i, math.min(i + 999, #jids)))
    end
    redis.call('PEXPIRE', key .. ':jids', math.max(redis.call('PTTL', key), 1))
    for _, count in ipairs({'total', 'pending', 'listed'}) do redis.call('HINCRBY', key, count, added) end
  end
end
for i = 3, #ARGV, 7 do
  local queue, payload, time = unpack(ARGV, i, i + 2)
  if out[(i + 4) / 7] == '' then
    -- Nobody would see the error of a tick.
    local strict = ARGV[1] == ''
    if time == '' then put('LPUSH', queue, payload, strict) else redis.call('ZADD', 'schedule', time, payload) end
  end
end
return out
