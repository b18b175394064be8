# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Graceful stops, quieting and restarts.
class JobsGracefulTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    class Long
      include Chaton::Job
      def perform(id, seconds)
        Recorder.note(id, "began")
        sleep seconds
        Recorder.note(id, "ended")
      rescue Chaton::Jobs::Shutdown
        Recorder.note(id, "shutdown")
        raise
      end
    end
  RUBY

  each_store def test_term_lets_running_jobs_end
    server = boot_jobs(JOBS, threads: "4..4")
    console = console(server)
    # The jobs are long, so that none ends before all four have begun.
    console.run("Long.perform_bulk([*0...4, *Array.new(10) { |n| \"w\#{n}\" }].map { |id| [id, 3] }); nil")
    server.eventually("four run") { server.record.count("began") == 4 }
    assert_equal 0, server.stop
    server.wait_all_gone
    assert_equal server.record.ids("began").sort, server.record.ids("ended").sort
    assert_equal 4, server.record.count("ended")
    assert_equal [10, 0], stats(console).values_at("enqueued", "in_flight")
    waiting = documents(console, "queue:default").map { |item| item["args"].first }
    assert_equal Array.new(10) { |n| "w#{n}" }, waiting
  end

  every_store def test_a_job_past_the_deadline_is_requeued_at_the_front_without_counting_as_a_failure
    server = boot_jobs(JOBS, threads: "1..1", config: "shutdown_timeout_s 1")
    console = console(server)
    console.run("Chaton::Jobs.client.push(\"class\" => \"Long\", \"args\" => [\"long\", 60], \"retry_count\" => 3)")
    server.eventually("it runs") { server.record.count("began") == 1 }
    console.run("3.times { |n| Long.perform_async(\"w\#{n}\", 0) }")
    server.stop
    server.wait_all_gone
    assert_equal 1, server.record.count("shutdown")
    waiting = documents(console, "queue:default")
    assert_equal %w[long w0 w1 w2], waiting.map { |item| item["args"].first }
    assert_equal 3, waiting.first["retry_count"]
    refute waiting.first.dig("chaton", "deaths")
    assert_equal [0, 0, 0], stats(console).values_at("failed", "retries", "in_flight")
  end

  each_store def test_tstp_makes_a_worker_quiet
    server = boot_jobs(JOBS, threads: "2..2")
    console = console(server)
    console.run("Long.perform_async(\"a\", 0.5)")
    server.eventually("it runs") { server.record.count("began") == 1 }
    server.signal("TSTP")
    server.eventually("quiet") { console.run("Chaton::Jobs::ProcessSet.new.map(&:quiet)") == [true] }
    console.run("Long.perform_async(\"b\", 0)")
    server.eventually("it ended") { server.record.of("a").size == 2 }
    server.eventually("no job is claimed") { stats(console).values_at("enqueued", "in_flight") == [1, 0] }
    assert_equal 0, server.stop
    assert_equal 1, server.record.count("began")
  end

  every_store def test_phased_restarts_lose_no_job_and_run_none_twice
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "4..4")
    console = console(server)
    2.times do |round|
      console.run("Long.perform_bulk((0...2000).map { |n| [\"#{round}.\#{n}\", 0.002] }); nil")
      server.eventually("they run") { server.record.count("ended") > (2000 * round) + 200 }
      server.signal("USR1")
      server.wait_line(/phased restart done/, count: round + 1, timeout_s: 40)
    end
    server.eventually("all have run") { server.record.count("ended") == 4000 }
    drained(server, console)
    assert_equal [1], server.record.tally("began").values.uniq
    assert_equal 4000, server.record.tally("ended").size
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  each_store def test_a_process_without_a_supervisor_stops_gracefully
    server = boot_jobs(JOBS, workers: "0", args: %w[--jobs])
    console = console(server)
    console.run("Long.perform_async(\"a\", 0.7)")
    server.eventually("it runs") { server.record.count("began") == 1 }
    assert_equal 0, server.stop
    assert_equal 1, server.record.count("ended")
    assert_equal [0, 0], stats(console).values_at("enqueued", "in_flight")
  end
end
