# frozen_string_literal: true

require_relative "queuing_test"

# What Rails asks of some adapters by their names, asked of ours too.
class QueuingTest
  test "should interrupt jobs" do
    next unless defined?(ContinuableTestJob)

    ContinuableTestJob.perform_later @id
    wait_for_jobs_to_finish_for(1.second)
    jobs_manager.stop_workers
    assert_not job_executed
    assert_path_exists Rails.root.join("tmp/#{@id}.started")
    jobs_manager.start_workers
    wait_for_jobs_to_finish_for(20.seconds)
    assert job_executed
  end

  test "should supply a provider_job_id" do
    assert TestJob.perform_later(@id).provider_job_id
    assert TestJob.set(wait: 1.minute).perform_later(@id).provider_job_id
  end

  test "should run job with higher priority first" do
    at = Time.now + 3.seconds
    TestJob.set(wait_until: at, priority: 20).perform_later "#{@id}.1"
    TestJob.set(wait_until: at, priority: 10).perform_later "#{@id}.2"
    wait_for_jobs_to_finish_for(10.seconds)
    assert_job_executed "#{@id}.1"
    assert_job_executed_before("#{@id}.2", "#{@id}.1")
  end
end
