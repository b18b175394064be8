# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class SidekiqTest < JobsUnitCase
  # A worker's process: what it loads, and what runs one job.
  WORKER = <<~RUBY
    require "chaton"
    require "chaton/telemetry/log"
    Jobs = Struct.new(:load, :retries_max, :format, :store_settings, :store_given)
    Plan = Struct.new(:jobs, :root) { def role?(name) = name == :jobs }
    LOG = Chaton::Telemetry::Log.new(level: :error)
    STORE = FakeClient.new
    SEEN = []
    def boot(*files)
      plan = Plan.new(Jobs.new(files, nil, 7, { url: ENV.fetch("STORE", "redis://127.0.0.1:1/0") }), Dir.pwd)
      Chaton::Jobs::Runtime.before_app(plan)
      Chaton::Jobs::SidekiqGem.in_server(true) do
        yield if block_given?
        Chaton::Jobs::Runtime.prepare(plan, LOG)
      end
      Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
      HANDLERS << Chaton::Jobs::Handler.new(log: LOG, plan: plan)
    end
    HANDLERS = []
    def run(klass, *args, **more)
      job = FakeJob.new({ "class" => klass, "args" => args, "jid" => "j", "queue" => "q" }.merge(more.transform_keys(&:to_s)))
      HANDLERS.first.call(job)
      job
    end
  RUBY

  # Job files written for Sidekiq, as they are.
  FILE = <<~RUBY
    class Around
      def call(job, item, queue)
        SEEN << [:around, job.class.name, item["jid"], queue]
        yield
      end
    end
    class Outgoing
      def call(klass, item, queue, _pool)
        item["from"] = queue
        yield
      end
    end
    Sidekiq.configure_client { |_| SEEN << :client }
    Sidekiq.configure_server do |config|
      config.server_middleware { |chain| chain.add Around }
      config.client_middleware { |chain| chain.add Outgoing }
      config.error_handlers << ->(error, context) { SEEN << [:error, error.message, context[:job]["jid"]] }
      config.death_handlers << ->(item, error) { SEEN << [:death, item["jid"], error.message] }
      config.on(:startup) { SEEN << :startup }
    end
    class Old
      include Sidekiq::Worker
      sidekiq_options queue: "low", retry: 2, lock: "until_executed", uniq: true
      sidekiq_retry_in { |count, _| count.zero? ? 40 : :kill }
      sidekiq_retries_exhausted { |item, error| SEEN << [:exhausted, item["jid"], error.message] }
      def perform(value) = value == "bad" ? raise("boom") : SEEN << [:ran, value, jid]
    end
  RUBY

  SERVED = <<~RUBY
    HANDLERS.first
    Chaton::Jobs::Runtime.startup(LOG)
    p [Sidekiq.server? ? true : false, Chaton::Jobs::Runtime.claims_due?, run("Old", "ok").outcomes]
    first = run("Old", "bad", retry: 2)
    p [first.outcome, (35..60).cover?(first.outcomes.first[1] - Time.now.to_f)]
    p SEEN
    SEEN.clear
    p [run("Old", "bad", retry: 2, retry_count: 1).outcome, SEEN.reject { |kind, *| kind == :around }]
  RUBY

  def test_classes_run_unchanged_with_the_gem
    needs_gems "sidekiq"
    seen = with_file("require 'sidekiq'\n#{FILE}") { |file| in_process("#{WORKER}boot(#{file.inspect})\n#{SERVED}") }
    assert_served seen.lines.last(4)
  end

  def test_a_job_handled_by_the_gems_middleware_is_acknowledged
    needs_gems "sidekiq"
    file = <<~RUBY
      require "sidekiq"
      require "sidekiq/job_retry"
      class Skipping
        include Sidekiq::Worker
        attr_accessor :_context
        def perform = _context.stopping? || raise(Sidekiq::JobRetry::Skip)
      end
      class Stopping < Skipping
        def perform = raise(Sidekiq::Shutdown)
      end
    RUBY
    seen = with_file(file) do |path|
      in_process("#{WORKER}boot(#{path.inspect})\np run('Skipping').outcomes, run('Stopping').outcomes")
    end
    assert_equal "[[:ack]]\n[[:requeue]]\n", seen.lines.last(2).join
  end

  def test_a_gem_with_another_store_is_warned_of
    needs_gems "sidekiq"
    seen = with_file("require 'sidekiq'") do |path|
      in_process("ENV['STORE'] = 'sqlite://x'\n#{WORKER.sub(":error", ":warn")}boot(#{path.inspect})")
    end
    assert_includes seen, "enqueue to its own Redis, and jobs are claimed from another store"
  end

  def test_classes_run_unchanged_without_the_gem
    seen = with_file("require 'chaton/sidekiq'\n#{FILE}") do |file|
      in_process("#{WORKER}boot(#{file.inspect})\n#{SERVED}p Chaton::Jobs::SidekiqGem.loaded?")
    end
    assert_equal "false", seen.lines.last.chomp
    assert_served seen.lines.first(4)
  end

  def test_without_the_gem_its_module_is_not_defined
    assert_equal "nil\n", in_process("#{WORKER}boot\np defined?(Sidekiq)")
  end

  def test_with_the_gem_loaded_chatons_names_only_warn
    needs_gems "sidekiq"
    seen = in_process(<<~RUBY)
      require "sidekiq"
      require "chaton/sidekiq"
      p defined?(Sidekiq::VERSION), defined?(Sidekiq::Batch)
    RUBY
    assert_includes seen, "constant\"\nnil\n"
    script = "module Sidekiq; VERSION = '8'; end; require 'chaton/sidekiq'"
    output, = Open3.capture2e("ruby", "-w", "-I#{LIB}", "-e", script)
    assert_includes output, "the sidekiq gem is loaded, so its own classes are used"
  end

  def test_gems_for_sidekiq_find_a_version_without_the_gem
    assert_equal "[8, true, true]\n", in_process(<<~RUBY)
      require "chaton/sidekiq"
      p [Sidekiq::MAJOR, Sidekiq.gem_version >= Gem::Version.new("8.0"), Sidekiq::VERSION.start_with?("8.")]
    RUBY
  end

  # As tracers do, which extend these classes in a `configure_server` block or at the start.
  def test_classes_of_the_gems_command_line_can_be_extended
    needs_gems "sidekiq"
    assert_equal "[true, true, true, true]\n", in_process(<<~RUBY)
      #{WORKER}
      TRACED = Module.new
      boot do
        require "sidekiq"
        Sidekiq.configure_server do
          [Sidekiq::Launcher, Sidekiq::Manager, Sidekiq::Processor, Sidekiq::Scheduled::Poller].each do |part|
            part.prepend(TRACED)
            SEEN << part.include?(TRACED)
          end
        end
      end
      p SEEN
    RUBY
  end

  def test_the_number_of_retries_that_configure_server_sets
    script = <<~RUBY
      boot { Sidekiq.configure_server { |config| (config.respond_to?(:[]=) ? config : config.options)[:max_retries] = 3 } }
      class Fails
        include Chaton::Job
        def perform = raise("no")
      end
      print [2, 1].map { |count| run("Fails", retry: true, retry_count: count).outcome }
    RUBY
    assert_equal "[:dead, :retry]", in_process("#{WORKER}require 'chaton/sidekiq'\n#{script}")
    needs_gems "sidekiq"
    assert_equal "[:dead, :retry]", in_process("#{WORKER}boot { require 'sidekiq' }\nHANDLERS.clear\n#{script}")
  end

  def test_its_client_and_its_testing_without_the_gem
    seen = in_process(<<~RUBY)
      #{WORKER}
      require "chaton/sidekiq"
      Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(STORE))
      Sidekiq.default_job_options = { retry: 7 }
      class Old
        include Sidekiq::Job
        queue_as :low
        def perform(value) = SEEN << value
      end
      Old.perform_async(1)
      Sidekiq::Client.push("class" => Old, "args" => [2], "queue" => "x")
      Sidekiq::Client.enqueue_to("y", Old, 3)
      Sidekiq::Client.push_bulk("class" => "Old", "args" => [[4], [5]])
      p STORE.items.map { |item| item.values_at("queue", "retry", "args") }
      Sidekiq::Testing.fake! { Old.perform_async(6); p [Old.jobs.size, Sidekiq::Queues["low"].size]; Old.drain }
      Sidekiq::Testing.inline! { Old.perform_async(7) }
      p SEEN
      begin
        Sidekiq.redis { flunk }
      rescue NotImplementedError => e
        puts e.message
      end
      p Sidekiq::Shutdown.ancestors.include?(Interrupt), Sidekiq::Batch.new.bid.size
    RUBY
    pushed, waiting, ran, refused, *rest = seen.lines.map(&:chomp)
    assert_equal '[["low", 7, [1]], ["x", 7, [2]], ["y", 7, [3]], ["default", 7, [4]], ["default", 7, [5]]]', pushed
    assert_equal ["[1, 1]", "[6, 7]", "true", "14"], [waiting, ran, *rest]
    assert_match(/\ASidekiq.redis needs the sidekiq gem, or a pool of your own/, refused)
  end

  private

  def with_file(text)
    Dir.mktmpdir do |folder|
      path = File.join(folder, "old.rb")
      File.write(path, text)
      yield path
    end
  end

  def assert_served(lines)
    assert_equal "[true, true, [[:ack]]]", lines[0].chomp
    assert_equal "[:retry, true]", lines[1].chomp
    around = '[:around, "Old", "j", "q"]'
    assert_equal "[:startup, #{around}, [:ran, \"ok\", \"j\"], #{around}, [:error, \"boom\", \"j\"]]", lines[2].chomp
    assert_equal '[:dead, [[:error, "boom", "j"], [:exhausted, "j", "boom"], ' \
                 '[:death, "j", "boom"]]]', lines[3].chomp
  end
end
