-- Removes jobs. queue or key, 'list' or 'zset', count. Returns {number removed, the
-- documents that may name a lock or a batch…}
local gone, step = {}, 1
if ARGV[2] == 'list' then
  -- One may be of another type: refused before jobs are taken from the others.
  for _, list in ipairs(lists_of(ARGV[1])) do redis.call('LLEN', list) end
  for _, list in ipairs(lists_of(ARGV[1])) do
    local left = ARGV[3] - #gone
    for _, job in ipairs(left > 0 and redis.call('RPOP', list, left) or {}) do gone[#gone + 1] = job end
  end
else
  gone, step = redis.call('ZPOPMIN', ARGV[1], ARGV[3]), 2
end
local out = {#gone / step}
for i = 1, #gone, step do
  if string.find(gone[i], '"chaton"', 1, true) or string.find(gone[i], '"bid"', 1, true) then
    out[#out + 1] = gone[i]
  end
end
return out
