-- Functions that several scripts use. A batch is the hash chaton:batch:BID, the list …:calls (event,
-- queue, document in turn), the set …:jids of jobs that have not succeeded and the set …:failed of those
-- whose last run failed. Its field owner is there while it is open. An older version knows no …:jids: of the
-- jobs that it pushed, total - listed, as many as the field unlisted says have succeeded.
--
-- The list that a job belongs to. Most documents have no priority, which a search for the two names shows.
local function list_of(queue, payload)
  local priority
  if string.find(payload, '"chaton":', 1, true) and string.find(payload, '"priority":', 1, true) then
    local read, job = pcall(cjson.decode, payload)
    local extra = read and type(job) == 'table' and job.chaton
    priority = type(extra) == 'table' and type(extra.priority) == 'number' and extra.priority
  end
  local index = not priority and 2 or math.abs(priority) < 1 and 2 or priority < 0 and 1 or 3
  return lists_of(queue)[index]
end

-- The application may keep something else under the key of a queue. A job that goes there must not hold up
-- the other jobs of its script: it goes to the dead set, unless the push is `strict`. Returns whether it is
-- in its queue.
local function put(command, queue, payload, strict)
  local list = list_of(queue, payload)
  local reply = redis.pcall(command, list, payload)
  if type(reply) ~= 'table' then
    redis.call('SADD', 'queues', queue)
  elseif not strict and string.find(reply.err, 'WRONGTYPE', 1, true) then
    redis.call('ZADD', 'dead', redis.call('TIME')[1], payload)
    return false
  else
    redis.call(command, list, payload)
  end
  return true
end

local function enqueue(queue, payload) return put('LPUSH', queue, payload) end

local function add_dead(payload, at, max, age_s)
  redis.call('ZADD', 'dead', at, payload)
  redis.call('ZREMRANGEBYSCORE', 'dead', '-inf', string.format('(%.6f', tonumber(at) - tonumber(age_s)))
  redis.call('ZREMRANGEBYRANK', 'dead', 0, -tonumber(max) - 1)
end

local function unlock(key, jid)
  key = 'chaton:lock:' .. key
  if redis.call('GET', key) == jid then redis.call('DEL', key) end
end

local function push_callbacks(bid, event)
  local calls = redis.call('LRANGE', 'chaton:batch:' .. bid .. ':calls', 0, -1)
  for i = 1, #calls, 3 do
    if calls[i] == event then enqueue(calls[i + 1], calls[i + 2]) end
  end
end

-- Pushes the callbacks of events that have come true, each once, then checks the
-- parent batch.
local function check_batch(bid)
  while bid and redis.call('EXISTS', 'chaton:batch:' .. bid) == 1 do
    local key = 'chaton:batch:' .. bid
    local batch = redis.call('HMGET', key, 'closed', 'pending', 'children', 'running', 'complete', 'success', 'parent')
    local pending, parent = tonumber(batch[2]), batch[7]
    local changed = false
    if not batch[1] then return end
    if not batch[5] and tonumber(batch[4]) <= 0 and redis.call('SCARD', key .. ':failed') >= pending then
      redis.call('HSET', key, 'complete', 1)
      push_callbacks(bid, 'complete')
      changed = true
      if parent and redis.call('EXISTS', 'chaton:batch:' .. parent) == 1 then
        redis.call('HINCRBY', 'chaton:batch:' .. parent, 'running', -1)
      end
    end
    if not batch[6] and pending <= 0 and tonumber(batch[3]) <= 0 then
      redis.call('HSET', key, 'success', 1)
      push_callbacks(bid, 'success')
      changed = true
      if parent and redis.call('EXISTS', 'chaton:batch:' .. parent) == 1 then
        redis.call('HINCRBY', 'chaton:batch:' .. parent, 'children', -1)
      end
    end
    if not changed then return end
    bid = parent
  end
end

local function update_batch(bid, jid, event)
  local key = 'chaton:batch:' .. bid
  local counts = redis.call('HMGET', key, 'total', 'listed', 'unlisted')
  if not counts[1] then return end
  local failed = key .. ':failed'
  local is_listed = redis.call(event == 'done' and 'SREM' or 'SISMEMBER', key .. ':jids', jid) == 1
  if not is_listed then
    -- Another copy of the job has succeeded, unless it is of the older kind.
    if counts[1] - (counts[2] or 0) <= tonumber(counts[3] or 0) then return end
    if event == 'done' then redis.call('HINCRBY', key, 'unlisted', 1) end
  end
  if event == 'done' then
    redis.call('SREM', failed, jid)
    redis.call('HINCRBY', key, 'pending', -1)
  else
    redis.call('SADD', failed, jid)
    redis.call('PEXPIRE', failed, math.max(redis.call('PTTL', key), 1))
    if event == 'died' and redis.call('HSETNX', key, 'dead', 1) == 1 then push_callbacks(bid, 'death') end
  end
  check_batch(bid)
end
