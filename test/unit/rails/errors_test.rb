# frozen_string_literal: true

require_relative "../jobs/support/jobs_unit_case"
require_relative "../streams/support/fake_batch"

# What Rails.error hears of failed work. A class with the interface of Rails 8.1 stands in for it, since Debian's Rails
# 6.1 has none, and one without `source:` for that of Rails 7.0.
class RailsErrorsTest < JobsUnitCase
  BEGINNING = <<~RUBY
    require "stringio"
    require "chaton"
    require "chaton/telemetry/log"
    require "chaton/jobs/handler"
    require "chaton/streams/handler"
    class Reporter
      attr_reader :seen
      def initialize = @seen = []
      def report(error, handled: true, severity: handled ? :warning : :error, context: {}, source: "application")
        return if error.instance_variable_defined?(:@__rails_error_reported)

        error.instance_variable_set(:@__rails_error_reported, true)
        @seen << [error.message, handled, severity, source, context]
      end
    end
    class OldReporter < Reporter
      def report(error, handled:, severity: handled ? :warning : :error, context: {})
        @seen << [error.message, handled, severity, context]
      end
    end
    module Rails
      class << self
        attr_accessor :error
      end
    end
    class Bad
      include Chaton::Job
      def perform(text) = raise(text)
    end
    LOG = Chaton::Telemetry::Log.new(io: StringIO.new, level: :error)
    def fail_job(**more)
      item = { "class" => "Bad", "args" => ["boom"], "retry" => 3, "jid" => "j", "queue" => "q" }
      job = FakeJob.new(item.merge(more.transform_keys(&:to_s)))
      Chaton::Jobs::Handler.new(log: LOG).call(job)
      job.outcome
    end
  RUBY

  def test_a_failed_job_is_reported_once
    context = { class: "Bad", jid: "j", queue: "q" }
    wanted = [0, 3].map { |count| ["boom", false, :error, "job.chaton", { **context, retry_count: count }] }
    assert_equal [:retry, :dead, wanted], evaluate(<<~RUBY)
      Rails.error = Reporter.new
      [fail_job, fail_job(retry_count: 2), Rails.error.seen]
    RUBY
  end

  def test_rails_before_7_1_takes_no_source
    context = { class: "Bad", jid: "j", queue: "q", retry_count: 0 }
    assert_equal [:retry, [["boom", false, :error, context]]], evaluate(<<~RUBY)
      Rails.error = OldReporter.new
      [fail_job, Rails.error.seen]
    RUBY
  end

  def test_a_broken_subscriber_loses_no_job
    assert_equal [:retry, nil], evaluate(<<~RUBY)
      Rails.error = Object.new
      Rails.error.define_singleton_method(:report) { |*, **| raise NotImplementedError, "no" }
      first = fail_job
      Rails.error = nil
      [fail_job, nil]
    RUBY
  end

  def test_a_job_of_active_job_is_reported_once
    needs_gems "bigdecimal"
    seen = evaluate(<<~RUBY)
      Rails.error = Reporter.new
      require "active_support"
      require "active_job"
      ActiveJob::Base.logger = nil
      require "active_job/queue_adapters/chaton_adapter"
      class Told < ActiveJob::Base
        # As `retry_on report: true` does.
        rescue_from(KeyError) { |error| Rails.error.report(error, handled: true, source: "application.active_job"); raise error }
        def perform = raise(KeyError, "told")
      end
      fail_job(class: "ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper", wrapped: "Told", args: [Told.new.serialize])
      fail_job(class: "Told", args: [])
      Rails.error.seen.map { |message, handled, *| [message, handled] }
    RUBY
    assert_equal [["told", true], ["told", true]], seen
  end

  def test_a_failed_consumer_is_reported
    context = { consumer: "Eater", topic: "events", partition: 3, offset: 11, attempt: 2 }
    wanted = ["boom", false, :error, "stream.chaton", context]
    assert_equal [[:failed, "RuntimeError", "boom"], [wanted]], evaluate(<<~RUBY)
      require "chaton/config"
      require "chaton/streams/native_methods"
      require "tmpdir"
      require #{File.expand_path("../streams/support/fake_batch", __dir__).inspect}
      Rails.error = Reporter.new
      class Eater < Chaton::Consumer
        def consume(batch) = batch.each { |record| raise "boom" if record.raw == "b" }
      end
      settings = Dir.mktmpdir do |root|
        File.write(File.join(root, "chaton.rb"), 'streams { topic "events", "Eater" }')
        Chaton::Config.load({ config_file: "chaton.rb" }, env: {}, root: root).streams
      end
      rows = [["a", nil, nil, nil, 10], ["b", nil, nil, nil, 11]]
      batch = FakeBatch.new(Chaton::Streams::Batch.build("events", 3, rows), attempt: 2)
      Chaton::Streams::Handler.new(settings, log: LOG).call(batch)
      [batch.outcome, Rails.error.seen]
    RUBY
  end

  def test_the_reloader_is_told_the_source_where_it_takes_one
    assert_equal [{ source: "job.chaton" }, {}], evaluate(<<~RUBY)
      SEEN = []
      Reloader = Class.new do
        def before_class_unload; end
        def wrap(**more) = (SEEN << more; yield)
      end
      OldReloader = Class.new(Reloader) do
        def wrap = (SEEN << {}; yield)
      end
      [Reloader, OldReloader].each do |reloader|
        Rails.define_singleton_method(:application) { Struct.new(:reloader).new(reloader.new) }
        fail_job
      end
      SEEN
    RUBY
  end

  private

  # @return [Object] the value of the script, in a process of its own
  def evaluate(script)
    written = in_process("#{BEGINNING}\nprint Marshal.dump(begin\n#{script}\nend)")
    Marshal.load(written) # rubocop:disable Security/MarshalLoad -- it is written by the process above
  end
end
