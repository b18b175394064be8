# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Unique jobs, limits, expiry, cancelling and pausing.
class JobsFeaturesTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    class Step
      include Chaton::Job
      def perform(id, seconds = 0)
        Recorder.note(id, "began")
        sleep seconds
        Recorder.note(id, "ended")
      end
    end

    class Unique < Step
      options unique_for: 600, retry: 0
      def perform(id, *)
        super
        raise "fails" if id == "bad"
      end
    end

    class UniqueUntilStart < Step
      options unique_for: 600, unique_until: :start
    end

    class ThreeAtOnce < Step
      options limit: { key: "three", concurrency: 3 }
    end

    class FiveInFourSeconds < Step
      options limit: { key: "five", rate: 5, per: 4 }
    end

    class Fresh < Step
      options expires_in: 0.5
    end

    class Patient
      include Chaton::Job
      options deadline: 600
      def perform(id)
        Recorder.note(id, "began")
        sleep 0.01 until cancelled?
        Recorder.note(id, "cancelled")
      end
    end

    class Hurried < Patient
      options deadline: 0.3
    end
  RUBY

  each_store def test_a_unique_job_is_stored_once
    server = boot_jobs(JOBS, threads: "4..4")
    console = console(server)
    first, second, other = console.run("[Unique.perform_async(\"u\", 3), Unique.perform_async(\"u\", 3), " \
                                       "Unique.perform_async(\"v\", 0)]")
    assert_equal [true, nil, true], [!first.nil?, second, !other.nil?]
    server.eventually("it runs") { server.record.of("u").any? }
    assert_nil console.run("Unique.perform_async(\"u\", 3)"), "while it runs"
    server.eventually("both ended") { server.record.count("ended") == 2 }
    server.eventually("free again") { console.run("Unique.perform_async(\"u\", 3)") }
    # A dead job releases its lock, too.
    assert console.run("Unique.perform_async(\"bad\")")
    server.eventually("it died") { stats(console)["dead"] == 1 }
    assert console.run("Unique.perform_async(\"bad\")")
    drained(server, console)
    assert_equal 0, server.stop
  end

  each_store def test_a_job_unique_until_start_releases_its_lock_at_its_start
    server = boot_jobs(JOBS, threads: "4..4")
    console = console(server)
    assert console.run("UniqueUntilStart.perform_async(\"u\", 0.5)")
    server.eventually("it runs") { server.record.of("u").any? }
    server.eventually("free while it runs") { console.run("UniqueUntilStart.perform_async(\"u\", 0.5)") }
    drained(server, console)
    assert_equal 2, server.record.count("ended")
    assert_equal 0, server.stop
  end

  every_store def test_a_lock_survives_a_kill_and_is_released_with_its_job
    server = boot_jobs(JOBS, workers: "jobs: 2", config: JobsServer::QUICK)
    console = console(server)
    console.run("Unique.perform_async(\"u\", 3)")
    server.eventually("it runs") { server.record.of("u").any? }
    server.signal("KILL", server.record.of("u").last.pid)
    server.eventually("it runs again") { server.record.of("u").size == 2 }
    assert_nil console.run("Unique.perform_async(\"u\", 3)")
    server.eventually("free again") { console.run("Unique.perform_async(\"u\", 3)") }
    drained(server, console)
    assert_equal 0, server.stop
  end

  each_store def test_no_more_jobs_than_the_limit_run_at_once
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "8..8")
    console = console(server)
    console.run("ThreeAtOnce.perform_bulk((0...30).map { |n| [\"l\#{n}\", 0.05] }); " \
                "Step.perform_bulk((0...30).map { |n| [\"s\#{n}\", 0] }); nil")
    server.eventually("all ended") { server.record.count("ended") == 60 }
    drained(server, console)
    running = 0
    most = server.record.entries.select { |entry| entry.id.start_with?("l") }.sort_by(&:at_s).map do |entry|
      running += entry.event == "began" ? 1 : -1
    end.max
    assert_operator most, :<=, 3
    assert_operator most, :>, 1
    assert_equal [1], server.record.tally("began").values.uniq
    assert_equal 0, server.stop
  end

  every_store def test_a_kill_frees_the_slots_of_a_limit
    server = boot_jobs(JOBS, workers: "jobs: 2", config: JobsServer::QUICK)
    console = console(server)
    console.run("ThreeAtOnce.perform_bulk((0...6).map { |n| [\"l\#{n}\", 0.5] }); nil")
    server.eventually("three run") { server.record.count("began") == 3 }
    server.signal("KILL", server.record.entries.first.pid)
    server.eventually("all ended") { server.record.tally("ended").size == 6 }
    drained(server, console)
    assert_equal 0, server.stop
  end

  each_store def test_no_more_jobs_start_than_the_rate_allows
    server = boot_jobs(JOBS, threads: "8..8")
    console = console(server)
    console.run("FiveInFourSeconds.perform_bulk((0...12).map { |n| [n] }); nil")
    server.eventually("all ended") { server.record.count("ended") == 12 }
    starts = server.record.entries.select { |entry| entry.event == "began" }.map(&:at_s).sort
    # Jobs note their start a little after the limit has granted it.
    starts.each_cons(6) { |six| assert_operator six.last - six.first, :>, 3.4 }
    drained(server, console)
    assert_equal 0, server.stop
  end

  each_store def test_an_expired_job_is_not_started
    server = boot_jobs(JOBS, threads: "1..1")
    console = console(server)
    console.run("Step.perform_async(\"long\", 1.2); Fresh.perform_async(\"late\"); Step.perform_async(\"after\")")
    server.eventually("the last one ran") { server.record.of("after").size == 2 }
    drained(server, console)
    assert_empty server.record.of("late")
    server.eventually("a fresh one runs") do
      console.run("Fresh.perform_async(\"in-time\")")
      server.record.of("in-time").any?
    end
    assert_equal 0, server.stop
  end

  each_store def test_a_job_sees_that_it_is_cancelled_or_past_its_deadline
    server = boot_jobs(JOBS, threads: "4..4")
    console = console(server)
    jid = console.run("Hurried.perform_async(\"hurried\"); Patient.perform_async(\"patient\")")
    server.eventually("both run") { server.record.count("began") == 2 }
    server.eventually("the deadline") { server.record.of("hurried").last.event == "cancelled" }
    assert_equal "began", server.record.of("patient").last.event
    console.run("Chaton::Jobs.client.native.cancel(#{jid.dump})")
    server.eventually("the job sees that it is cancelled") { server.record.of("patient").last.event == "cancelled" }
    drained(server, console)
    assert_equal 0, server.stop
  end

  every_store def test_jobs_of_a_paused_queue_wait
    server = boot_jobs(JOBS, section: "queues \"default\", \"low\"")
    console = console(server)
    console.run("Chaton::Jobs::Queue.new(\"low\").pause; Step.set(queue: \"low\").perform_async(\"low\"); " \
                "Step.perform_async(\"other\")")
    server.eventually("the other queue goes on") { server.record.of("other").size == 2 }
    drained_but_one = -> { stats(console).values_at("enqueued", "in_flight") == [1, 0] }
    server.eventually("one waits", &drained_but_one)
    assert_empty server.record.of("low")
    console.run("Chaton::Jobs::Queue.new(\"low\").resume")
    server.eventually("it runs") { server.record.of("low").size == 2 }
    assert_equal 0, server.stop
  end
end
