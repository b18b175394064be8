# frozen_string_literal: true

# Bound by allocation alone: a thousand objects for each request.
COUNT = 1000
ANSWER_HEAD = { "content-type" => "text/plain" }.freeze

run(lambda do |_env|
  total = 0
  COUNT.times { |number| total += [number].size }
  [200, ANSWER_HEAD.dup, ["#{total}\n"]]
end)
