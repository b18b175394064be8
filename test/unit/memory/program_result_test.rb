# frozen_string_literal: true

require "test_helper"
require "chaton/memory/program_result"

class OutcomeTest < Minitest::Test
  LINE = "pid=7 ruby=3.3.8 collections=40 full=6 time_ns=5000 live=30000 old=10000 peak_kib=2048 " \
         "pools=40/20000,80/10000\n"

  def outcome(line) = Chaton::Memory::ProgramResult.new(ruby: Chaton::Memory::ProgramResult.figures(line))

  def test_figures_of_a_line
    assert_equal({ pid: 7, ruby: "3.3.8", collections: 40, full: 6, time_ns: 5000, live: 30_000, old: 10_000,
                   peak_kib: 2048, pools: [[40, 20_000], [80, 10_000]] }, Chaton::Memory::ProgramResult.figures(LINE))
    [nil, "", "pid=7", LINE.sub("old=10000", "")].each { |line| assert_nil Chaton::Memory::ProgramResult.figures(line) }
  end

  # Young objects may be garbage, so each pool counts with the share of old ones.
  def test_a_reading_for_the_next_run
    assert_equal({ ruby: "3.3.8", live_slots: 10_000, old_objects: 10_000, pools: [[40, 6667], [80, 3334]] },
                 outcome(LINE).reading)
    assert_equal [[40, 10_000]], outcome(LINE.sub(/pools=\S+/, "pools=")).reading[:pools]
  end

  def test_a_short_program_gives_no_reading
    assert_nil outcome(LINE.sub("collections=40", "collections=4")).reading
    assert_nil outcome(LINE.sub("old=10000", "old=0")).reading
    assert_nil outcome(nil).reading
  end
end
