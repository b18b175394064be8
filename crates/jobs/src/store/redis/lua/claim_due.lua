-- Claims due jobs. time, dead max, dead age, owner, first ticket, then for each
-- job: set, member, 'claim' or 'dead'. Returns 1 for each that was there, else 0.
local owner, ticket = ARGV[4], tonumber(ARGV[5])
local out = {}
for i = 6, #ARGV, 3 do
  local set, member, action = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local there = redis.call('ZSCORE', set, member) and 1 or 0
  if there == 1 and action == 'claim' then
    redis.call('HSET', 'chaton:inflight:' .. owner, string.format('%d:', ticket), member)
    ticket = ticket + 1
  elseif there == 1 then
    add_dead(member, ARGV[1], ARGV[2], ARGV[3])
  end
  -- Removed last, since a failed script is not rolled back.
  redis.call('ZREM', set, member)
  out[#out + 1] = there
end
add_owner(owner)
return out
