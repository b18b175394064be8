-- time, dead max, dead age, then for each job: set, member, 'push' or 'bury',
-- queue, document. → those moved
local moved = 0
for i = 4, #ARGV, 5 do
  local set, member, action, queue, payload = unpack(ARGV, i, i + 4)
  if redis.call('ZSCORE', set, member) then
    moved = moved + 1
    if action == 'push' then enqueue(queue, payload) else bury(member, ARGV[1], ARGV[2], ARGV[3]) end
    -- Last: a script that fails is not rolled back.
    redis.call('ZREM', set, member)
  end
end
return moved
