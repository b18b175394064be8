-- Removes, requeues or kills one job. queue or key, 'list' or 'zset', member, 'remove',
-- 'push' or 'dead', document, queue, time, dead max, dead age, lock key or '',
-- jid, batch or '', jid. Returns 1 if the job was there, else 0.
local key, kind, member, action = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local there
if kind == 'list' then there = redis.call('LREM', list_of(key, member), -1, member) else there = redis.call('ZREM', key, member) end
if there == 0 then return 0 end
if action == 'push' then enqueue(ARGV[6], ARGV[5]) end
if action == 'dead' then add_dead(member, ARGV[7], ARGV[8], ARGV[9]) end
if ARGV[10] ~= '' then unlock(ARGV[10], ARGV[11]) end
if ARGV[12] ~= '' then update_batch(ARGV[12], ARGV[13], 'died') end
return 1
