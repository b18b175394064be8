# frozen_string_literal: true

lib = File.expand_path("../lib", __dir__)
$LOAD_PATH.unshift(lib) unless $LOAD_PATH.include?(lib)

require "minitest/autorun"
require "minitest/mock"
require "timeout"

# Numbers of rounds, kills and records: small in bin/test, large in bin/soak.
module Soak
  # @return [Integer] the number for this run
  def self.number(small, large) = ENV["CHATON_SOAK"] ? large : small
end

# A test that hangs fails, with the line it hangs on, instead of holding up the others. Each of setup, test
# and teardown gets the whole limit; a test that needs longer defines #time_limit_s.
module TimeLimit
  # Under GC.stress the same code takes many times as long.
  DEFAULT_S = ENV["CHATON_GC_STRESS"] ? 300 : 60

  # @return [Numeric] seconds
  def time_limit_s = DEFAULT_S

  def capture_exceptions(&step)
    super { Timeout.timeout(time_limit_s, &step) }
  end
end
Minitest::Test.prepend(TimeLimit)
