# frozen_string_literal: true

require "test_helper"
require "chaton/telemetry/still_running"

class StillRunningTest < Minitest::Test
  StillRunning = Chaton::Telemetry::StillRunning

  def test_long_work_is_told_until_it_ends
    told = Queue.new
    result = StillRunning.watch(told.method(:<<), interval_s: 0.01) { Array.new(3) { told.pop } }
    assert_equal [3, result.sort], [result.size, result], "the time grows"
    refute_includes Thread.list.map(&:name), "chaton still running"
  end

  def test_short_work_and_work_that_fails_are_not
    told = []
    assert_equal 7, StillRunning.watch(told.method(:<<)) { 7 }
    assert_raises(KeyError) { StillRunning.watch(told.method(:<<)) { raise KeyError } }
    assert_empty told
  end
end
