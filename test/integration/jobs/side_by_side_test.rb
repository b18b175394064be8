# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Which jobs run at the same time where all of them compute.
class JobsSideBySideTest < Minitest::Test
  include JobsTest

  THREADS = 25
  SHORT = 150
  JOBS = <<~RUBY.freeze
    # Uses so much CPU time.
    class Compute
      include Chaton::Job
      def perform(id, seconds)
        compute(seconds)
        Recorder.note(id, "ended")
      end

      def compute(seconds)
        end_s = cpu_s + seconds
        nil until cpu_s >= end_s
      end

      def cpu_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end

    # The same; the last one tells how many did at once at most. Nothing is written before: that would be sleep.
    class Counted < Compute
      RUNNING = Queue.new
      SEEN = Queue.new
      ENDED = Queue.new
      def perform(seconds)
        RUNNING << true
        SEEN << RUNNING.size
        compute(seconds)
        RUNNING.pop
        ENDED << true
        Recorder.note(Array.new(SEEN.size) { SEEN.pop }.max, "ended") if ENDED.size == #{SHORT}
      end
    end
  RUBY

  # Each holds what it has made until its end, and none ends sooner for the others' beginning.
  each_store def test_short_ones_do_not_all_begin
    server = boot_jobs(JOBS, section: "threads #{THREADS}")
    console(server).run("Counted.perform_bulk([[0.015]] * #{SHORT})")
    server.eventually("they ran", timeout_s: WAIT_S) { ended(server).any? }
    most = ended(server).first.to_i
    assert_operator most, :<=, THREADS / 2
    assert_operator most, :>, 1, "and yet one gets past another"
    assert_equal 0, server.stop
  end

  each_store def test_a_quick_one_gets_past_long_ones
    server = boot_jobs(JOBS, section: "threads #{THREADS}")
    console(server).run(<<~RUBY)
      3.times { |n| Compute.perform_async("long\#{n}", 1.5) }
      Compute.perform_async("quick", 0.001)
    RUBY
    server.eventually("they ran", timeout_s: WAIT_S) { ended(server).size == 4 }
    assert_equal "quick", ended(server).first
    assert_equal 0, server.stop
  end

  private

  def ended(server) = server.record.entries.select { |entry| entry.event == "ended" }.map(&:id)
end
