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
    enqueue = 'Report.perform_later("a").provider_job_id'
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
end
