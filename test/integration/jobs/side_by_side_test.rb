# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Which jobs run at the same time where all of them compute.
class JobsSideBySideTest < Minitest::Test
  include JobsTest

  THREADS = 25
  JOBS = <<~RUBY
    # Uses so much CPU time, and notes how many do at once.
    class Compute
      include Chaton::Job
      RUNNING = Queue.new
      def perform(id, seconds)
        RUNNING << id
        Recorder.note(id, "beside:\#{RUNNING.size}")
        end_s = cpu_s + seconds
        nil until cpu_s >= end_s
        RUNNING.pop
        Recorder.note(id, "ended")
      end

      def cpu_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  RUBY

  # Each holds what it has made until its end, and none ends sooner for the others' beginning.
  each_store def test_short_ones_do_not_all_begin
    server = boot_jobs(JOBS, section: "threads #{THREADS}")
    console(server).run("Compute.perform_bulk((0...150).map { |n| [n, 0.015] })")
    server.eventually("they ran") { ended(server).size == 150 }
    most = server.record.entries.filter_map { |entry| entry.event[/beside:(\d+)/, 1]&.to_i }.max
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
    server.eventually("they ran", timeout_s: 60) { ended(server).size == 4 }
    assert_equal "quick", ended(server).first
    assert_equal 0, server.stop
  end

  private

  def ended(server) = server.record.entries.select { |entry| entry.event == "ended" }.map(&:id)
end
