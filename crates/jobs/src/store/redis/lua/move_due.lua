-- Moves due jobs. time, dead max, dead age, then for each job: set, member,
-- 'push' or 'dead', queue, document. Returns how many were there, and the numbers (from 0) of those whose
-- queue has a key of another type: they are in the dead set.
local out = {0}
for i = 4, #ARGV, 5 do
  local set, member, action, queue, payload = unpack(ARGV, i, i + 4)
  if redis.call('ZSCORE', set, member) then
    out[1] = out[1] + 1
    if action ~= 'push' then
      add_dead(member, ARGV[1], ARGV[2], ARGV[3])
    elseif not enqueue(queue, payload) then
      out[#out + 1] = (i - 4) / 5
    end
    -- Removed last, since a failed script is not rolled back.
    redis.call('ZREM', set, member)
  end
end
return out
