# frozen_string_literal: true

# Only allocates: a thousand objects per request.
COUNT = 1000
HEADERS = { "content-type" => "text/plain" }.freeze

run(lambda do |_env|
  total = 0
  COUNT.times { |number| total += [number].size }
  [200, HEADERS.dup, ["#{total}\n"]]
end)
