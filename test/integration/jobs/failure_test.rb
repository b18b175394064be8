# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Failing jobs: retries, death, discarding, and jobs that cannot be started.
class JobsFailureTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    class Flaky
      include Chaton::Job
      options retry: 3, backtrace: 2
      retry_in { 1 }
      def perform(id, good_from)
        Recorder.note(id)
        raise ArgumentError, "not yet: é" if File.readlines("record.log").grep(/^\#{id} /).size < good_from
      end
    end

    class Hopeless
      include Chaton::Job
      options retry: 0
      retries_exhausted { |job, error| Recorder.note("exhausted:\#{job["args"].first}:\#{error.class}") }
      def perform(id, hash = nil) = raise(IOError, "never")
    end

    class NotKept < Hopeless
      options dead: false
    end

    class NoRetry < Hopeless
      options retry: false
    end

    class Discarded
      include Chaton::Job
      retry_in { |_count, _error| :discard }
      def perform(id) = raise("discard me")
    end

    class Killed
      include Chaton::Job
      retry_in { |_count, _error| :kill }
      def perform(id) = raise("kill me")
    end

    class Two
      include Chaton::Job
      options retry: 0
      def perform(one, two) = Recorder.note("two")
    end

    Chaton::Jobs.configure do |config|
      config.death_handlers << ->(job, error) { Recorder.note("death:\#{job["args"].first}:\#{error.class}") }
      config.error_handlers << ->(error, context) { Recorder.note("error:\#{context[:job]["args"].first}") }
    end
  RUBY

  each_store def test_a_failed_job_is_retried
    server = boot_jobs(JOBS)
    console = console(server)
    jid = console.run("Flaky.perform_async(\"a\", 2)")
    server.eventually("the first failure is stored") { stats(console)["retries"] == 1 }
    item = documents(console, "retry").first
    assert_equal [jid, "ArgumentError", "not yet: é", 0, "default"],
                 item.values_at("jid", "error_class", "error_message", "retry_count", "queue")
    assert_kind_of Float, item["failed_at"]
    assert_equal 2, console.run("Chaton::Jobs::RetrySet.new.first.error_backtrace").size
    # The delay is one second plus up to nine seconds of Sidekiq's jitter.
    server.eventually("the retry", timeout_s: 25) { server.record.of("a").size == 2 }
    drained(server, console)
    assert_equal 1, server.record.of("error:a").size
    assert_equal 0, server.stop
    assert_equal [2, 1, 0], stats(console).values_at("processed", "failed", "dead")
  end

  each_store def test_a_job_without_retries_left_dies
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("[Hopeless, NotKept, NoRetry].each { |one| one.perform_async(one.name) }")
    # This is its last attempt.
    console.run("Chaton::Jobs.client.push(\"class\" => Flaky, \"args\" => [\"f\", 99], \"retry_count\" => 2)")
    server.eventually("two are dead") { stats(console)["dead"] == 2 }
    drained(server, console)
    dead = documents(console, "dead").to_h { |item| [item["class"], item] }
    assert_equal %w[Flaky Hopeless], dead.keys.sort
    assert_equal [3, "ArgumentError"], dead["Flaky"].values_at("retry_count", "error_class")
    assert_equal %w[exhausted:Hopeless:IOError exhausted:NotKept:IOError],
                 server.record.tally.keys.grep(/exhausted/).sort
    assert_equal %w[Hopeless NoRetry NotKept f].map { |id| "death:#{id}" },
                 server.record.tally.keys.grep(/death/).map { |id| id[/\Adeath:\w+/] }.sort
    assert_equal 0, server.stop
  end

  each_store def test_retry_in_can_discard_or_kill_a_job
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("Discarded.perform_async(\"d\"); Killed.perform_async(\"k\")")
    server.eventually("one is dead") { stats(console)["dead"] == 1 }
    server.eventually("both have failed") { server.record.tally.keys.grep(/error/).size == 2 }
    drained(server, console)
    assert_equal ["Killed"], documents(console, "dead").map { |item| item["class"] }
    assert_equal %w[death:d:RuntimeError death:k:RuntimeError], server.record.tally.keys.grep(/death/).sort
    assert_equal 0, server.stop
  end

  each_store def test_an_unknown_class_and_a_wrong_number_of_arguments_fail
    server = boot_jobs(JOBS)
    console = console(server)
    console.run(<<~RUBY)
      Two.perform_async(1)
      Chaton::Jobs.client.push("class" => "Nowhere::ToBeFound", "args" => [1], "queue" => "default", "retry" => 0)
      Chaton::Jobs.client.push("class" => "Nowhere", "args" => [2], "queue" => "default", "retry" => 5)
      Two.perform_async(1, 2)
    RUBY
    server.eventually("the good one ran, the others are kept") do
      server.record.of("two").any? && stats(console).values_at("dead", "scheduled") == [1, 2]
    end
    errors = documents(console, "dead").to_h { |item| item.values_at("class", "error_message") }
    assert_match(/given 1, expected 2/, errors["Two"])
    assert_match(/WARN.*not known here.*load its file.*class=Nowhere::ToBeFound/, server.log)
    assert_equal 0, server.stop
  end
end
