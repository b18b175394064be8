-- key, 'list' or 'zset', member, 'drop', 'push' or 'bury', document, queue, time,
-- dead max, dead age, lock key or '', jid, batch or '', jid. → 1 if it was there
local key, kind, member, action = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local there
if kind == 'list' then there = redis.call('LREM', key, -1, member) else there = redis.call('ZREM', key, member) end
if there == 0 then return 0 end
if action == 'push' then enqueue(ARGV[6], ARGV[5]) end
if action == 'bury' then bury(member, ARGV[7], ARGV[8], ARGV[9]) end
if ARGV[10] ~= '' then unlock(ARGV[10], ARGV[11]) end
if ARGV[12] ~= '' then tell(ARGV[12], ARGV[13], 'died') end
return 1
