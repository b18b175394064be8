# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class ActiveJobTest < JobsUnitCase
  def setup
    super
    needs_gems "bigdecimal"
  end

  BEGINNING = <<~RUBY
    require "active_support"
    require "chaton"
    require "stringio"
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
    LOG = StringIO.new
    HANDLER = Chaton::Jobs::Handler.new(log: Chaton::Telemetry::Log.new(io: LOG))
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
    row = ["mail", { "wrapped" => "Send", "class" => wrapper, "retry" => true }, true]
    assert_includes seen, row.inspect
    assert_includes seen, '["hello", "me", :plain, "'
    assert seen.end_with?("[[:ack]]"), seen
  end

  def test_delayed_jobs_and_many_at_once
    seen = printed(<<~RUBY)
      Send.set(wait: 60).perform_later("a")
      later = STORE.rows.shift.at > Time.now.to_f + 50
      jobs = [Send.new("b"), Send.new("c"), Send.new("d")]
      jobs.last.scheduled_at = Time.now + 9
      count = ActiveJob::Base.queue_adapter.enqueue_all(jobs)
      print [[later, count], STORE.rows.map { |row| row.at&.class }, jobs.map(&:provider_job_id).compact.size].inspect
    RUBY
    assert_equal "[[true, 3], [nil, nil, Float], 3]", seen
  end

  def test_a_refused_job_of_many_is_the_only_one_without_jid
    assert_equal "[2, [true, false, true], [true, false, true]]", printed(<<~RUBY)
      require "chaton/sidekiq"
      class Once < Send
        attr_accessor :successfully_enqueued
        sidekiq_options unique_for: 60
      end
      jobs = %w[a a b].map { |text| Once.new(text) }
      count = ActiveJob::Base.queue_adapter.enqueue_all(jobs)
      known = STORE.rows.map { |row| row.item["jid"] }
      print [count, jobs.map { |job| known.include?(job.provider_job_id) }, jobs.map(&:successfully_enqueued)].inspect
    RUBY
  end

  # Rails has this error since version 7, and rescues it in `enqueue`.
  def test_since_rails_7_a_job_that_is_not_enqueued_is_told_by_rails_own_error
    assert_equal "nil|Once is not enqueued|the store is away|Chaton::StoreUnavailable", printed(<<~RUBY)
      require "chaton/sidekiq"
      class Once < Send
        sidekiq_options unique_for: 60
      end
      # Before Rails 7.1 it raises, later it hands the job with the error to the block.
      told = lambda do |job_class, pattern|
        error = nil
        job_class.perform_later("a") { |job| error = job.enqueue_error }
        error.message[pattern]
      rescue ActiveJob::EnqueueError => e
        e.message[pattern]
      end
      Once.perform_later("a")
      if defined?(ActiveJob::EnqueueError)
        print "nil|"
      else
        print Once.perform_later("a").provider_job_id.inspect, "|"
        ActiveJob::EnqueueError = Class.new(StandardError)
      end
      print told.call(Once, /.*enqueued/), "|"
      def STORE.push_args(*) = raise(Chaton::StoreUnavailable, "the store is away")
      print told.call(Send, /the store.*/), "|"
      # A retry must fail its job, which Rails would not do.
      Thread.current[ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper::RUNNING] = ["id", "jid"]
      job = Send.new("a")
      job.job_id = "id"
      begin
        job.enqueue
      rescue StandardError => e
        print e.class
      end
    RUBY
  end

  def test_each_class_and_queue_has_its_declaration
    assert_equal "[true, false, false, [\"q99\", 100], true, [\"mail\", 3]]", printed(<<~RUBY)
      adapter = ActiveJob::Base.queue_adapter
      declared = ->(job) { adapter.send(:declared, job) }
      first = declared.call(Send.new)
      other = Class.new(Send) { def self.name = "Other" }
      print [first.equal?(declared.call(Send.new)), first.equal?(declared.call(Send.new.tap { |job| job.queue_name = "q" })),
             first.equal?(declared.call(other.new)),
             100.times { |n| Send.set(queue: "q\#{n}").perform_later("a") }.then { [STORE.rows.last.queue, STORE.rows.size] },
             declared.call(Send.new.tap { |job| job.queue_name = "q3" })
               .equal?(declared.call(Send.new.tap { |job| job.queue_name = "q3" })),
             begin
               # Loaded again, with other options.
               again = Class.new(Send) do
                 def self.name = "Other"
                 def self.get_sidekiq_options = { "retry" => 3 }
               end
               declared.call(again.new).then { |made| [made.queue, made.options["retry"]] }
             end].inspect
    RUBY
  end

  def test_options_of_sidekiq_without_the_gem
    seen = printed(<<~RUBY)
      require "chaton/sidekiq"
      class Tuned < Send
        sidekiq_options retry: 3, tags: ["a"]
        sidekiq_retry_in { |count| 60 * count }
        sidekiq_retries_exhausted { |job, _error| job["jid"] }
      end
      class Child < Tuned; end
      Child.perform_later("x")
      print STORE.rows.first.item.values_at("queue", "wrapped", "retry", "tags").inspect
      print [Child.sidekiq_retry_in_block.call(2), Child.sidekiq_retries_exhausted_block.call({ "jid" => 1 }, nil),
             Send.get_sidekiq_options["retry"], Send.sidekiq_retry_in_block].inspect
    RUBY
    assert_equal '["mail", "Child", 3, ["a"]][120, 1, true, nil]', seen
  end

  def test_a_priority_is_part_of_the_document
    assert_equal '[nil, {"priority"=>-5}, {"priority"=>7}, nil, {"priority"=>3}]', printed(<<~RUBY)
      class Urgent < Send; queue_with_priority -5; end
      Send.perform_later("a")
      Urgent.perform_later("b")
      Send.set(priority: 7).perform_later("c")
      Send.perform_later("d")
      Send.set(priority: 3, wait: 60).perform_later("e")
      print STORE.rows.map { |row| row.item["chaton"] }.inspect.gsub(" => ", "=>")
    RUBY
  end

  def test_a_priority_is_beside_limits_and_in_jobs_that_are_enqueued_together
    assert_equal '[[-1, ["lock", "until"]], [2, []], [nil, []]]', printed(<<~RUBY)
      class Once < Send; chaton_options unique_for: 60; end
      Once.set(priority: -1).perform_later("a")
      ActiveJob::Base.queue_adapter.enqueue_all([Send.new("b").tap { |job| job.priority = 2 }, Send.new("c")])
      print STORE.rows.map { |row| (row.item["chaton"] || {}).then { |one| [one.delete("priority"), one.keys] } }.inspect
    RUBY
  end

  def test_jobs_that_can_be_continued_learn_that_their_worker_stops
    assert_equal "[false, true]", printed(<<~RUBY)
      asked = -> { ActiveJob::Base.queue_adapter.stopping? }
      print [asked.call, (Chaton::Jobs.stopping = true) && asked.call].inspect
    RUBY
  end

  def test_jobs_of_the_adapter_for_sidekiq_run_without_the_gem
    %w[ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper Sidekiq::ActiveJob::Wrapper].each do |wrapper|
      assert_equal '["x", "all", :plain, "j"][[:ack]]nil', printed(<<~RUBY)
        run("class" => #{wrapper.inspect}, "wrapped" => "Send", "queue" => "mail", "jid" => "j",
            "args" => [Send.new("x").serialize])
        print defined?(Sidekiq).inspect
      RUBY
    end
  end

  def test_a_job_of_an_active_job_that_is_not_there_is_put_back
    assert_equal "[[:put_back]][[:put_back]]1", printed(<<~RUBY)
      data = Send.new("x").serialize.merge("job_class" => "Sends::Later")
      %w[Sidekiq::ActiveJob::Wrapper ActiveJob::QueueAdapters::ChatonAdapter::JobWrapper].each do |wrapper|
        run("class" => wrapper, "wrapped" => "Sends::Later", "queue" => "mail", "jid" => "j", "retry" => false,
            "args" => [data])
      end
      print LOG.string.scan("class=Sends::Later").size
    RUBY
  end

  def test_retry_blocks_of_the_wrapped_class_apply
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

  def test_a_continuable_asks_with_or_without_its_job_whether_to_stop
    assert_equal "[false, false]", printed(<<~RUBY)
      adapter = ActiveJob::QueueAdapters::ChatonAdapter.new
      print [adapter.stopping?, adapter.stopping?(Object.new)].inspect
    RUBY
  end

  def test_a_class_that_does_not_wait_for_the_commit_is_stored_in_the_transaction
    needs_gems "sqlite3"
    assert_equal '[["Now", true], ["Send", false]]', printed(<<~RUBY)
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:")
      # Rails 7.2 and later have it, and wait themselves in a Rails application.
      OWN = Send.respond_to?(:enqueue_after_transaction_commit)
      class Now < Send
        class_attribute :enqueue_after_transaction_commit, default: false unless OWN
      end
      stored = [Now, Send].map do |klass|
        ActiveRecord::Base.transaction { klass.perform_later("x"); raise ActiveRecord::Rollback }
        [klass.name, !STORE.rows.pop.nil? ^ (OWN && klass == Send)]
      end
      print stored.inspect
    RUBY
  end

  # Rails has it since 7.2; for an older one a class stands in for it.
  def test_it_inherits_from_the_class_of_adapters
    assert_equal "true", in_process(<<~RUBY)
      require "active_support"
      require "active_job"
      adapters = ActiveJob::QueueAdapters
      unless adapters.const_defined?(:AbstractAdapter)
        adapters.const_set(:AbstractAdapter, Class.new { attr_accessor :stopping })
      end
      require "chaton"
      ActiveJob::Base.queue_adapter = :chaton
      print ActiveJob::Base.queue_adapter.is_a?(adapters::AbstractAdapter)
    RUBY
  end

  def test_a_class_enqueued_by_its_name_runs_with_the_rules_of_active_job
    assert_equal '["mail", ["now"]]ran now[[:ack]][[:ack]][["Shy", 1]]', printed(<<~RUBY)
      class Shy < ActiveJob::Base
        queue_as { "mail" }
        retry_on(KeyError, wait: 60)
        discard_on(ArgumentError)
        def perform(what)
          raise ArgumentError if what == "never"
          raise KeyError if what == "later"
          print "ran \#{what}"
        end
      end
      queue, head = Chaton::Jobs::CronEntry.template("Shy", args: ["now"])
      item = JSON.parse("\#{head},\\"jid\\":\\"j\\"}")
      print [queue, item["args"]].inspect
      run(item)
      run(item.merge("args" => ["never"]))
      HANDLER.call(FakeJob.new(item.merge("args" => ["later"])))
      print STORE.rows.map { |row| [row.item["wrapped"], row.item["args"].first["executions"]] }.inspect
    RUBY
  end

  def test_inside_rails_jobs_run_in_its_executor
    needs_gems "nokogiri"
    assert_equal "[run]hello[complete][[:ack]][run][complete]dead", in_process(<<~RUBY).lines.last
      require "logger"
      require "rails"
      require "active_job/railtie"
      require "chaton"
      require "chaton/telemetry/log"
      class App < Rails::Application
        config.eager_load = false
        config.cache_classes = false
        config.active_job.queue_adapter = :chaton
        config.logger = Logger.new(nil)
        config.root = Dir.pwd
      end
      App.initialize!
      STORE = FakeClient.new
      Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
      App.executor.to_run { print "[run]" }
      App.executor.to_complete { print "[complete]" }
      class Send < ActiveJob::Base
        def perform(text) = print(text)
      end
      class Bad
        include Chaton::Job
        def perform = raise("no")
      end
      Send.perform_later("hello")
      handler = Chaton::Jobs::Handler.new(log: Chaton::Telemetry::Log.new(level: :error))
      job = FakeJob.new(STORE.rows.first.payload)
      handler.call(job)
      print job.outcomes
      job = FakeJob.new({ "class" => "Bad", "args" => [], "retry" => 0, "jid" => "j", "queue" => "q" })
      handler.call(job)
      print job.outcome
    RUBY
  end

  private

  def printed(script) = in_process(BEGINNING + script)
end
