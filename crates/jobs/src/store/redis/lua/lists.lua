-- The three lists of a queue, in the order of claims: jobs with a priority below 0, those without one, those above 0.
local function lists_of(queue)
  return {'chaton:high:' .. queue, 'queue:' .. queue, 'chaton:low:' .. queue}
end

