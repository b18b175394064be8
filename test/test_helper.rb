# frozen_string_literal: true

lib = File.expand_path("../lib", __dir__)
$LOAD_PATH.unshift(lib) unless $LOAD_PATH.include?(lib)

require_relative "support/compiled_cache"
CompiledCache.start
require "minitest/autorun"
require "minitest/mock"
require "timeout"

# A shell makes its background processes ignore INT, and all that they start inherits it: Ctrl-C would end no command
# that a test starts on a terminal.
trap("INT", "DEFAULT")

# Chooses the numbers of rounds, kills and records, which are small in bin/test and large in bin/soak.
module Soak
  # @return [Integer] the number for this run
  def self.number(small, large) = ENV["CHATON_SOAK"] ? large : small
end

# Fails a hanging test with the line that hangs. Setup, test and teardown have the whole limit each. A test that needs
# longer defines #time_limit_s.
module TimeLimit
  # Code under GC.stress takes many times as long.
  DEFAULT_S = ENV["CHATON_GC_STRESS"] ? 300 : 60

  # @return [Numeric] seconds
  def time_limit_s = DEFAULT_S

  def capture_exceptions(&step)
    super { Timeout.timeout(time_limit_s, &step) }
  end
end
Minitest::Test.prepend(TimeLimit)

# Skips tests whose gems could not be built in a lane of bin/matrix. The report counts them.
module NeedsGems
  MISSING = ENV["CHATON_TEST_WITHOUT"].to_s.split.freeze

  def needs_gems(*names)
    missing = names & MISSING
    raise Minitest::Skip, "this lane has no #{missing.join(" and no ")}" unless missing.empty?
  end
end
Minitest::Test.include(NeedsGems)
