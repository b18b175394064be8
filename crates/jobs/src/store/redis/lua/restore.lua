-- Puts jobs back into an in-flight set that has lost them. owner, then for each: ticket, queue it came
-- from, document. A job that will be claimed is left: the search reads the front of its list, where
-- claimed jobs come from. Returns how many were put back.
local owner, restored = ARGV[1], 0
local inflight = 'chaton:inflight:' .. owner
for i = 2, #ARGV, 3 do
  local field, payload = ARGV[i] .. ':' .. ARGV[i + 1], ARGV[i + 2]
  local list = list_of(ARGV[i + 1], payload)
  local known = redis.call('HEXISTS', inflight, field) == 1
    or redis.call('ZSCORE', 'retry', payload) or redis.call('ZSCORE', 'schedule', payload)
    or type(redis.pcall('LPOS', list, payload, 'RANK', -1, 'MAXLEN', 10000)) == 'number'
  if not known then
    redis.call('HSET', inflight, field, payload)
    restored = restored + 1
  end
end
if restored > 0 then add_owner(owner) end
return restored
