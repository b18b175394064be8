-- Defines wrk's requests, and prints one line of JSON about the responses.
-- Called as: wrk ... -s load.lua URL -- MODE   (one of the modes below)

local modes = {}

-- The requests are made once, because building them would cost the load generator time.
local function rotate(requests)
  local last = 0
  request = function()
    last = last % #requests + 1
    return requests[last]
  end
end

local function post(path, body) return wrk.format("POST", path, nil, body) end

-- wrk itself only knows Content-Length.
local function post_chunked(chunks)
  local parts = { "POST ", wrk.path, " HTTP/1.1\r\nHost: ", wrk.headers["Host"],
                  "\r\nTransfer-Encoding: chunked\r\n\r\n" }
  for _, chunk in ipairs(chunks) do parts[#parts + 1] = string.format("%x\r\n%s\r\n", #chunk, chunk) end
  return table.concat(parts) .. "0\r\n\r\n"
end

function modes.get() end

function modes.post()
  wrk.method = "POST"
  wrk.body = string.rep("x", 1024)
end

function modes.post_chunked()
  local half = string.rep("x", 512)
  local raw = post_chunked({ half, half })
  wrk.format = function() return raw end
end

function modes.close() wrk.headers["Connection"] = "close" end

function modes.gzip() wrk.headers["Accept-Encoding"] = "gzip" end

-- A form of apps/rails.
function modes.form()
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
  wrk.body = "post%5Btitle%5D=A+new+post&post%5Bbody%5D=" .. string.rep("Some+words+of+the+post.+", 10)
end

-- A new issue of Redmine, with the key that bench/apps/redmine/seed.rb gives.
function modes.redmine_issue()
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["X-Redmine-API-Key"] = string.rep("a", 40)
  wrk.body = '{"issue":{"project_id":1,"tracker_id":1,"priority_id":2,"subject":"A new issue","description":"Some words."}}'
end

-- A message of Campfire's robot, whose key is in the path; it has no session.
function modes.campfire_message()
  wrk.method = "POST"
  wrk.headers["Cookie"] = nil
  wrk.body = "A new message, with some words."
end

-- The other modes are for apps/arena.ru.
function modes.baseline()
  rotate({ wrk.format(), post(nil, "20"), post_chunked({ "20" }) })
end

function modes.pipelined()
  local raw = string.rep(wrk.format(), 16)
  wrk.format = function() return raw end
end

-- Ten requests a connection, on average.
function modes.short_lived()
  local keep = wrk.format()
  wrk.headers["Connection"] = "close"
  local close = wrk.format()
  request = function() return math.random(10) == 1 and close or keep end
end

-- Pairs of how many items and the factor of their totals.
local function json(pairs_of)
  local requests = {}
  for _, pair in ipairs(pairs_of) do
    requests[#requests + 1] = wrk.format("GET", string.format("/json/%d?m=%d", pair[1], pair[2]))
  end
  rotate(requests)
end

function modes.json() json({ { 1, 3 }, { 5, 7 }, { 10, 2 }, { 15, 5 }, { 25, 4 }, { 40, 8 }, { 50, 6 } }) end

function modes.json_gzip()
  wrk.headers["Accept-Encoding"] = "gzip, br"
  json({ { 25, 4 }, { 40, 8 }, { 50, 6 } })
end

function modes.upload()
  local requests = {}
  for _, kilobytes in ipairs({ 500, 2048, 10240, 20480 }) do
    requests[#requests + 1] = post(nil, string.rep("x", kilobytes * 1024))
  end
  rotate(requests)
end

function modes.echo()
  wrk.method = "POST"
  wrk.body = string.rep("x", 10 * 1024)
end

function modes.static()
  local requests = {}
  for file = 0, 19 do requests[#requests + 1] = wrk.format("GET", "/static/" .. file) end
  rotate(requests)
end

function init(args) modes[args[1] or "get"]() end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p90_us":%d,"p99_us":%d,"max_us":%d,"mean_us":%d,' ..
    '"connect_errors":%d,"read_errors":%d,"write_errors":%d,"status_errors":%d,"timeouts":%d}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max, latency.mean,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
