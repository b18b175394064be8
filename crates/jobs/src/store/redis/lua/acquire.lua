-- Asks limiters. now, owner, then for each request: ticket, jid, place, number of limits, each
-- as name, max, seconds. Returns for each '' (granted), or the number of the limit that it waits for and the time
-- at which that admits it or '' (not known).
local now, owner = tonumber(ARGV[1]), ARGV[2]
local at, out = 3, {}
local function word()
  at = at + 1
  return ARGV[at - 1]
end
-- nil: granted; else when to ask again, 0: not known.
local function denial(name, max, span, member, jid, place)
  local key = 'chaton:' .. name
  local ahead = redis.call('ZCOUNT', 'chaton:line:' .. name, '-inf', '(' .. place)
  ahead = math.min(ahead, max)
  if kind_of(name) == 'slots' then
    if held(key, now) + ahead < max then return nil end
    -- A job that requests again keeps its slot, and a called one has it already.
    if redis.call('ZSCORE', key, member) or redis.call('ZSCORE', key, 'line|' .. jid) then return nil end
    return 0
  end
  local time = tokens(name, now, max, span)(ahead) or now + span
  return time > now and time or nil
end
local function use_up(name, max, span, member, jid)
  local key, kind = 'chaton:' .. name, kind_of(name)
  if kind == 'slots' then
    redis.call('ZREM', key, 'line|' .. jid)
    redis.call('ZADD', key, string.format('%.6f', now + span), member)
  elseif kind == 'window' then
    redis.call('ZADD', key, string.format('%.6f', now), member)
  else
    local level, latest = level_of(key, now, max, span)
    redis.call('HSET', key, 'level', string.format('%.9f', math.max(0, level - 1)), 'at', string.format('%.6f', latest))
  end
  live(key, span)
  if leave_line(name, jid) then look_if_due(name, now) end
end
while at <= #ARGV do
  local ticket, jid, place, limits = word(), word(), word(), {}
  local behind, later
  for i = 1, tonumber(word()) do
    limits[i] = {word(), tonumber(word()), tonumber(word()), owner .. '|' .. ticket, jid, place}
    local time = denial(unpack(limits[i]))
    if time and (not later or time > later) then behind, later = i - 1, time end
  end
  if behind then
    out[#out + 1] = behind .. ' ' .. (later > 0 and string.format('%.6f', later) or '')
  else
    for i = 1, #limits do use_up(unpack(limits[i])) end
    out[#out + 1] = ''
  end
end
return out
