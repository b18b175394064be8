-- Removes jobs. key, 'list' or 'zset', count. Returns {number removed, the
-- documents that may name a lock or a batch…}
local gone, step
if ARGV[2] == 'list' then
  gone, step = redis.call('RPOP', ARGV[1], ARGV[3]) or {}, 1
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
