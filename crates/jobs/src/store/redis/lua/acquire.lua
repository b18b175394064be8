-- Asks limiters. now, owner, then for each request: ticket, number of limits, each
-- as kind, key, max, seconds. Returns for each '' (granted), '?' (not known when)
-- or the time to ask again.
local now, owner = tonumber(ARGV[1]), ARGV[2]
local at, out = 3, {}
local function word()
  at = at + 1
  return ARGV[at - 1]
end
-- nil: granted; false: refused, not known until when; else the time to ask again.
local function refused(kind, key, max, span, member)
  if kind == 'slots' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.6f', now))
    if redis.call('ZSCORE', key, member) or redis.call('ZCARD', key) < max then return nil end
    return false
  elseif kind == 'window' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.6f', now - span))
    local used = redis.call('ZCARD', key)
    if used < max then return nil end
    if max < 1 then return now + span end
    local first = redis.call('ZRANGE', key, used - max, used - max, 'WITHSCORES')
    return tonumber(first[2]) + span
  end
  local seen = redis.call('HMGET', key, 'level', 'at')
  local level = math.min(max, (tonumber(seen[1]) or max) + math.max(0, now - (tonumber(seen[2]) or now)) * max / span)
  if level >= 1 - 1e-9 then return nil end
  return now + (max < 1 and span or (1 - level) * span / max)
end
local function use_up(kind, key, max, span, member)
  if kind == 'slots' then
    redis.call('ZADD', key, string.format('%.6f', now + span), member)
  elseif kind == 'window' then
    redis.call('ZADD', key, string.format('%.6f', now), member)
  else
    local seen = redis.call('HMGET', key, 'level', 'at')
    local before = math.max(now, tonumber(seen[2]) or now)
    local level = math.min(max, (tonumber(seen[1]) or max) + (before - (tonumber(seen[2]) or now)) * max / span)
    redis.call('HSET', key, 'level', string.format('%.9f', math.max(0, level - 1)), 'at', string.format('%.6f', before))
  end
  -- Other members of the key may live longer than this one.
  local ttl = math.ceil(span * 1000) + 1000
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, string.format('%d', ttl)) end
end
while at <= #ARGV do
  local ticket, limits, answer = word(), {}, ''
  for i = 1, tonumber(word()) do
    local kind, key, max, span = word(), word(), tonumber(word()), tonumber(word())
    limits[i] = {kind, 'chaton:' .. kind .. ':' .. key, max, span, owner .. '|' .. ticket}
    local later = refused(unpack(limits[i]))
    if later == false and answer == '' then
      answer = '?'
    elseif later and (answer == '' or answer == '?' or later > tonumber(answer)) then
      answer = string.format('%.6f', later)
    end
  end
  if answer == '' then
    for i = 1, #limits do use_up(unpack(limits[i])) end
  end
  out[#out + 1] = answer
end
return out
