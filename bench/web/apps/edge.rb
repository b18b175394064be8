# frozen_string_literal: true

threads 5..5
workers 0
web do
  static File.expand_path("../../../tmp/bench/edge", __dir__)
  compress true
end
