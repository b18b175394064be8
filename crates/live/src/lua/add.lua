-- Adds a message, and deletes what is not kept any longer. Returns its offset; 0: there is one with its key, or another
-- text of its name has begun since; -1: the log is another one. Epoch, name, data, event, key, kind, where its text
-- began, machine and number by which it was kept there; messages, bytes and ms that are kept.
local epoch, name, data, event, key, kind, begin, machine, number, messages_max, bytes_max, age_max = unpack(ARGV)
local log, meta, of = 'chaton:live:log', 'chaton:live:meta', 'chaton:live:of:'
local keys, ends, begins = 'chaton:live:keys', 'chaton:live:ends', 'chaton:live:begins'
local known = redis.call('HMGET', meta, 'epoch', 'last', 'deleted', 'bytes', 'oldest', 'kept:' .. machine)
if known[1] ~= epoch then return -1 end
if machine ~= '' and tonumber(known[6] or 0) >= tonumber(number) then return 0 end
if key ~= '' and redis.call('HEXISTS', keys, name .. '\n' .. key) == 1 then return 0 end
if begin ~= '' and tonumber(redis.call('HGET', begins, name) or 0) > tonumber(begin) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local offset = string.format('%.0f', known[2] + 1)
local id, size = offset .. '-0', #name + #data
redis.call('XADD', log, id, 'n', name, 'e', event, 'y', key, 'k', kind, 't', string.format('%.0f', now), 'm', machine,
  'i', number, 'd', data)
redis.call('XADD', of .. name, id, '', '')
redis.call('SADD', 'chaton:live:names', name)
if key ~= '' then redis.call('HSET', keys, name .. '\n' .. key, offset) end
if kind == '1' then redis.call('HSET', ends, name, offset) end
if kind == '2' then redis.call('HSET', begins, name, offset) end
if machine ~= '' then redis.call('HSET', meta, 'kept:' .. machine, number) end

local bytes, oldest = known[4] + size, tonumber(known[5] or now)
local excess = redis.call('XLEN', log) - messages_max
-- Not each message deletes one, and none deletes many, so that nobody waits long for it.
local slack = math.min(64, math.floor(messages_max / 2))
if excess > slack or bytes > tonumber(bytes_max) or oldest < now - age_max then
  local deleted
  for _, row in ipairs(redis.call('XRANGE', log, '-', '+', 'COUNT', 128)) do
    local fields = {}
    for i = 1, #row[2], 2 do fields[row[2][i]] = row[2][i + 1] end
    oldest = tonumber(fields.t)
    -- The newest one stays.
    if row[1] == id or not (excess > 0 or bytes > tonumber(bytes_max) or oldest < now - age_max) then break end
    local at, of_name = row[1]:match('^%d+'), of .. fields.n
    redis.call('XDEL', log, row[1])
    redis.call('XDEL', of_name, row[1])
    if redis.call('XLEN', of_name) == 0 then
      redis.call('DEL', of_name)
      redis.call('SREM', 'chaton:live:names', fields.n)
    end
    if fields.y ~= '' then redis.call('HDEL', keys, fields.n .. '\n' .. fields.y) end
    if fields.k == '1' and redis.call('HGET', ends, fields.n) == at then redis.call('HDEL', ends, fields.n) end
    if fields.k == '2' and redis.call('HGET', begins, fields.n) == at then redis.call('HDEL', begins, fields.n) end
    bytes, excess, deleted = bytes - #fields.n - #fields.d, excess - 1, at
  end
  if deleted then redis.call('HSET', meta, 'deleted', deleted) end
end
redis.call('HSET', meta, 'last', offset, 'bytes', bytes, 'oldest', oldest)
return tonumber(offset)
