-- Acknowledges claimed jobs. owner, dead max, dead age, then for each job:
-- ticket, queue it came from, outcome, time, '1' and a document or '0' and '',
-- queue to go to, lock key and jid, number of slots and their names, batch, jid,
-- event. Returns the number of in-flight entries that were gone.
-- A failed script is not rolled back, so the in-flight entry is removed after
-- the job was stored elsewhere.
local owner, dead_max, dead_age = ARGV[1], ARGV[2], ARGV[3]
local inflight = 'chaton:inflight:' .. owner
local at, fenced = 4, 0
local function word()
  at = at + 1
  return ARGV[at - 1]
end
while at <= #ARGV do
  local ticket, from, outcome, time = word(), word(), word(), word()
  local given, payload, queue = word() == '1', word(), word()
  local lock, holder, slots = word(), word(), {}
  for i = 1, tonumber(word()) do slots[i] = word() end
  local bid, jid, event = word(), word(), word()
  local field = ticket .. ':' .. from
  if not given and outcome ~= 'ack' then payload = redis.call('HGET', inflight, field) end
  if redis.call('HEXISTS', inflight, field) == 0 then
    fenced = fenced + 1
  else
    if outcome == 'retry' then
      redis.call('ZADD', 'retry', time, payload)
    elseif outcome == 'reschedule' then
      redis.call('ZADD', 'schedule', time, payload)
    elseif outcome == 'dead' then
      add_dead(payload, time, dead_max, dead_age)
    elseif outcome == 'requeue' then
      if queue == '' then
        local read, job = pcall(cjson.decode, payload)
        queue = read and type(job) == 'table' and type(job.queue) == 'string' and job.queue or 'default'
      end
      put('RPUSH', queue, payload)
    end
    redis.call('HDEL', inflight, field)
    if lock ~= '' then unlock(lock, holder) end
    for i = 1, #slots do redis.call('ZREM', 'chaton:slots:' .. slots[i], owner .. '|' .. ticket) end
    if bid ~= '' then update_batch(bid, jid, event) end
  end
end
return fenced
