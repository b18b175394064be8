-- Begins a log where there is none, and another one where messages are lost that somebody has seen. The server's run
-- id, epoch and secret of a new log, and the position up to which the caller has seen the log. Returns epoch, last and
-- deleted offset, bytes, messages, secret.
local run, new, secret, seen_epoch, seen = unpack(ARGV)
local log, meta = 'chaton:live:log', 'chaton:live:meta'
local kept = redis.call('HMGET', meta, 'epoch', 'run', 'last', 'before')
local last, before = tonumber(kept[3] or 0), tonumber(kept[4] or 0)
-- So many offsets are not given again, as a server that was started again may have lost the last ones.
local lost = 4294967296
if kept[1] and kept[2] ~= run then
  before, last = last, last + lost
  redis.call('HSET', meta, 'run', run, 'before', before, 'last', last)
end
seen = tonumber(seen)
if not kept[1] or kept[1] == seen_epoch and (seen > last or seen > before and seen <= before + lost) then
  for _, name in ipairs(redis.call('SMEMBERS', 'chaton:live:names')) do redis.call('UNLINK', 'chaton:live:of:' .. name) end
  redis.call('UNLINK', log, meta, 'chaton:live:names', 'chaton:live:keys', 'chaton:live:ends', 'chaton:live:begins')
  redis.call('HSET', meta, 'epoch', new, 'secret', secret, 'run', run, 'last', 0, 'before', -lost - 1, 'deleted', 0, 'bytes', 0)
end
local found = redis.call('HMGET', meta, 'epoch', 'last', 'deleted', 'bytes', 'secret')
table.insert(found, 5, redis.call('XLEN', log))
return found
