# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# The order of jobs that all compute.
class JobsSideBySideTest < Minitest::Test
  include JobsTest

  THREADS = 25
  SHORT = 100
  JOBS = <<~RUBY.freeze
    # Uses this much CPU time.
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

    # The same, and the last job records how many were running at most. The others write nothing, because writing
    # sleeps.
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

  # Starting all jobs at once would hold all their memory, and end none of them sooner.
  each_store def test_short_jobs_do_not_all_start_at_once
    server = boot_jobs(JOBS, section: "threads #{THREADS}")
    console(server).run("Counted.perform_bulk([[0.015]] * #{SHORT})")
    server.eventually("they ran", timeout_s: WAIT_S) { ended(server).any? }
    most = ended(server).first.to_i
    assert_operator most, :<=, THREADS / 2
    assert_operator most, :>, 1, "a job may still overtake another"
    assert_equal 0, server.stop
  end

  each_store def test_a_quick_job_overtakes_long_jobs
    server = boot_jobs(JOBS, section: "threads #{THREADS}")
    console(server).run(<<~RUBY)
      3.times { |n| Compute.perform_async("long\#{n}", 0.8) }
      Compute.perform_async("quick", 0.001)
    RUBY
    server.eventually("they ran", timeout_s: WAIT_S) { ended(server).size == 4 }
    assert_equal "quick", ended(server).first
    assert_equal 0, server.stop
  end

  private

  def ended(server) = server.record.entries.select { |entry| entry.event == "ended" }.map(&:id)
end
