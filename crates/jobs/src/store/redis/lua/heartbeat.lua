-- Writes a heartbeat. identity, process key, seconds to live, day, processed,
-- failed, now, lines to look at, lease, number of hash words and the words, number of work keys and the keys,
-- tid and document of each running job… Returns {1 if new, the time,
-- number of owners, number of those without a heartbeat for a lease, signals…}
local id, process_key, ttl, day = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local is_new = redis.call('HEXISTS', 'chaton:places', id) == 0
for name, count in pairs({processed = ARGV[5], failed = ARGV[6]}) do
  if count ~= '0' then
    local daily = 'stat:' .. name .. ':' .. day
    redis.call('INCRBY', 'stat:' .. name, count)
    redis.call('INCRBY', daily, count)
    -- Five years, as in Sidekiq.
    redis.call('EXPIRE', daily, 157680000)
  end
end
local said = tonumber(ARGV[7])
for from, to in pairs({['-inf'] = ARGV[7], [string.format('(%.6f', said + LOOK_S)] = '+inf'}) do
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', 'chaton:lines', from, to, 'LIMIT', 0, ARGV[8])) do
    set_back(name, said)
    look_at_line(name, said)
  end
end
local at = 11 + tonumber(ARGV[10])
redis.call('HSET', id, unpack(ARGV, 11, at - 1))
redis.call('EXPIRE', id, ttl)
redis.call('SADD', 'processes', id)
redis.call('HSET', 'chaton:places', id, process_key)
redis.call('ZADD', 'chaton:owners', server_time(), id)
local keys = tonumber(ARGV[at])
for k = at + 1, at + keys do
  redis.call('UNLINK', ARGV[k])
  for i = at + keys + 1, #ARGV, 2 do redis.call('HSET', ARGV[k], ARGV[i], ARGV[i + 1]) end
  redis.call('EXPIRE', ARGV[k], ttl)
end
local now = server_time()
local silent = redis.call('ZCOUNT', 'chaton:owners', '-inf', string.format('(%.6f', tonumber(now) - tonumber(ARGV[9])))
local out = {is_new and 1 or 0, now, redis.call('ZCARD', 'chaton:owners'), silent}
while true do
  local signal = redis.call('RPOP', id .. '-signals')
  if not signal then return out end
  out[#out + 1] = signal
end
