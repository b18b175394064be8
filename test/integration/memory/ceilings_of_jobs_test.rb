# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Workers that run jobs which leave memory behind, with ceilings.
class CeilingsOfJobsTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    KEPT = []
    class Leaks
      include Chaton::Job
      def perform(id, bytes, seconds = 0)
        Recorder.note(id, "began")
        KEPT << ("x" * bytes)
        sleep seconds
        Recorder.note(id, "ended")
      rescue Chaton::Jobs::Shutdown
        Recorder.note(id, "shutdown")
        raise
      end
    end
    class Bursts
      include Chaton::Job
      def perform(id)
        Recorder.note(id, "began")
        # Once: it comes back, and is to do no harm then.
        unless File.exist?("burst")
          File.write("burst", "")
          loop { sleep(0.002) && KEPT << ("x" * 500_000) }
        end
        Recorder.note(id, "ended")
      end
    end
  RUBY

  BATCH = 100

  def test_leaking_jobs_cost_workers_and_no_job
    server = boot(2, "limit \"64M\"", "limit_hard \"8G\"")
    console = console(server)
    count = enqueue_until(server, console) { server.log.scan("INFO  worker recycled: ").size >= 2 }
    server.eventually("all have run", timeout_s: 90) { server.record.count("ended") >= count }
    drained(server, console)
    assert_each_once(server, "ended", count)
    assert_nobody_is_blamed(server, console)
    turns = server.log.scan(/INFO  worker (is being recycled|recycled): /).flatten
    assert_equal turns, (["is being recycled", "recycled"] * turns.size).first(turns.size)
    assert_equal 0, server.stop
  end

  def test_a_job_that_takes_too_much_once_goes_back_and_ends
    server = boot(2, "limit \"64M\"", "limit_hard \"96M\"", config: "shutdown_timeout_s 60")
    console = console(server)
    console.run("Bursts.perform_async(\"burst\"); 20.times { |n| Leaks.perform_async(n, 10, 0.1) }")
    server.wait_line(/ERROR worker stopped at once: its memory reached \d+ MiB \(hard ceiling 96 MiB\)/)
    server.eventually("it has come back and ended") { server.record.of("burst").any? { |one| one.event == "ended" } }
    drained(server, console)
    assert_equal 21, server.record.tally("ended").size
    assert_nobody_is_blamed(server, console)
    assert_equal 1, server.status["memory"]["hard_total"]
    assert_equal 0, server.stop
  end

  private

  def boot(workers, *lines, **options)
    memory = "memory do\n  #{["constants_for_tests check_every_s: 0.1", *lines].join("\n  ")}\nend\n" \
             "#{options.fetch(:config, "")}"
    boot_jobs(JOBS, workers: "jobs: #{workers}", threads: "4..4", config: memory)
  end

  # Batch after batch, so that workers always have something to do.
  #
  # @return [Integer] jobs
  def enqueue_until(server, console)
    count = 0
    server.eventually("recycled twice", timeout_s: 90) do
      # Some of them run when their worker is asked to leave.
      console.run("#{BATCH}.times { |n| Leaks.perform_async(#{count} + n, 300_000, n % 10 == 0 ? 0.3 : 0.02) }")
      count += BATCH
      server.eventually("most have run", timeout_s: 90) { server.record.count("ended") >= count - (BATCH / 2) }
      yield
    end
    count
  end

  def assert_each_once(server, event, count)
    tally = server.record.tally(event)
    assert_equal Array.new(count, &:to_s).sort, tally.keys.sort
    assert_empty(tally.reject { |_, times| times == 1 }, "ran more than once")
  end

  # Nothing failed, nothing is dead, and no death was noted of any job.
  def assert_nobody_is_blamed(server, console)
    assert_equal [0, 0, 0], stats(console).values_at("failed", "retries", "dead")
    refute_match(/worker died|suspect|deaths/, server.log)
  end
end
