# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class RuntimeTest < JobsUnitCase
  Settings = Struct.new(:load, :crons, :store_settings, keyword_init: true)
  Plan = Struct.new(:jobs, :root, keyword_init: true) do
    def role?(name) = name == :jobs
  end
  Line = Struct.new(:name, :expression, :class_name, :zone, :args, :queue)

  class Nightly
    include Chaton::Job
    options queue: "night", retry: 2, tags: ["n"], unique_for: 60, expires_in: 30, deadline: 9,
            limit: { concurrency: 1, key: ->(number) { "night-#{number}" } }
  end

  def runtime = Chaton::Jobs::Runtime
  def plan(**fields) = Plan.new(jobs: Settings.new(load: [], **fields), root: "/nowhere")

  def test_loads_files_and_folders_in_order
    Dir.mktmpdir do |root|
      Dir.mkdir("#{root}/jobs")
      %w[b.rb a.rb].each { |name| File.write("#{root}/jobs/#{name}", "print #{name.inspect}") }
      File.write("#{root}/one.rb", "print 'one'")
      assert_equal "a.rbb.rbone", in_process(<<~RUBY)
        require "chaton"
        jobs = Struct.new(:load).new(#{["#{root}/jobs", "#{root}/one"].inspect})
        plan = Struct.new(:jobs, :root).new(jobs, #{root.inspect})
        Chaton::Jobs::Runtime.prepare(plan, nil)
      RUBY
    end
  end

  def test_boots_a_rails_application
    Dir.mktmpdir do |root|
      Dir.mkdir("#{root}/config")
      File.write("#{root}/config/environment.rb", "print 'booted'")
      assert_equal "booted", in_process(<<~RUBY)
        require "chaton"
        plan = Struct.new(:jobs, :root).new(Struct.new(:load).new([]), #{root.inspect})
        2.times { Chaton::Jobs::Runtime.prepare(plan, nil) }
      RUBY
    end
  end

  def test_a_file_that_cannot_be_loaded_is_named
    Dir.mktmpdir do |root|
      File.write("#{root}/bad.rb", "raise 'in the file'")
      error = assert_raises(Chaton::AppLoadError) { runtime.prepare(plan(load: ["#{root}/bad.rb"]), nil) }
      assert_includes error.message, "#{root}/bad.rb cannot be loaded: in the file (RuntimeError)"
      error = assert_raises(Chaton::AppLoadError) { runtime.prepare(plan(load: ["#{root}/none"]), nil) }
      assert_includes error.message, "there is no such file or directory"
    end
  ensure
    Chaton::Jobs.use(nil)
  end

  def test_documents_of_cron_jobs
    lines = [Line.new("n", "0 3 * * *", Nightly.name, "UTC", [1], nil),
             Line.new("m", "* * * * *", "NotHere", "Europe/Berlin", [], "low")]
    first, second = runtime.crons(plan(crons: lines))
    assert_equal ["n", "0 3 * * *", "UTC", "night"], first.first(4)
    assert_equal({ "retry" => 2, "queue" => "night", "tags" => ["n"], "class" => Nightly.name, "args" => [1] },
                 JSON.parse("#{first[4]}}"))
    Nightly.perform_async(1)
    pushed = @native.rows.first
    assert_equal pushed.item["chaton"].except("expires_at"), JSON.parse(first[5]).except("expires_at")
    assert_equal [30.0, pushed.lock.last], [JSON.parse(first[5])["expires_at"], first[6]]
    assert_equal [nil, nil], second.last(2)
    assert_equal ["Europe/Berlin", "low"], second[2, 2]
    assert_equal({ "retry" => true, "queue" => "low", "class" => "NotHere", "args" => [] }, JSON.parse("#{second[4]}}"))
  end

  def test_blocks_of_events_run_once_and_in_order
    seen = []
    own = Chaton::Jobs.setup
    Chaton::Jobs::Setup::EVENTS.each { |event| own.on(event) { seen << event } }
    own.on(:startup) { raise "no" }
    runtime.startup(log)
    refute_predicate Chaton::Jobs, :stopping?
    runtime.quiet(log)
    assert_predicate Chaton::Jobs, :stopping?
    runtime.shutdown(log)
    runtime.ended(log)
    assert_equal %i[startup quiet shutdown exit], seen
    assert_includes logged, "a block for the event startup failed"
    assert_raises(ArgumentError) { own.on(:sunrise) { nil } }
  ensure
    Chaton::Jobs::Setup::EVENTS.each { |event| own.blocks(event).clear }
    Chaton::Jobs.stopping = false
  end

  def test_beats_run_on_a_thread_until_the_end
    seen = Queue.new
    own = Chaton::Jobs.setup
    %i[heartbeat beat].each { |event| own.on(event) { seen << event } }
    runtime.start_beats(log)
    assert_equal %i[heartbeat beat], [seen.pop, seen.pop]
  ensure
    runtime.ended(log)
    %i[heartbeat beat].each { |event| own.blocks(event).clear }
  end

  def test_reloaded_classes_are_looked_up_again
    assert_equal "[1, 2, [:wrapped, :wrapped]]", in_process(<<~RUBY)
      require "chaton"
      require "chaton/telemetry/log"
      CALLS = []
      class Reloader
        def wrap = (CALLS << :wrapped) && yield
        def before_class_unload(&block) = @unload = block
        def unload = @unload.call
      end
      module Rails
        def self.application = @application ||= Struct.new(:reloader).new(Reloader.new)
      end
      class Seen; include Chaton::Job; def perform = $seen = 1; end
      handler = Chaton::Jobs::Handler.new(log: Chaton::Telemetry::Log.new)
      job = -> { handler.call(FakeJob.new({ "class" => "Seen", "args" => [] })); $seen }
      first = job.call
      Object.send(:remove_const, :Seen)
      class Seen; include Chaton::Job; def perform = $seen = 2; end
      Rails.application.reloader.unload
      print [first, job.call, CALLS].inspect
    RUBY
  end
end
