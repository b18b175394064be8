# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Jobs of ActiveJob on Chaton's adapter.
class JobsOfActiveJobTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    require "active_support"
    require "active_support/core_ext/numeric/time"
    require "active_job/queue_adapters/chaton_adapter"
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :chaton
    class Report < ActiveJob::Base
      retry_on ArgumentError, wait: 1, attempts: 3
      def self.get_sidekiq_options = { "unique_for" => 600, "retry" => false }
      def perform(id)
        Recorder.note(id, "try")
        raise ArgumentError, "fails" if executions < 3
        sleep 0.02 until File.exist?("go")
        Recorder.note(id, "ended")
      end
    end
  RUBY

  def setup
    needs_gems "bigdecimal"
    super
  end

  def time_limit_s = 90

  each_store def test_the_retry_of_a_unique_job_takes_over_its_lock
    server = boot_jobs(JOBS)
    console = console(server)
    enqueue = '(job = Report.perform_later("a")) && job.provider_job_id || nil'
    assert console.run(enqueue)
    server.eventually("its second retry runs alone", timeout_s: 60) do
      server.record.count("try") == 3 && stats(console).values_at("in_flight", "scheduled") == [1, 0]
    end
    assert_nil console.run(enqueue), "while its retry runs"
    server.write("go", "")
    server.eventually("its lock is free") { console.run(enqueue) }
    server.eventually("both ended", timeout_s: 60) { server.record.ids("ended") == %w[a a] }
    assert_equal 0, server.stop
  end

  RANKED = <<~RUBY
    require "chaton/batch"
    class Ranked < ActiveJob::Base
      def perform(id)
        Recorder.note(id, "tried")
        raise ArgumentError if id == "retried" && Recorder.new(".").of(id).size < 2
        Recorder.note(id)
      end
    end
    class RankedOnce < Ranked
      chaton_options unique_for: 600
      queue_with_priority(-10)
    end
    class Called
      include Chaton::Job
      def on_success(*) = Recorder.note("callback")
    end
  RUBY
  # `push.(10, id)` is numbered.
  PUSHES = <<~RUBY
    push = ->(priority, id, **more) { Ranked.set(priority: priority, **more).perform_later(id) }
    made = ->(priority, id) { Ranked.new(id).tap { |job| job.priority = priority } }
    push.(10, "low")
    push.(nil, "plain")
    push.(-10, "high")
    ActiveJob::Base.queue_adapter.enqueue_all([made.(10, "low2"), made.(nil, "plain2"), made.(-10, "high2")])
    unique = Array.new(2) { RankedOnce.perform_later("unique") }.map { |job| job && job.provider_job_id ? 1 : 0 }
    batch = Chaton::Batch.new
    batch.on(:success, "Called")
    batch.jobs { push.(-10, "batched") }
    push.(-10, "scheduled", wait: 0.05.seconds)
    unique
  RUBY

  every_store def test_jobs_run_by_their_priorities_however_they_came_into_their_queue
    server = boot_jobs(JOBS + RANKED, threads: "1..1")
    console = console(server)
    queue = 'Chaton::Jobs::Queue.new("default")'
    console.run('Ranked.set(priority: -10).perform_later("retried"); 1')
    server.eventually("it failed") { stats(console)["retries"] == 1 }
    console.run("#{queue}.pause; 1")
    assert_equal [1, 0], console.run(PUSHES)
    server.eventually("the scheduled one is due") { stats(console)["scheduled"].zero? }
    console.run("Chaton::Jobs::RetrySet.new.retry_all; 1")
    assert_equal [10, 10], [stats(console)["enqueued"], console.run("#{queue}.size")]
    status, = server.jobs_command("queues")
    assert_match(/default +10 /, status)
    seen = documents(console, "queue:default").map { |job| job["args"].first["arguments"].first }
    before = %w[high high2 unique batched scheduled retried plain plain2 low low2]
    assert_equal before, seen
    assert_operator console.run("#{queue}.latency"), :>, 0
    console.run("#{queue}.resume; 1")
    drained(server, console)
    assert_equal before.dup.insert(8, "callback"), server.record.ids
    assert_equal 0, server.stop
  end
end
