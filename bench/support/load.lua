-- Defines wrk's requests, and prints one line of JSON about the responses.
-- Called as: wrk ... -s load.lua URL -- MODE   (get, post, post_chunked, close)

local body = string.rep("x", 1024)

function init(args)
  local mode = args[1] or "get"
  if mode == "post" then
    wrk.method = "POST"
    wrk.body = body
  elseif mode == "post_chunked" then
    -- wrk itself only knows Content-Length, so the request is built here once.
    local half = string.format("%x\r\n%s\r\n", 512, string.rep("x", 512))
    local raw = table.concat({
      "POST ", wrk.path, " HTTP/1.1\r\nHost: ", wrk.headers["Host"],
      "\r\nTransfer-Encoding: chunked\r\n\r\n", half, half, "0\r\n\r\n",
    })
    wrk.format = function() return raw end
  elseif mode == "close" then
    wrk.headers["Connection"] = "close"
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p90_us":%d,"p99_us":%d,"max_us":%d,"mean_us":%d,' ..
    '"connect_errors":%d,"read_errors":%d,"write_errors":%d,"status_errors":%d,"timeouts":%d}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max, latency.mean,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
