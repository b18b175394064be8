-- Lines of jobs behind limits, see store/line.rs. Of a limit, slots:KEY, window:KEY or bucket:KEY, the sorted set
-- chaton:line:NAME has the jids by their places, the hash chaton:waits:NAME for each jid the time of its entry in the
-- schedule and its queue, and under '' the size of the limit. chaton:lines has all lines by the time of the next look.
local CALLED_S, CALL_MAX, READ_MAX, AHEAD_S, LOOK_S, SKEW_S, APART_S, SAME_S = 10, 100, 1000, 1, 60, 10, 1e-6, 1e-3

local function kind_of(name) return string.match(name, '^(%a+):') end

local function leave_line(name, jid)
  if redis.call('ZREM', 'chaton:line:' .. name, jid) == 0 then return false end
  redis.call('HDEL', 'chaton:waits:' .. name, jid)
  if redis.call('EXISTS', 'chaton:line:' .. name) == 0 then
    redis.call('UNLINK', 'chaton:waits:' .. name)
    redis.call('ZREM', 'chaton:lines', name)
  end
  return true
end

-- Other members of the key may live longer than this one.
local function live(key, span)
  local ttl = math.ceil(span * 1000) + 1000
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, string.format('%d', ttl)) end
end

-- How many slots are held now.
local function held(key, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.6f', now))
  return redis.call('ZCARD', key)
end

-- Level of a bucket, and the latest time it was asked with (clocks differ).
local function level_of(key, now, max, span)
  local seen = redis.call('HMGET', key, 'level', 'at')
  local at = tonumber(seen[2]) or now
  return math.min(max, (tonumber(seen[1]) or max) + math.max(0, now - at) * max / span), math.max(now, at)
end

-- What was taken from a rate later than now counts as taken now: the clock was set back.
local function set_back(name, now)
  local key, time, latest = 'chaton:' .. name, string.format('%.6f', now), now + SKEW_S
  if kind_of(name) == 'bucket' then
    if tonumber(redis.call('HGET', key, 'at') or 0) > latest then redis.call('HSET', key, 'at', time) end
  elseif kind_of(name) == 'window' then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, string.format('(%.6f', latest), '+inf')) do
      redis.call('ZADD', key, time, member)
    end
  end
end

-- A function that returns when the token after so many others is there; nil: not known.
local function tokens(name, now, max, span)
  local key = 'chaton:' .. name
  if max < 1 then return function() return now + span end end
  if kind_of(name) == 'bucket' then
    local level = level_of(key, now, max, span)
    return function(index)
      local missing = index + 1 - level
      return missing <= 1e-9 and now or now + missing * span / max
    end
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.6f', now - span))
  local used = redis.call('ZCARD', key)
  local over = math.max(0, used - max)
  local leaving = redis.call('ZRANGE', key, over, over + CALL_MAX - 1, 'WITHSCORES')
  return function(index)
    if used + index < max then return now end
    local start = leaving[2 * (used + index - max - over) + 2]
    return start and tonumber(start) + span
  end
end

-- The entry of a job of a line in the schedule, its time and its queue.
local function entry_of(name, jid)
  local wait = redis.call('HGET', 'chaton:waits:' .. name, jid)
  if not wait then return nil end
  local at, queue = string.match(wait, '^(%S+) (.*)$')
  for _, payload in ipairs(redis.call('ZRANGEBYSCORE', 'schedule', at, at)) do
    if string.find(payload, jid, 1, true) then return payload, at, queue end
  end
  return nil, at, queue
end

-- The jid of rank r in the line.
local function at_rank(name, r) return redis.call('ZRANGE', 'chaton:line:' .. name, r, r)[1] end

-- Moves the first jobs of the line to the front of their queues, as far as there are slots. One whose queue is
-- paused waits there, and holds nothing up.
local function call(name, now, max)
  local key, jobs, read = 'chaton:' .. name, {}, 0
  local free = max - held(key, now)
  while free > 0 and #jobs < CALL_MAX and read < READ_MAX do
    local jid = at_rank(name, 0)
    if not jid then break end
    read = read + 1
    local payload, _, queue = entry_of(name, jid)
    leave_line(name, jid)
    if payload then
      if redis.call('SISMEMBER', 'paused', queue) == 0 then
        redis.call('ZADD', key, string.format('%.6f', now + CALLED_S), 'line|' .. jid)
        live(key, CALLED_S)
        free = free - 1
      end
      jobs[#jobs + 1] = {queue, payload}
    end
  end
  for i = #jobs, 1, -1 do
    put('RPUSH', jobs[i][1], jobs[i][2])
    redis.call('ZREM', 'schedule', jobs[i][2])
  end
  return free <= 0 and tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or now
end

-- Gives the first jobs of the line the times of the next tokens.
local function promise(name, now, max, span)
  local token_at, token, gone, first, last = tokens(name, now, max, span), 0, 0, nil, nil
  while gone < READ_MAX do
    local jid = at_rank(name, token)
    if not jid then break end
    local payload, at, queue = entry_of(name, jid)
    at = tonumber(at)
    if payload then
      local time = token < CALL_MAX and token_at(token)
      if not time or last and time > now + AHEAD_S then break end
      time = time + token * APART_S
      if math.abs(at - time) >= SAME_S then
        local written = string.format('%.6f', time)
        redis.call('ZADD', 'schedule', 'XX', written, payload)
        redis.call('HSET', 'chaton:waits:' .. name, jid, written .. ' ' .. queue)
      end
      first, last, token = first or time, time, token + 1
    elseif at and at <= now and at > now - CALLED_S then
      -- Its time has come, and it has not asked yet.
      first, token = first or at, token + 1
    else
      leave_line(name, jid)
      gone = gone + 1
    end
  end
  local missed = first and first + CALLED_S or now
  return last and math.min(last, missed) or missed
end

local function look_at_line(name, now)
  local size = redis.call('HGET', 'chaton:waits:' .. name, '')
  if not size then return end
  local max, span = string.match(size, '^(%S+) (%S+)$')
  max, span = tonumber(max), tonumber(span)
  local look_at = kind_of(name) == 'slots' and call(name, now, max) or promise(name, now, max, span)
  if redis.call('EXISTS', 'chaton:line:' .. name) == 1 then
    redis.call('ZADD', 'chaton:lines', string.format('%.6f', math.min(look_at, now + LOOK_S)), name)
  end
end

-- The same unless the time of its next look is still to come.
local function look_if_due(name, now)
  local look_at = redis.call('ZSCORE', 'chaton:lines', name)
  if not look_at or tonumber(look_at) <= now then look_at_line(name, now) end
end

-- A job joins the line: its place, its time and queue, the size of the limit, and whether that is newer than the
-- one of the others.
local function join_line(name, jid, place, at, queue, size, is_new)
  local waits = 'chaton:waits:' .. name
  redis.call('ZADD', 'chaton:line:' .. name, place, jid)
  redis.call('HSET', waits, jid, at .. ' ' .. queue)
  local before = redis.call('HGET', waits, '')
  if not before or is_new and before ~= size then
    redis.call('HSET', waits, '', size)
    redis.call('ZREM', 'chaton:lines', name)
  end
end
