-- Moves due jobs. time, dead max, dead age, then for each job: set, member,
-- 'push' or 'dead', queue, document. Returns how many were there.
local moved = 0
for i = 4, #ARGV, 5 do
  local set, member, action, queue, payload = unpack(ARGV, i, i + 4)
  if redis.call('ZSCORE', set, member) then
    moved = moved + 1
    if action == 'push' then enqueue(queue, payload) else add_dead(member, ARGV[1], ARGV[2], ARGV[3]) end
    -- Removed last, since a failed script is not rolled back.
    redis.call('ZREM', set, member)
  end
end
return moved
