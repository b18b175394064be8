-- Acknowledges claimed jobs. owner, dead max, dead age, now, number of words up to the last job, then for each job:
-- ticket, queue it came from, outcome, time, '1' and a document or '0' and '',
-- queue to go to, lock key and jid, number of slots, the jid that holds them if there are any, and their names, batch,
-- jid, event, and of one that waits: the name of its line, jid, place, size of the limit, '1' if that is new.
-- Then, if jobs are to be claimed afterwards, the words of that.
-- Returns the number of in-flight entries that were gone, and what was claimed.
-- A failed script is not rolled back, so the in-flight entry is removed after
-- the job was stored elsewhere.
local owner, dead_max, dead_age, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local inflight = 'chaton:inflight:' .. owner
local at, last, fenced, looks = 6, tonumber(ARGV[5]), 0, {}
local function word()
  at = at + 1
  return ARGV[at - 1]
end
while at <= last do
  local ticket, from, outcome, time = word(), word(), word(), word()
  local given, payload, queue = word() == '1', word(), word()
  local lock, holder, slots = word(), word(), {}
  local count = tonumber(word())
  local caller = count > 0 and 'line|' .. word()
  for i = 1, count do slots[i] = word() end
  local bid, jid, event = word(), word(), word()
  local line, waiter, place, size, is_new
  if outcome == 'wait' then line, waiter, place, size, is_new = word(), word(), word(), word(), word() == '1' end
  local field = ticket .. ':' .. from
  if not given and outcome ~= 'ack' then payload = redis.call('HGET', inflight, field) end
  if redis.call('HEXISTS', inflight, field) == 0 then
    fenced = fenced + 1
  else
    if outcome == 'retry' then
      redis.call('ZADD', 'retry', time, payload)
    elseif outcome == 'reschedule' then
      redis.call('ZADD', 'schedule', time, payload)
    elseif outcome == 'wait' then
      redis.call('ZADD', 'schedule', time, payload)
      join_line(line, waiter, place, time, queue, size, is_new)
      looks[line] = true
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
    for i = 1, #slots do
      redis.call('ZREM', 'chaton:slots:' .. slots[i], owner .. '|' .. ticket, caller)
      looks['slots:' .. slots[i]] = true
    end
    if bid ~= '' then update_batch(bid, jid, event) end
  end
end
local names = {}
for name in pairs(looks) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do (kind_of(name) == 'slots' and look_at_line or look_if_due)(name, now) end
return {fenced, last < #ARGV and claim(owner, last + 1) or nil}
