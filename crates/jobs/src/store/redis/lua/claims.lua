-- Claims jobs. Words from `at` on: first ticket, count, bytes at most, queues…
-- Ends the turns of waiting processes. Returns {drained, index of a queue, its jobs, index, jobs, …}
local function claim(owner, at)
  local key, ticket, left, room = 'chaton:inflight:' .. owner, tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local pauses = redis.call('EXISTS', 'paused') == 1
  local out, turns, format = {1}, {}, string.format
  for i = at + 3, #ARGV do
    local queue = ARGV[i]
    turns[#turns + 1] = 'chaton:turn:' .. queue
    if not (pauses and redis.call('SISMEMBER', 'paused', queue) == 1) then
      local field = '%d:' .. string.gsub(queue, '%%', '%%%%')
      for _, list in ipairs(lists_of(queue)) do
        -- A few, then many: the length of jobs is only known once they are popped.
        local step = 8
        while left > 0 do
          local asked = math.min(step, left)
          local jobs = redis.pcall('RPOP', list, asked)
          if jobs and jobs.err and not string.find(jobs.err, 'WRONGTYPE', 1, true) then
            jobs = redis.call('RPOP', list, asked)
          end
          -- A key of another type, which the watch reports, holds no jobs.
          if not jobs or #jobs == 0 then break end
          local args, size = {}, 0
          for j = 1, #jobs do
            local job = jobs[j]
            args[size + 1] = format(field, ticket)
            args[size + 2] = job
            size = size + 2
            ticket = ticket + 1
            room = room - #job
          end
          redis.call('HSET', key, unpack(args))
          out[#out + 1] = i - at - 3
          out[#out + 1] = jobs
          left = room > 0 and left - #jobs or 0
          if #jobs < asked then break end
          step = step * 8
        end
        local length = left == 0 and out[1] == 1 and redis.pcall('LLEN', list)
        if type(length) == 'number' and length > 0 then out[1] = 0 end
      end
    end
  end
  if #turns > 0 then redis.call('DEL', unpack(turns)) end
  if #out > 1 then add_owner(owner) end
  return out
end
