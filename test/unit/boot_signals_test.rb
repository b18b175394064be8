# frozen_string_literal: true

require "test_helper"
require "chaton/boot_signals"

class BootSignalsTest < Minitest::Test
  def test_a_trap_that_runs_once_more_after_its_end_does_no_harm
    pid = fork do
      Chaton::BootSignals.hold
      late = trap("USR1", "IGNORE")
      Chaton::BootSignals.ignore
      late.call
      exit!(0)
    rescue NoMethodError
      exit!(1)
    end
    assert_equal 0, Process.wait2(pid).last.exitstatus
  end
end
