# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class ActiveJobTest < JobsUnitCase
  BEGINNING = <<~RUBY
    require "active_support"
    require "chaton"
    require "active_job"
    require "chaton/telemetry/log"
    require "chaton/jobs/handler"
    STORE = FakeClient.new
    Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :chaton
    class Send < ActiveJob::Base
      queue_as :mail
      def perform(text, to: "all", kind: :plain) = print([text, to, kind, provider_job_id].inspect)
    end
    HANDLER = Chaton::Jobs::Handler.new(log: Chaton::Telemetry::Log.new)
    def run(item)
      job = FakeJob.new(item)
      HANDLER.call(job)
      print job.outcomes.inspect
    end
  RUBY

  def test_a_job_is_enqueued_in_sidekiqs_form_and_run
    seen = printed(<<~RUBY)
      job = Send.perform_later("hello", to: "me")
      row = STORE.rows.first
      print [row.queue, row.item.slice("wrapped", "class", "retry"), row.item["jid"] == job.provider_job_id].inspect
      STORE.rows.clear
      run(row.payload)
    RUBY
    wrapper = "ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper"
    assert_includes seen, %(["mail", {"wrapped"=>"Send", "class"=>"#{wrapper}", "retry"=>true}, true])
    assert_includes seen, '["hello", "me", :plain, "'
    assert seen.end_with?("[[:done]]"), seen
  end

  def test_later_and_many
    seen = printed(<<~RUBY)
      Send.set(wait: 60).perform_later("a")
      later = STORE.rows.shift.at > Time.now.to_f + 50
      jobs = [Send.new("b"), Send.new("c"), Send.new("d")]
      jobs.last.scheduled_at = Time.now.to_f + 9
      count = ActiveJob::Base.queue_adapter.enqueue_all(jobs)
      print [[later, count], STORE.rows.map { |row| row.at&.class }, jobs.map(&:provider_job_id).compact.size].inspect
    RUBY
    assert_equal "[[true, 3], [nil, nil, Float], 3]", seen
  end

  def test_jobs_of_the_adapter_for_sidekiq_run_without_the_gem
    %w[ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper Sidekiq::ActiveJob::Wrapper].each do |wrapper|
      assert_equal '["x", "all", :plain, "j"][[:done]]nil', printed(<<~RUBY)
        run("class" => #{wrapper.inspect}, "wrapped" => "Send", "queue" => "mail", "jid" => "j",
            "args" => [Send.new("x").serialize])
        print defined?(Sidekiq).inspect
      RUBY
    end
  end

  def test_blocks_of_the_jobs_own_class_decide_over_retries
    assert_includes printed(<<~RUBY), "[:dead"
      class Send
        def self.sidekiq_retry_in_block = ->(*) { :kill }
        def self.sidekiq_retries_exhausted_block = nil
        def self.get_sidekiq_options = {}
        def perform = raise("no")
      end
      run("class" => "Sidekiq::ActiveJob::Wrapper", "wrapped" => "Send", "queue" => "mail", "jid" => "j", "retry" => true,
          "args" => [Send.new.serialize])
    RUBY
  end

  def test_rails_that_comes_later_finds_the_adapter
    assert_equal "ActiveJob::QueueAdapters::ChatonAdapter", in_process(<<~RUBY)
      require "chaton"
      Chaton::Jobs.use(nil)
      abort "too early" if defined?(ActiveJob) || defined?(Sidekiq)
      require "active_job"
      ActiveJob::Base.queue_adapter = :chaton
      print ActiveJob::Base.queue_adapter.class
    RUBY
  end

  private

  def printed(script) = in_process(BEGINNING + script)
end
