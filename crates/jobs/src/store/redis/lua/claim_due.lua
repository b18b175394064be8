-- time, dead max, dead age, owner, first ticket, then for each job: set, member,
-- 'take' or 'bury'. → for each 1 if it was there
local owner, ticket = ARGV[4], tonumber(ARGV[5])
local out = {}
for i = 6, #ARGV, 3 do
  local set, member, action = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local there = redis.call('ZSCORE', set, member) and 1 or 0
  if there == 1 and action == 'take' then
    redis.call('HSET', 'chaton:inflight:' .. owner, string.format('%d:', ticket), member)
    ticket = ticket + 1
  elseif there == 1 then
    bury(member, ARGV[1], ARGV[2], ARGV[3])
  end
  -- Last: a script that fails is not rolled back.
  redis.call('ZREM', set, member)
  out[#out + 1] = there
end
know_owner(owner)
return out
