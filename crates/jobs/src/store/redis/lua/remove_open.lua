-- Removes open batches. batch, or '' for those whose owner is gone and those opened too long ago; seconds
-- that one may be open; batches looked at, the oldest first. Returns batch, description, number of jobs…
local wanted, oldest, out = ARGV[1], server_time() - ARGV[2], {}
local bids = wanted == '' and redis.call('ZRANGE', 'chaton:open_batches', 0, ARGV[3] - 1) or {wanted}
for _, bid in ipairs(bids) do
  local key = 'chaton:batch:' .. bid
  local batch = redis.call('HMGET', key, 'owner', 'description', 'total')
  local owner, opened = batch[1], redis.call('ZSCORE', 'chaton:open_batches', bid)
  local is_left = wanted ~= '' or not owner or not opened or tonumber(opened) < oldest
    or owner ~= '' and not redis.call('ZSCORE', 'chaton:owners', owner)
  if is_left then
    if owner then
      redis.call('UNLINK', key, key .. ':calls', key .. ':jids', key .. ':failed')
      for _, word in ipairs({bid, batch[2], batch[3]}) do out[#out + 1] = word end
    end
    redis.call('ZREM', 'chaton:open_batches', bid)
  end
end
return out
